"""Running kernels without their device: numbers as the device makes them, faults as faults, and the walls around a child."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

import numpy as np

from accelopt_backends.triton import TritonBackend, emulated_arithmetic, interpreter, toolchain
from accelopt_backends.triton.targets import target_named
from accelopt_compile.evaluate import Limits, open_evaluator
from accelopt_compile.evaluate.verifying import Verified
from accelopt_compile.records import Rejected, Stage
from tests.backends.triton.kernel_samples import HEAD, PRODUCT, SOFTMAX, loaded, product_workload, run, softmax_workload, source


def element(body: str, kinds: str, *, symbols: str = "", launch: str = "one[(1,)]", more: str = "") -> str:
    """A file with one device function `one` over tensors of these pointer types (the last the output), 16 lanes `i`."""
    names = [*(f"in{k}" for k in range(len(kinds.split()) - 1)), "out0"]
    typed = ", ".join(f'{n}: "{k}"' for n, k in zip(names, kinds.split(), strict=True))
    lines = "\n".join(f"    {line}" for line in ["i = tl.arange(0, 16)", *body.splitlines()])
    sizes = "".join(f", {s}" for s in symbols.split())
    typed += "".join(f', {s}: "i64"' for s in symbols.split())
    call = f"{launch}({', '.join(names)}{sizes}{more})"
    return f"{HEAD}@triton.jit\ndef one({', '.join(names)}{sizes}):\n{lines}\n\n\ndef accelopt_kernel({typed}):\n    {call}\n"


def test_a_softmax_is_right_for_every_number_of_rows(tmp_path: Path) -> None:
    """Zero rows launch nothing, and rows that are no multiple of a program's are masked."""
    kernel = loaded(tmp_path, SOFTMAX)
    for rows in (0, 1, 7):
        x = torch.randn(rows, 1000, dtype=torch.bfloat16)
        out = torch.full_like(x, 7.0)
        assert 0 == kernel([x.data_ptr(), out.data_ptr()], [rows], 1)
        assert torch.allclose(torch.softmax(x.double(), -1), out.double(), rtol=4e-3)


def test_a_bf16_product_is_that_of_the_values(tmp_path: Path) -> None:
    """The language's own interpreter multiplies bit patterns."""
    left, right = torch.randn(70, 256).bfloat16(), torch.randn(256, 256).bfloat16()
    out = torch.empty(70, 256, dtype=torch.bfloat16)
    assert 0 == run(tmp_path, PRODUCT, [left, right, out], [70])
    assert torch.allclose(left.double() @ right.double(), out.double(), rtol=8e-3, atol=1e-2)


@pytest.mark.parametrize("given", [torch.float32, torch.float64, torch.float16])
def test_bf16_is_rounded_to_nearest_even(given: torch.dtype) -> None:
    """As torch rounds, at ties and beside them, at the ends of the range, for infinities and NaN."""
    patterns = torch.arange(1 << 16, dtype=torch.int32)
    kept = (patterns << 16).view(torch.float32)
    values = torch.cat([kept, (patterns << 16 | 0x8000).view(torch.float32), (patterns << 16 | 0x7FFF).view(torch.float32)])
    values = values.to(given) if given != torch.float64 else torch.cat([values.double(), values.double() * (1 + 2.0**-40)])
    found = torch.from_numpy(emulated_arithmetic.to_bf16(values.numpy()).view(np.int16)).view(torch.bfloat16)
    expected = values.bfloat16() if given != torch.float64 else to_bf16_exactly(values)
    assert torch.equal(expected.isnan(), found.isnan())
    assert torch.equal(expected[~expected.isnan()], found[~expected.isnan()])


def to_bf16_exactly(values: torch.Tensor) -> torch.Tensor:
    """The nearer of the two bf16 neighbours of a float64, the even one at a tie; torch goes through float32."""
    near = values.bfloat16()
    bits = near.view(torch.int16).to(torch.int32)
    around = torch.stack([(bits + k).to(torch.int16).view(torch.bfloat16) for k in (-1, 0, 1)])
    off = (around.double() - values).abs()
    off[around.isnan() | around.isinf()] = torch.inf
    odd = (around.view(torch.int16).to(torch.int64) & 1).double()
    least = off.min(0).values
    choice = torch.where(off == least, odd, 2.0).argmin(0)
    picked = around.gather(0, choice[None])[0]
    return torch.where(near.isfinite() & least.isfinite(), picked, near)


