"""The prelude's own functions against float64: their stated errors, and what they do at the ends of a float's range."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from accelopt_backends.cpp import toolchain
from accelopt_backends.cpp.expressions import prelude

Reference = Callable[[Tensor], Tensor]

FUNCTIONS: Mapping[str, tuple[str, str, Reference]] = {
    "exp": ("exp", "exp_(x)", torch.exp),
    "exp_up_to_0": ("exp", "where(x > 0.0f, exp_(x), exp_up_to_0(x))", torch.exp),
    "sigmoid": ("sigmoid", "sigmoid_(x)", torch.sigmoid),
    "silu": ("sigmoid", "logistic(x, -x)", lambda x: x * torch.sigmoid(x)),
    "tanh_plus_one": ("sigmoid", "tanh_plus_one(x * 0.5f)", lambda x: 2 * torch.sigmoid(x)),
    "tanh": ("tanh", "tanh_(x)", torch.tanh),
    "erf": ("erf", "erf_(x)", torch.erf),
    "log": ("log", "log_(x)", torch.log),
    "relu": ("", "relu_(x)", torch.relu),
}
STORED = {torch.float32: "float", torch.bfloat16: "bf16", torch.float16: "f16"}
LEVELS = ("", "avx2", "default")


@pytest.fixture(params=LEVELS, ids=lambda level: level or "all of this processor")
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The instruction set that the toolchain may use; those that this processor lacks fall back to what it has."""
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    if request.param:
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", request.param)
    toolchain.find.cache_clear()
    yield request.param
    toolchain.find.cache_clear()


def computed(
    body: str,
    sections: set[str],
    x: Tensor,
    folder: Path,
    *,
    to: torch.dtype = torch.float32,
    halves: bool = False,
    before: str = "",
) -> Tensor:
    """`body`, an expression in the vector x, at every element of `x`, stored as `to`; with `halves` as in a kernel all of whose
    results are stored in 16 bits; `before` stands before everything else."""
    text = (
        f"{before}\n"
        + ("#define HALF_RESULTS 1\n" if halves else "")
        + prelude(sections)
        + (
            f'extern "C" int accelopt_kernel(void* const* t, const int64_t* sizes, int64_t) {{\n'
            f"  const {STORED[x.dtype]}* in = (const {STORED[x.dtype]}*)t[0]; {STORED[to]}* out = ({STORED[to]}*)t[1];\n"
            f"  sweep<1>(0, sizes[0], [&](auto b, int64_t j, int64_t left) {{ const vf x = load(b, in + j, left); "
            f"store(b, out + j, {body}, left); }});\n  return 0;\n}}\n"
        )
    )
    out = torch.empty_like(x, dtype=to)
    pointers = (ctypes.c_void_p * 2)(x.data_ptr(), out.data_ptr())
    assert built(text, folder)(pointers, (ctypes.c_int64 * 1)(x.numel()), ctypes.c_int64(1)) == 0
    return out


def built(text: str, folder: Path) -> Callable[..., int]:
    """The entry point of a kernel."""
    name = f"functions{len(list(folder.iterdir()))}"  # a loaded library must not be written over
    path, _ = toolchain.compile_shared(text, tunables={}, workdir=str(folder), name=name)
    kernel: Callable[..., int] = ctypes.CDLL(str(path)).accelopt_kernel
    return kernel


def ulps(got: Tensor, exact: Tensor) -> float:
    """The largest error in units of the last place of a float32; subnormal results are counted in 2**-126 * 2**-23."""
    size = exact.abs().clamp_min(2.0**-126)
    last_place = torch.exp2(torch.floor(torch.log2(size)) - 23)
    return float(((got.double() - exact).abs() / last_place).max())


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("exp", 1.5),
        ("exp_up_to_0", 1.5),
        ("sigmoid", 4.0),
        ("silu", 4.5),
        ("tanh_plus_one", 4.0),
        ("tanh", 6.0),
        ("log", 2.0),
        ("relu", 0.0),
    ],
)
def test_a_function_is_as_exact_as_its_comment_says(name: str, most: float, level: str, tmp_path: Path) -> None:
    section, body, exact = FUNCTIONS[name]
    x = torch.cat([torch.linspace(-86.0, 88.0, 200_003), torch.linspace(-1.0, 1.0, 100_001)])
    x = x[x > 0] if name == "log" else x
    assert ulps(computed(body, {section}, x, tmp_path), exact(x.double())) <= most


@pytest.mark.parametrize("division", ["#undef FAST_DIVISION", "#define FAST_DIVISION 1"])
@pytest.mark.parametrize(("name", "most"), [("sigmoid", 4.0), ("silu", 4.5), ("tanh_plus_one", 4.0), ("tanh", 6.0)])
def test_both_ways_to_divide_are_as_exact(name: str, most: float, division: str, tmp_path: Path) -> None:
    """A processor takes the one that is faster on it; at the ends of the range too."""
    section, body, exact = FUNCTIONS[name]
    x = torch.linspace(-86.0, 88.0, 100_003)
    assert ulps(computed(body, {section}, x, tmp_path, before=division), exact(x.double())) <= most
    ends = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e30, -1e30, 104.5, -104.5, 88.73, -88.73, 3.4e38, -3.4e38])
    eager = torch.nn.functional.silu(ends) if name == "silu" else exact(ends)
    for halves in (False, True):
        got = computed(body, {section}, ends, tmp_path, before=division, halves=halves)
        torch.testing.assert_close(got, eager, equal_nan=True, rtol=1e-6, atol=4e-7)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_a_circle_s_functions_are_exact_however_large_the_angle(name: str, level: str, tmp_path: Path) -> None:
    """Up to the largest float; of an infinity there is none."""
    x = torch.cat([torch.linspace(-1e3, 1e3, 20_001), torch.logspace(3, 38.5, 1001), -torch.logspace(3, 38.5, 1001)])
    inf = float("inf")
    got, exact = computed(f"{name}_(x)", {"sincos"}, x, tmp_path), getattr(torch, name)(x.double())
    assert float((got.double() - exact).abs().max()) <= 2.0**-23
    assert bool(computed(f"{name}_(x)", {"sincos"}, torch.tensor([inf, -inf, float("nan"), inf]), tmp_path).isnan().all())


