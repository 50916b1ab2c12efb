"""Kernels whose outputs lie over their inputs: run like that, and timed like that."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from native_backend import NativeBackend
from torch.utils._python_dispatch import TorchDispatchMode

from accelopt_compile.evaluate import Evaluator, open_evaluator
from accelopt_compile.evaluate.baseline import Baselines
from accelopt_compile.evaluate.bench import Bench
from accelopt_compile.evaluate.buffers import arena_bytes, mapped
from accelopt_compile.evaluate.sandbox.arena import Arena
from accelopt_compile.records import Accepted, KernelSource, Node, Ref, Rejected, Stage, TensorSpec, Workload

FLAT = TensorSpec(dtype="f32", shape=("s0",), strides=(1,))


def momentum() -> Workload:
    """m' = m * 0.5 + g over m, and p' = p - m' over p."""
    nodes = (
        Node(op="aten.mul.Tensor", args=(Ref("i", 0), 0.5), outputs=(FLAT,)),
        Node(op="aten.add.Tensor", args=(Ref("n", 0), Ref("i", 1)), outputs=(FLAT,)),
        Node(op="aten.sub.Tensor", args=(Ref("i", 2), Ref("n", 1)), outputs=(FLAT,)),
    )
    return Workload(
        inputs=(FLAT,) * 3, nodes=nodes, outputs=(Ref("n", 1), Ref("n", 2)), output_specs=(FLAT, FLAT), symbols=("s0",),
        aliases=((0, 0), (1, 2)),
    )  # fmt: skip


@pytest.fixture(scope="module")
def evaluator(cache_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    work = str(tmp_path_factory.mktemp("in_place"))
    with open_evaluator(momentum(), {"s0": 5000}, backend=NativeBackend(), threads=1, seed=3, workdir=work) as opened:
        yield opened


def kernel(body: str) -> KernelSource:
    text = (
        '#include <stdint.h>\nextern "C" int accelopt_kernel(void* const* t, const int64_t* s, int64_t) {\n'
        "const float *m = (float*)t[0], *g = (float*)t[1], *p = (float*)t[2];\nfloat *om = (float*)t[3], *op = (float*)t[4];\n"
        f"for (int64_t i = 0; i < s[0]; ++i) {{ {body} }}\nreturn 0;\n}}\n"
    )
    return KernelSource(language="cpp", text=text, origin="human")


@pytest.mark.parametrize("effort", ["quick", "full"])
def test_a_kernel_that_reads_before_it_writes_is_right(evaluator: Evaluator, effort: str) -> None:
    """Timed against baselines that update in place as well."""
    source = kernel("float x = m[i] * 0.5f + g[i]; om[i] = x; op[i] = p[i] - x;")
    verdict = evaluator.evaluate(source, {}, effort=effort)  # type: ignore[arg-type]
    assert isinstance(verdict, Accepted), verdict
    assert {"eager", "inductor"} == set(verdict.timing.baselines_us)


@pytest.mark.parametrize(
    "body",
    [
        "om[i] = m[i] * 0.5f + g[i]; op[i] = p[i] - (m[i] * 0.5f + g[i]);",
        "om[i] = m[i] * 0.5f + g[i]; op[i] = p[i] - (i ? om[i - 1] * 0 + om[i] : om[i]) - (i ? m[i - 1] * 0.001f : 0);",
    ],
)
def test_a_kernel_that_reads_what_it_has_overwritten_is_wrong(evaluator: Evaluator, body: str) -> None:
    """With outputs of its own the first would be right."""
    verdict = evaluator.evaluate(kernel(body), {})
    assert isinstance(verdict, Rejected)
    assert verdict.stage is Stage.NUMERICS


def test_an_input_that_is_not_overwritten_must_stay(evaluator: Evaluator) -> None:
    """The gradient is only read."""
    verdict = evaluator.evaluate(
        kernel("float x = m[i] * 0.5f + g[i]; om[i] = x; op[i] = p[i] - x; ((float*)g)[i] += 1e-9f;"), {}
    )
    assert isinstance(verdict, Rejected)
    assert verdict.stage is Stage.MUTATION


@pytest.mark.parametrize("side", ["kernel", "inductor", "eager"])
def test_a_reader_of_an_update_reads_the_same_on_every_side(side: str) -> None:
    """What was updated, and nothing else: Inductor's code for an update gives no outputs, and when only the kernel's were
    read, AdamW at 1.4x of Inductor was taken for 0.86x and never adopted."""
    arena = Arena(arena_bytes(momentum(), [{"s0": 4096}]))
    try:
        bench = Bench(
            momentum(),
            {"s0": 4096},
            Baselines(momentum(), {"s0": 4096}),
            memory=mapped(arena.descriptor),
            kernel=lambda pointers, sizes, threads: None,
            threads=1,
            seed=0,
        )
        with Summed() as summed:
            assert 3 == len(bench.reads(side, 3))
    finally:
        arena.close()
    assert 3 * 2 * 4096 * 4 == summed.bytes


@pytest.mark.parametrize(("same", "seen"), [(True, [True] * 4), (False, [False] * 4)])
def test_a_second_call_meets_what_the_first_met_or_something_new(same: bool, seen: list[bool]) -> None:
    """What an update wrote over is put back before each call, so that a kernel that remembers its last inputs is found out,
    and one that only finds them in a cache is not."""
    arena = Arena(arena_bytes(momentum(), [{"s0": 4096}]))
    met: list[bytes] = []

    def kernel(pointers: Sequence[int], sizes: Sequence[int], threads: int) -> None:
        met.append(ctypes.string_at(pointers[0], 4 * sizes[0]))
        ctypes.memset(pointers[0], 0, 4 * sizes[0])

    try:
        place = mapped(arena.descriptor)
        place.copy_(torch.randint(0, 100, place.shape, dtype=torch.uint8))
        baselines = Baselines(momentum(), {"s0": 4096})
        bench = Bench(momentum(), {"s0": 4096}, baselines, memory=place, kernel=kernel, threads=1, seed=0)
        assert 4 == len(bench.second("kernel", 4, same=same))
    finally:
        arena.close()
    pairs = list(zip(met[::2], met[1::2], strict=True))
    assert seen == [first == second for first, second in pairs]
    assert 4 * (1 if same else 2) == len(set(met))


class Summed(TorchDispatchMode):
    """Counts what sums read, but for the few bytes that warm their code."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket is torch.ops.aten.sum and args[0].nbytes > 64:
            self.bytes += args[0].nbytes
        return func(*args, **(kwargs or {}))