def test_bf16_arithmetic_rounds_after_each_step(tmp_path: Path) -> None:
    """As devices with bf16 arithmetic do, and no more on bit patterns."""
    text = element("x = tl.load(in0 + i)\ny = tl.load(in1 + i)\ntl.store(out0 + i, x * y + x)", "*bf16 *bf16 *bf16")
    x, y = torch.randn(16).bfloat16(), torch.randn(16).bfloat16()
    out = torch.empty_like(x)
    assert 0 == run(tmp_path, text, [x, y, out])
    assert torch.equal(x * y + x, out)


def test_reducing_in_bf16_is_refused_with_advice(tmp_path: Path) -> None:
    """The device would add up in bf16, and nobody wants that."""
    text = element("x = tl.load(in0 + i)\ntl.store(out0 + i, x * 0 + tl.sum(x))", "*bf16 *bf16")
    with pytest.raises(interpreter.KernelRaised, match=r"convert to tl\.float32 first"):
        run(tmp_path, text, [torch.ones(16).bfloat16(), torch.empty(16).bfloat16()])


@pytest.mark.parametrize("precision, tolerance", [("ieee", 1e-6), ("tf32", 1e-2)])
def test_products_of_float32_are_rounded_as_asked(precision: str, tolerance: float, tmp_path: Path) -> None:
    """TF32, the language's default, keeps ten bits of each factor; the interpreter alone would keep all."""
    load = "x = tl.load(in0 + i[:, None] * 16 + i[None, :])\n"
    text = element(
        load + f'tl.store(out0 + i[:, None] * 16 + i[None, :], tl.dot(x, x, input_precision="{precision}"))', "*fp32 *fp32"
    )
    x = torch.rand(16, 16) + 0.3
    out = torch.empty_like(x)
    run(tmp_path, text, [x, out])
    off = ((x.double() @ x.double() - out.double()).abs() / (x.double() @ x.double())).max().item()
    assert off < tolerance
    assert (precision == "tf32") == (off > 1e-5)


def test_fp16_products_add_up_in_float32(tmp_path: Path) -> None:
    """Sums beyond the range of fp16 are right."""
    text = element(
        "x = tl.load(in0 + i[:, None] * 16 + i[None, :])\ntl.store(out0 + i[:, None] * 16 + i[None, :], tl.dot(x, x))",
        "*fp16 *fp32",
    )
    x = torch.full((16, 16), 200.0).half()
    out = torch.empty(16, 16)
    run(tmp_path, text, [x, out])
    assert torch.equal(torch.full((16, 16), 640000.0), out)


REDUCTIONS = {
    "tl.sum(x, axis=0)": lambda x: x.sum().expand(16),
    "tl.max(x, axis=0)": lambda x: x.max().expand(16),
    "tl.argmax(x, axis=0).to(tl.float32)": lambda x: x.argmax().float().expand(16),
    "tl.cumsum(x, axis=0)": lambda x: x.cumsum(0),
    "tl.cumsum(x, axis=0, reverse=True)": lambda x: x.flip(0).cumsum(0).flip(0),
    "tl.cumprod(x, axis=0)": lambda x: x.cumprod(0),
    "tl.sort(x)": lambda x: x.sort().values,
    "tl.softmax(x)": lambda x: x.softmax(0),
    "tl.sigmoid(x)": lambda x: x.sigmoid(),
    "tl.reduce(x, 0, longest)": lambda x: x[x.abs().argmax()].expand(16),
    "tl.associative_scan(x, 0, longest)": lambda x: torch.stack([x[: n + 1][x[: n + 1].abs().argmax()] for n in range(16)]),
    "tl.associative_scan(x, 0, longest, reverse=True)": lambda x: torch.stack([x[n:][x[n:].abs().argmax()] for n in range(16)]),
    "tl.where(x > 0, x, x * 0.5) + tl.rsqrt(x * x + 1)": lambda x: torch.where(x > 0, x, x / 2) + (x * x + 1).rsqrt(),
    "x.sum() + x.to(tl.int32).to(tl.float32)": lambda x: x.sum() + x.to(torch.int32).float(),
}  # fmt: skip