def test_an_exponential_for_16_bits_is_within_a_hundredth_of_their_rounding(level: str, tmp_path: Path) -> None:
    """And 0, infinity and NaN are themselves."""
    x = torch.linspace(-87.0, 88.7, 500_003)
    got, exact = computed("exp_(x)", {"exp"}, x, tmp_path, halves=True).double(), x.double().exp()
    assert bool(((got - exact).abs() <= exact * (x.abs() + 4) * 8e-8).all())
    inf = float("inf")
    ends = torch.tensor([-inf, inf, float("nan"), -104.5, -3e38, 3e38, 88.73])
    wanted = torch.tensor([0.0, inf, float("nan"), 0.0, 0.0, inf, inf])
    got = computed("exp_(x)", {"exp"}, ends, tmp_path, halves=True)
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)


def test_erf_is_within_4e7_and_never_beyond_one(level: str, tmp_path: Path) -> None:
    x = torch.linspace(-6.0, 6.0, 300_001)
    got = computed("erf_(x)", {"erf"}, x, tmp_path)
    assert (got.double() - torch.erf(x.double())).abs().max() <= 4e-7
    assert got.abs().max() <= 1.0


def test_an_erf_for_16_bits_is_within_a_tenth_of_their_rounding(level: str, tmp_path: Path) -> None:
    """Also where one is added to it: the left tail of a GELU, as far as eager's own has a meaning."""
    x = torch.cat([torch.linspace(-3.5, 3.5, 500_003), torch.linspace(-1e-3, 1e-3, 1001)])
    got, exact = computed("erf_(x)", {"erf"}, x, tmp_path, halves=True).double(), torch.erf(x.double())
    assert bool(((got - exact).abs() <= exact.abs() * 2.0**-9 / 10).all())
    assert bool(((got - exact).abs() <= (1 + exact) * 2.0**-9 / 10 + 4e-7).all())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_infinities_zeros_and_nan_give_what_eager_gives(name: str, level: str, tmp_path: Path) -> None:
    section, body, _ = FUNCTIONS[name]
    inf = float("inf")
    x = torch.tensor([0.0, -0.0, inf, -inf, float("nan"), 1e30, -1e30, 104.5, -104.5, 3.4e38, -3.4e38, 1.0])
    eager = torch.nn.functional.silu(x) if name == "silu" else FUNCTIONS[name][2](x)
    torch.testing.assert_close(computed(body, {section}, x, tmp_path), eager, equal_nan=True, rtol=1e-6, atol=4e-7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_16_bit_number_survives_widening_and_rounding(dtype: torch.dtype, level: str, tmp_path: Path) -> None:
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    widened = computed("x", set(), x, tmp_path)
    torch.testing.assert_close(widened, x.float(), rtol=0, atol=0, equal_nan=True)
    rounded = computed("x", set(), widened, tmp_path, to=dtype)
    numbers = ~x.isnan()
    numbers &= (x == 0) | (x.float().abs() >= torch.finfo(dtype).tiny) if dtype == torch.bfloat16 else numbers
    assert torch.equal(rounded[numbers].view(torch.int16), x[numbers].view(torch.int16))
    assert rounded[x.isnan()].isnan().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_rounded_to_the_even_neighbour(dtype: torch.dtype, level: str, tmp_path: Path) -> None:
    x = torch.randn(10_001, generator=torch.Generator().manual_seed(0)) * 100
    assert torch.equal(computed("x", set(), x, tmp_path, to=dtype), x.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_part_of_a_vector_is_read_and_written_and_nothing_past_it(dtype: torch.dtype, level: str, tmp_path: Path) -> None:
    """Of every length, the whole one included, as at the edge of a tile."""
    name = STORED[dtype]
    text = prelude(set()) + (
        'extern "C" int accelopt_kernel(void* const* t, const int64_t* sizes, int64_t) {\n'
        f"  put_some(({name}*)t[1], some((const {name}*)t[0], sizes[0]), sizes[0]);\n  return VEC;\n}}\n"
    )
    kernel = built(text, tmp_path)
    x, width = torch.arange(1.0, 33.0).to(dtype), 4
    for left in range(17):
        out = torch.zeros_like(x)
        if left <= width:
            pointers = (ctypes.c_void_p * 2)(x.data_ptr(), out.data_ptr())
            width = kernel(pointers, (ctypes.c_int64 * 1)(left), ctypes.c_int64(1))
            torch.testing.assert_close(out, torch.where(torch.arange(32) < left, x, 0.0), rtol=0, atol=0)
    assert width in (4, 8, 16)
