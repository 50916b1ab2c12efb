"""One call for many in-place updates: from Python, through the dispatcher, compiled by Inductor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import handmade
import pytest
import torch
from torch._inductor.utils import run_and_get_code

from accelopt_compile.launch import kernels, lowering, native, update

STEP = handmade.entry(
    "float *m = (float*)t[0], *p = (float*)t[2]; const float* g = (const float*)t[1];\n"
    "if (s[0] == 5) return 1;\n"
    "for (int64_t i = 0; i < s[0]; ++i) { m[i] = m[i] / 2 + g[i]; p[i] = p[i] - m[i]; }\nreturn 0;"
)


def reference(m: torch.Tensor, g: torch.Tensor, p: torch.Tensor, s0: int) -> tuple[torch.Tensor, torch.Tensor]:
    assert (s0,) == tuple(m.shape) == tuple(g.shape) == tuple(p.shape)
    new = m / 2 + g
    return p - new, new


def momentum(directory: Path) -> str:
    """Inputs m, g, p; outputs p - m' over p and m' = m / 2 + g over m. The kernel declines 5 elements."""
    flat = handmade.spec("s0")
    work = replace(handmade.workload([flat] * 3, [flat] * 2, ("s0",)), aliases=((0, 2), (1, 0)))
    return handmade.adopt(work, STEP, reference, directory, kernel_us=100.0)


def state(*shapes: tuple[int, ...]) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """(m, g, p) of each shape; 4-dimensional ones in channels-last order."""
    made = []
    for shape in shapes:
        three = [torch.randn(shape) for _ in range(3)]
        made.append(tuple(t.to(memory_format=torch.channels_last) if len(shape) == 4 else t for t in three))
    return made  # type: ignore[return-value]


def expected(tensors: list[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(m / 2 + g, p - (m / 2 + g)) for m, g, p in tensors]


def check(wanted: list[tuple[torch.Tensor, torch.Tensor]], tensors: list[Any]) -> None:
    for (new_m, new_p), (m, _, p) in zip(wanted, tensors, strict=True):
        torch.testing.assert_close(m, new_m)
        torch.testing.assert_close(p, new_p)


def call(key: str, tensors: list[Any], large: int = 0) -> None:
    """The operator, as the pass puts it into a graph."""
    reads, writes = [g for _, g, _ in tensors], [w for m, _, p in tensors for w in (p, m)]
    update.operator()(reads, writes, [p.numel() for _, _, p in tensors], large, key)


@pytest.mark.parametrize("compiled_launcher", ["1", "0"])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_instance_is_updated(compiled_launcher: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones one by one, small ones side by side; one that the kernel declines and an empty one by the reference."""
    monkeypatch.setenv("ACCELOPT_NATIVE_LAUNCHER", compiled_launcher)
    native.native_module.cache_clear()
    key = momentum(tmp_path)
    tensors = state((40, 30), (7,), (5,), (2, 3, 4, 4), (0,), *[(11,)] * 20)
    wanted = expected(tensors)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with pytest.warns(kernels.KernelFellBack, match="declined a call with sizes"):
            call(key, tensors, large=2)
    finally:
        torch.set_num_threads(before)
        native.native_module.cache_clear()
    check(wanted, tensors)
    assert 2 == kernels.statistics()[key]["fallbacks"]


def test_a_gradient_in_another_layout_is_brought_in_line(tmp_path: Path) -> None:
    """Through the dispatcher, where nobody vouches for strides."""
    key = momentum(tmp_path)
    (m, g, p), *_ = state((4, 6))
    tensors = [(m, g.t().contiguous().t(), p)]
    wanted = expected(tensors)
    call(key, tensors)
    check(wanted, tensors)


def test_compiled_by_inductor(tmp_path: Path) -> None:
    """A direct call on the graph's own inputs, after everything that reads them and before everything that comes later."""
    assert lowering.install()
    key = momentum(tmp_path)

    def step(m: torch.Tensor, p: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = p * 2
        update.operator()([x.sin()], [p, m], [p.numel()], 0, key)
        return before, p * 3

    m, p, x = (torch.randn(6, 8) for _ in range(3))
    ((new_m, new_p),) = expected([(m, x.sin(), p)])
    old_p = p.clone()
    (before, after), (code,) = run_and_get_code(torch.compile(step, fullgraph=True), m, p, x)
    torch.testing.assert_close(before, old_p * 2)
    torch.testing.assert_close(after, new_p * 3)
    torch.testing.assert_close(m, new_m)
    assert f"extern_kernels.accelopt_many_{key}((" in code
    assert "copy_" not in code.partition("def call")[2]