@pytest.mark.parametrize("expression", REDUCTIONS)
def test_functions_of_the_language_work(expression: str, tmp_path: Path) -> None:
    """They are device functions themselves, made when the language was imported, for compiling."""
    longest = "@triton.jit\ndef longest(a, b):\n    return tl.where(tl.abs(b) > tl.abs(a), b, a)\n\n\n"
    text = element(f"x = tl.load(in0 + i)\ntl.store(out0 + i, x * 0 + {expression})", "*fp32 *fp32")
    x = torch.randn(16)
    out = torch.empty(16)
    assert 0 == run(tmp_path, text.replace(HEAD, HEAD + longest), [x, out])
    assert torch.allclose(REDUCTIONS[expression](x), out, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("declared", ["SEVEN: tl.constexpr = 7", "SEVEN = tl.constexpr(7)"])
def test_constants_of_the_file_and_defaults_are_known(declared: str, tmp_path: Path) -> None:
    """To the interpreter as to the compiler, which takes only one of the two forms by itself."""
    text = element("tl.store(out0 + i, i * 0 + SEVEN + K)", "*i32").replace("def one(out0", "def one(out0, K: tl.constexpr = 30")
    text = text.replace(HEAD, HEAD + declared + "\n\n\n")
    out = torch.empty(16, dtype=torch.int32)
    assert 0 == run(tmp_path, text, [out])
    assert [37] * 16 == out.tolist()
    assert 0 == toolchain.build(source(text), {}, str(tmp_path), target_named("sm_80")).features["spill_bytes"]


def test_sizes_are_64_bit(tmp_path: Path) -> None:
    """A product of sizes that overflows 32 bits does not."""
    text = element("tl.store(out0 + i, in0 * 0 + s0 * s0 + i)".replace("in0 * 0 + ", ""), "*i64", symbols="s0")
    out = torch.empty(16, dtype=torch.int64)
    assert 0 == run(tmp_path, text, [out], [3_000_000_000])
    assert torch.equal(9_000_000_000_000_000_000 + torch.arange(16), out)


def test_masked_lanes_touch_nothing(tmp_path: Path) -> None:
    """Loads give `other`, stores leave what was there; addresses beyond the tensors are never touched."""
    text = element("x = tl.load(in0 + i * 1000000000, mask=i < 1, other=5.0)\ntl.store(out0 + i, x, mask=i > 3)", "*fp32 *fp32")
    out = torch.zeros(16)
    run(tmp_path, text, [torch.ones(1), out])
    assert [0.0] * 4 + [5.0] * 12 == out.tolist()


def test_truths_are_bytes(tmp_path: Path) -> None:
    """bool tensors are read and written as such."""
    text = element("x = tl.load(in0 + i)\ntl.store(out0 + i, x == 0)", "*i1 *i1")
    x = torch.arange(16) % 3 == 0
    out = torch.empty(16, dtype=torch.bool)
    run(tmp_path, text, [x, out])
    assert torch.equal(~x, out)


def test_conversions_to_integers_hold_as_on_the_device(tmp_path: Path) -> None:
    """Beyond the range they stop at its ends, NaN is 0."""
    text = element("tl.store(out0 + i, tl.load(in0 + i).to(tl.int32))", "*fp32 *i32")
    x = torch.tensor([1.9, -1.9, 3e9, -3e9, float("nan"), float("inf"), 0.0, -0.0] * 2)
    out = torch.empty(16, dtype=torch.int32)
    run(tmp_path, text, [x, out])
    assert [1, -1, 2147483647, -2147483648, 0, 2147483647, 0, 0] == out[:8].tolist()


def test_a_failed_assertion_is_a_status(tmp_path: Path) -> None:
    """A gather that is told an index outside declines."""
    text = element("x = tl.load(in0 + i)\ntl.device_assert(x < 16)\ntl.store(out0 + i, x)", "*i64 *i64")
    out = torch.zeros(16, dtype=torch.int64)
    assert 0 == run(tmp_path, text, [torch.arange(16), out])
    assert interpreter.ASSERTED == run(tmp_path, text, [torch.arange(16) + 1, out])


def test_what_a_kernel_raises_comes_out_with_its_line(tmp_path: Path) -> None:
    """And with the text of the line."""
    text = element("x = tl.load(in0 + i)\ntl.store(out0 + i, tl.reshape(x, (3, 5)))", "*fp32 *fp32")
    with pytest.raises(interpreter.KernelRaised, match=r"line 9: .*\n.*tl.reshape"):
        run(tmp_path, text, [torch.ones(16), torch.ones(16)])


def test_scratch_holds_rubbish_and_zeros_hold_zero(tmp_path: Path) -> None:
    """What a kernel forgets to write is NaN."""
    parts = 'part = {}("fp32", 16)\n    one[(1,)](part, out0)'
    text = element("tl.store(out0 + i, tl.load(in0 + i))", "*fp32 *fp32").replace('in0: "*fp32", out0', "out0")
    out = torch.ones(16)
    run(tmp_path, text.replace("one[(1,)](in0, out0)", parts.format("scratch")), [out])
    assert out.isnan().all()
    run(tmp_path, text.replace("one[(1,)](in0, out0)", parts.format("zeros")), [out])
    assert torch.equal(torch.zeros(16), out)


def test_writing_beyond_scratch_is_found(tmp_path: Path) -> None:
    """After the launch, by name."""
    text = element("tl.store(in0 + i, 1.0)\ntl.store(out0 + i, 1.0)", "*fp32 *fp32").replace('in0: "*fp32", out0', "out0")
    text = text.replace("one[(1,)](in0, out0)", 'part = scratch("fp32", 15)\n    one[(1,)](part, out0)')
    with pytest.raises(interpreter.KernelRaised, match="writes outside of scratch part"):
        run(tmp_path, text, [torch.ones(16)])


def test_leaving_early_is_the_status(tmp_path: Path) -> None:
    """`return 1` declines, a plain one ran."""
    text = element("tl.store(out0 + i, 1.0)", "*fp32", symbols="s0")
    for line, status in (("if s0 == 3: return 1", 1), ("if s0 == 3: return", 0)):
        out = torch.zeros(16)
        assert status == run(tmp_path, text.replace("    one[", f"    {line}\n    one["), [out], [3])
        assert torch.equal(torch.zeros(16), out)


def test_the_order_of_programs_changes_from_call_to_call(tmp_path: Path) -> None:
    """Two programs that write to one place leave other results the second time: a race shows as nondeterminism."""
    kernel = loaded(tmp_path, element("tl.store(out0 + i, tl.program_id(0).to(tl.float32))", "*fp32", launch="one[(3,)]"))
    out = torch.empty(16)
    found = []
    for _ in range(3):
        kernel([out.data_ptr()], [], 1)
        found.append(out[0].item())
    assert [2.0, 0.0, 2.0] == found


def test_one_process_compiles_and_interprets_in_turns(tmp_path: Path) -> None:
    """The language decides between the two when it is imported; here both work, again and again."""
    x = torch.randn(2, 1000).bfloat16()
    for turn in range(2):
        folder = tmp_path / str(turn)
        folder.mkdir()
        artifact = toolchain.build(source(SOFTMAX), {"ROWS": 1 + turn}, str(folder), target_named("sm_80"))
        out = torch.empty_like(x)
        assert 0 == interpreter.load(artifact)([x.data_ptr(), out.data_ptr()], [2], 1)
        assert torch.allclose(torch.softmax(x.double(), -1), out.double(), rtol=4e-3)


# ---------------------------------------------------------------- behind the walls


@pytest.fixture
def cache_root(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))  # a child imports the test's backend by its module's name
    yield
    sys.modules.pop("samples", None)


