"""The guide for authors: what it shows is right, passes the screen, and compiles for every target."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import triton.language as tl

from accelopt_backends.triton import authored, interpreter, toolchain
from accelopt_backends.triton.allowed import ATTRIBUTES, CALLS, MATH, METHODS
from accelopt_backends.triton.screening import screen
from accelopt_backends.triton.targets import TARGETS
from accelopt_compile.llm.prompts import front_matter
from accelopt_compile.records import Artifact, KernelSource

GUIDE = authored.guide(("device: none",))
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE.writing, re.MULTILINE | re.DOTALL)
HELPERS, *EXAMPLES = BLOCKS
NAMES = re.findall(r"\(`(\w+)`\):$", GUIDE.writing, re.MULTILINE)
SIZES = (0, 1, 3, 64, 131)

BF16 = torch.bfloat16
WORKLOADS: dict[str, tuple[Callable[[int], tuple[torch.Tensor, ...]], Callable[..., torch.Tensor]]] = {
    "rms_bf16": (
        lambda n: (torch.randn(n, 37).to(BF16), torch.randn(37).to(BF16)),
        lambda x, w: x.double() * torch.rsqrt(x.double().pow(2).mean(-1, keepdim=True) + 1e-6) * w.double(),
    ),
    "softmax_f32": (lambda n: (torch.randn(n, 37) * 20,), lambda x: torch.softmax(x.double(), -1)),
    "column_sum": (lambda n: (torch.randn(n, 37),), lambda x: (x.double() * 2).sum(0)),
    "product": (
        lambda n: (torch.randn(n, 200).to(BF16), torch.randn(200, 96).to(BF16)),
        lambda a, b: a.double() @ b.double(),
    ),
}


def run(source: KernelSource, folder: Path, given: tuple[torch.Tensor, ...], out: torch.Tensor, size: int) -> None:
    """The kernel in the interpreter; `out` holds NaN before."""
    path = folder / "kernel.py"
    path.write_text(source.text)
    call = interpreter.load(Artifact(path=str(path), source_digest=source.digest, tunables=source.defaults()))
    assert 0 == call([t.data_ptr() for t in (*given, out)], [size], 1)


def test_every_example_has_a_workload() -> None:
    """Text and test go together."""
    assert list(WORKLOADS) == NAMES
    assert len(NAMES) == len(EXAMPLES)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_right_for_every_size(name: str, tmp_path: Path) -> None:
    """Against PyTorch in float64, within a rounding of the type that is stored."""
    source = authored.written(EXAMPLES[NAMES.index(name)])
    assert [] == list(screen(source))
    make, reference = WORKLOADS[name]
    for size in SIZES:
        torch.manual_seed(size)
        given = make(size)
        expected = reference(*given)
        dtype = BF16 if given[0].dtype == BF16 else torch.float32
        out = torch.full(expected.shape, float("nan"), dtype=dtype)
        run(source, tmp_path, given, out, size)
        tolerance = 2**-8 if dtype == BF16 else 1e-6
        torch.testing.assert_close(
            out.double(), expected, rtol=tolerance, atol=tolerance * float(expected.abs().mean() if expected.numel() else 1)
        )


def test_the_online_example_keeps_what_is_not_finite(tmp_path: Path) -> None:
    """NaN, infinities, and rows and beginnings of rows that are all -inf, as eager has them."""
    x = torch.randn(6, 37)
    x[0, 3], x[1, 20], x[2, :], x[3, :20], x[4, 20:] = float("nan"), float("inf"), float("-inf"), float("-inf"), float("-inf")
    out = torch.zeros(6, 37)
    run(authored.written(EXAMPLES[NAMES.index("softmax_f32")]), tmp_path, (x,), out, 6)
    torch.testing.assert_close(out, torch.softmax(x, -1), equal_nan=True)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_an_example_compiles(name: str, target: str, tmp_path: Path) -> None:
    """For every target, at the defaults, without spills."""
    source = authored.written(EXAMPLES[NAMES.index(name)])
    artifact = toolchain.build(source, source.defaults(), str(tmp_path), TARGETS[target])
    assert not artifact.features.get("spill_bytes")


def test_the_functions_to_copy_are_right(tmp_path: Path) -> None:
    """tanh to a few units in the last place from tiny to huge, and the largest with NaN kept."""
    text = f"""import triton
import triton.language as tl


{HELPERS}

@triton.jit
def both(in0, out0, out1, s0, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    x = tl.load(in0 + r * BLOCK + k)
    tl.store(out0 + r * BLOCK + k, tanh(x))
    tl.store(out1 + r + tl.arange(0, 1), top(x, 0))


def accelopt_kernel(in0: "*fp32", out0: "*fp32", out1: "*fp32", s0: "i64"):
    both[(s0,)](in0, out0, out1, s0, BLOCK=64)
"""
    source = authored.written(text)
    assert [] == list(screen(source))
    x = torch.cat([torch.logspace(-30, 3, 62), torch.tensor([-0.0, float("inf")])]).repeat(3, 1)
    x[1] = -x[1]
    x[2, 5] = float("nan")
    out, largest = torch.zeros_like(x), torch.zeros(3)
    path = tmp_path / "kernel.py"
    path.write_text(source.text)
    call = interpreter.load(Artifact(path=str(path), source_digest=source.digest, tunables={}))
    assert 0 == call([t.data_ptr() for t in (x, out, largest)], [3], 1)
    torch.testing.assert_close(out.double(), torch.tanh(x.double()), rtol=6e-7, atol=0, equal_nan=True)
    torch.testing.assert_close(largest, x.amax(-1), equal_nan=True)


def test_the_guide_names_only_what_there_is() -> None:
    """Every function of the language that authors are told of exists in it and passes the screen, and none is left out."""
    told = GUIDE.writing.partition("- Of `tl`:")[2].partition("There is no")[0]
    words = set(re.findall(r"[a-z_0-9]{2,}", told.partition("; and `")[0])) - {"with", "and"}
    words -= {"store", "load"} & METHODS
    assert set() == words - CALLS
    assert set() == CALLS - words - {
        "load",
        "store",
        "add",
        "sub",
        "mul",
        "load_tensor_descriptor",
        "store_tensor_descriptor",
        "reduce_or",
    }
    assert [] == sorted(name for name in CALLS if not hasattr(tl, name))
    assert [] == sorted(name for name in MATH if not hasattr(tl.math, name))
    assert all(f"`.{name}" in told for name in ATTRIBUTES - {"element_ty"})


def test_the_guide_has_versions_and_names_its_language() -> None:
    """As every guide has."""
    assert front_matter("facts", GUIDE.facts)[0].isdigit()
    assert front_matter("writing", GUIDE.writing)[0].isdigit()
    assert ("Triton", "python") == (GUIDE.language, GUIDE.fences[0])
    assert toolchain.version().startswith(re.search(r"Triton (\d+\.\d+)", GUIDE.facts)[1])  # type: ignore[index]