HINTS = {
    "tl.multiple_of(k, 8)": True,  # one run of successive integers from 0
    "tl.max_contiguous(tl.multiple_of(16 + k, 16), 16)": True,
    "tl.max_constancy(k // 4, 4)": True,
    "tl.multiple_of(8 + k, 16)": False,
    "tl.max_contiguous(k % 8, 16)": False,
    "tl.max_contiguous(k % 8, 8)": True,
    "tl.max_constancy(k // 2, 4)": False,
    "k + tl.multiple_of(tl.program_id(0) + 24, 16)": False,
}


@pytest.mark.parametrize(("hint", "true"), HINTS.items())
def test_a_hint_must_be_true(hint: str, true: bool, tmp_path: Path) -> None:
    """An untrue one would make a wide load at an address that is no multiple of its width."""
    text = element(f"k = tl.arange(0, 16)\nk = {hint}\ntl.store(out0 + k * 0, k.to(tl.float32), mask=k == 0)", "*fp32")
    out = torch.ones(64)
    if true:
        assert 0 == run(tmp_path, text, [out])
    else:
        with pytest.raises(interpreter.KernelRaised, match="not true of these values"):
            run(tmp_path, text, [out])


def test_lanes_that_store_to_one_place_do_so_in_either_order(tmp_path: Path) -> None:
    """A device promises no order, so two calls have to differ."""
    text = element("k = tl.arange(0, 8)\ntl.store(out0 + k * 0, k.to(tl.float32))", "*fp32")
    kernel, out = loaded(tmp_path, text), torch.zeros(1)
    assert [7.0, 0.0] == [out.item() for _ in range(2) if kernel([out.data_ptr()], [], 1) == 0]


@pytest.mark.usefixtures("cache_root")
def test_the_evaluator_tells_right_kernels_from_wrong_ones(tmp_path: Path) -> None:
    """Built by a builder that may write in one folder, run by a runner that may write nowhere and start nothing."""
    wrong = SOFTMAX.replace("tl.sum(e, axis=0)", "tl.max(e, axis=0)")
    beyond = SOFTMAX.replace("y.to(tl.bfloat16), mask=live", "y.to(tl.bfloat16), mask=cols < 1000")
    limits = Limits(start_s=240.0, call_s=60.0, build_s=120.0)
    with open_evaluator(
        softmax_workload(), {"s0": 6}, backend=TritonBackend("sm_90"), threads=1, seed=1, workdir=str(tmp_path), limits=limits
    ) as evaluator:
        right = evaluator.verify(source(SOFTMAX), {"ROWS": 4}, seeds=[1], effort="quick")
        assert isinstance(right, Verified), right
        assert all(why == "" for why in right.walls.values()) or os.environ.get("CI")
        for text, stage in ((wrong, Stage.NUMERICS), (beyond, Stage.MUTATION)):
            found = evaluator.verify(source(text), {"ROWS": 4}, seeds=[1], effort="quick")
            assert isinstance(found, Rejected)
            assert stage == found.stage


def test_the_product_sample_is_what_its_workload_says() -> None:
    """The samples of these tests belong together."""
    assert ("s0", 256) == product_workload().output_specs[0].shape


def test_numbers_of_the_host_function_stay_within_64_bits(tmp_path: Path) -> None:
    """25 lines that raise a number to the fourth power would keep a process busy for days."""
    growing = "\n".join(["    a0 = 9999999999", *(f"    a{n + 1} = a{n} * a{n} * a{n} * a{n}" for n in range(25))])
    text = element("tl.store(out0 + i, i)", "*i32").replace("    one[", f"{growing}\n    one[")
    with pytest.raises(interpreter.KernelRaised, match="beyond 64 bits"):
        run(tmp_path, text, [torch.zeros(16, dtype=torch.int32)])


def test_a_grid_that_no_device_takes_is_declined(tmp_path: Path) -> None:
    """The second and third axis of a grid end at 65535."""
    text = element("tl.store(out0 + i, i)", "*i32", launch="one[(1, 65536)]")
    assert 0 != run(tmp_path, text, [torch.zeros(16, dtype=torch.int32)])
