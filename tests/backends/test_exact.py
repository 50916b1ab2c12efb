"""What eager gives exactly, or to its last bits, at values that random inputs never are: seeds of regions give it too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.backends import seeds

Function = Callable[..., Tensor]


def ran(function: Function, x: Tensor, folder: Path, *, threads: int = 1, tunables: dict[str, int] | None = None) -> Tensor:
    """The result of the seed of the only region of `function`."""
    ((workload, binding),) = seeds.regions_of(function, x)
    source, out = seeds.BACKEND.seed(workload), torch.empty_like(function(x))
    kernel = seeds.BACKEND.load(seeds.BACKEND.build(source, source.defaults() | (tunables or {}), str(folder)))
    assert 0 == kernel([x.data_ptr(), out.data_ptr()], list(binding.values()), threads)
    return out


def put(x: Tensor, *values: float) -> Tensor:
    x.view(-1)[: len(values)] = torch.tensor(values)
    return x


EQUAL: dict[str, tuple[Function, Callable[[], Tensor]]] = {
    "the pole of log1p": (lambda x: torch.log1p(x) * 2, lambda: put(torch.ones(64, 512), -1.0, 0.0, -0.0, float("inf"))),
    "powers of two": (lambda x: torch.log2(x).to(torch.int64), lambda: 2.0 ** torch.arange(-149, 128).float().repeat(4, 1)),
    "a divisor's multiples": (lambda x: torch.ceil(x / 60.0) * 60.0 - x, lambda: put(torch.rand(64, 512), *range(0, 6000, 60))),
    "a number divided by itself": (lambda x: torch.where(x / 41.0 >= 1.0, x * 2, -x), lambda: put(torch.rand(64, 512), 41.0)),
    "parts of the largest": (
        lambda x: torch.floor(x / x.abs().amax(-1, keepdim=True) * 3),
        lambda: put(torch.rand(64, 512) * 40, 41.0, -41.0),
    ),
    "a divisor whose reciprocal is infinite": (lambda x: torch.relu(x / 2.0**-130) + 1, lambda: put(torch.zeros(64, 512), 1e-40)),
    "a reciprocal that is subnormal": (lambda x: torch.relu(x / 2.0**127) + 1, lambda: put(torch.zeros(64, 512), 3e38)),
    "a short float that is a number": (
        lambda x: torch.where(x > 0.1, x * 3, x + 1),
        lambda: torch.full((64, 512), 0.1, dtype=torch.bfloat16),
    ),
    "an integer that short floats do not hold": (
        lambda x: torch.where(x >= 257, x * 3, x + 1),
        lambda: torch.full((64, 512), 256.0, dtype=torch.bfloat16),
    ),
    "a constant that short floats do not hold": (
        lambda x: torch.where(x == torch.full_like(x, 0.1), x * 3, x + 1),
        lambda: torch.full((64, 512), 0.1, dtype=torch.bfloat16),
    ),
    "numbers one after another, to an integer": (
        lambda x: (x * 0.1 * 13).to(torch.int64),
        lambda: put(torch.rand(64, 512), 90.0, 50.0, 3e38),
    ),
    "numbers one after another, rounded up": (lambda x: torch.ceil(x * 0.1 * 3), lambda: put(torch.rand(64, 512), 50.0, 90.0)),
    "numbers that overflow one after another": (lambda x: torch.relu(x * 1e20 * 1e-20), lambda: put(torch.ones(64, 512), 1e25)),
    "zero less an integer zero": (lambda x: 1.0 / (x - 0) * 2, lambda: put(torch.randn(64, 512), -0.0, 0.0)),
    "a slice of floats among integers": (
        lambda x: torch.slice_scatter(torch.zeros(64, 1024, dtype=torch.int64), x, 1, 0, 512) * 3,
        lambda: put(torch.randn(64, 512), 1.7, -1.7, 0.9),
    ),
    "the sign of what is no number": (lambda x: torch.sign(x) * 2 + 1, lambda: put(torch.randn(64, 512), float("nan"), -0.0)),
    "a bound below a type": (lambda x: x.clamp(-1, 3) * 2, lambda: torch.arange(512).repeat(64, 1).to(torch.uint8)),
    "floats beyond 32 bits": (
        lambda x: (x * 2).to(torch.int32),
        lambda: put(torch.randn(64, 512), 2e9, -2e9, float("inf"), float("-inf"), float("nan"), 1.0),
    ),
    "e**0 in 16 bits": (lambda x: torch.floor(torch.exp(x)), lambda: put(-0.5 - torch.rand(64, 512), 0.0, -0.0).bfloat16()),
    "integers beside a product": (
        lambda x: torch.addcmul(x, x, x, value=-3),
        lambda: torch.arange(64 * 512).view(64, 512).to(torch.int16),
    ),
    "powers of truth values": (lambda x: x.float() ** 0.5 + torch.pow(x, 2), lambda: put(torch.zeros(64, 512), 1.0).bool()),
    "more than 24 bits": (
        lambda m: m.sum(-1) + m.sum((0, 2)),
        lambda: put(torch.ones(4096, 2, 6144), 0.0).bool(),
    ),
    "beyond a float's range and back": (lambda x: x.cumsum(-1) * 1.5, lambda: put(torch.zeros(8, 512), 2e38, 2e38, -2e38)),
    "what is left of terms that cancel": (lambda x: x.cumsum(-1) * 1.5, lambda: put(torch.zeros(8, 512), 1e8, 1.0, -1e8)),
}


@pytest.mark.parametrize("name", EQUAL)
def test_exact_where_eager_is(name: str, tmp_path: Path) -> None:
    """Equal, NaN and infinities too."""
    function, make = EQUAL[name]
    x = make()
    torch.testing.assert_close(ran(function, x, tmp_path), function(x), rtol=0, atol=0, equal_nan=True)


CLOSE: dict[str, tuple[Function, Callable[[], Tensor]]] = {
    "65536 rows": (lambda x: x.sum(0), lambda: torch.full((65536, 64), 0.1)),
    "outer dimensions": (lambda x: (x * 2).sum((0, 1)), lambda: torch.full((64, 256, 64), 0.1)),
    "all but the middle": (lambda x: (x * 2).sum((0, 2)), lambda: torch.full((8192, 8, 64), 0.1)),
    "a long row": (lambda x: x.mean(1) * 2, lambda: torch.full((4, 1 << 20), 0.1)),
    "a long row of short ones": (lambda x: (x * x).sum((1, 2, 3)) * 2, lambda: torch.full((2, 64, 64, 300), 0.1)),
    "rows beside the largest of others": (
        lambda x: torch.exp(x - x.amax(1)) * 2,
        lambda: torch.arange(64.0).view(64, 1, 1).expand(64, 64, 32).contiguous(),
    ),
    "a subnormal row's largest": (lambda x: x / x.abs().amax(-1, keepdim=True), lambda: torch.rand(64, 512) * 2e-39),
}


@pytest.mark.parametrize("unroll", [1, 4])
@pytest.mark.parametrize("name", CLOSE)
def test_equal_terms_do_not_drift(name: str, unroll: int, tmp_path: Path) -> None:
    """In float64, within 2e-5: what one chain of float32 additions was off by 6e-4."""
    function, make = CLOSE[name]
    x = make()
    for threads in (1, 2):
        found = ran(function, x, tmp_path, threads=threads, tunables={"UNROLL": unroll})
        torch.testing.assert_close(found.double(), function(x.double()), rtol=2e-5, atol=0)


FAR_BELOW: dict[str, tuple[Function, Callable[[], Tensor]]] = {
    "of all": (
        lambda x: (e := torch.exp(x - x.max())) / e.sum(-1, keepdim=True),
        lambda: put(torch.full((4, 1024), 2.0), 100.0),
    ),
    "of its column": (
        lambda x: (e := torch.exp(x - x.amax(0, keepdim=True))) / e.sum(-1, keepdim=True),
        lambda: torch.cat([torch.full((1, 1024), 100.0), torch.full((3, 1024), 2.0)]),
    ),
}


@pytest.mark.skipif("avx512" not in str(getattr(seeds.BACKEND.probe(), "target", "")), reason="e**x ends at 2**-126 there")
@pytest.mark.parametrize("name", FAR_BELOW)
def test_a_row_far_below_the_largest_is_divided_by_its_own_sum(name: str, tmp_path: Path) -> None:
    """A softmax about a maximum that is not its row's: the sum has no reciprocal that is a number. As exact as eager's."""
    function, make = FAR_BELOW[name]
    x = make()
    found = ran(function, x, tmp_path)
    torch.testing.assert_close(found, function(x), rtol=1e-4, atol=1e-40)
    assert bool((found[-1] > 9e-4).all())


def test_decode_attention_keeps_to_its_rows(tmp_path: Path) -> None:
    """31 queries in tiles of three are 33 rows; the build has fences around what is on the stack."""
    f = torch.nn.functional.scaled_dot_product_attention
    q, k, v = torch.randn(2, 31, 1, 64), torch.randn(2, 1, 512, 64), torch.randn(2, 1, 512, 64)
    ((workload, binding),) = seeds.regions_of(lambda q, k, v: f(q, k, v, enable_gqa=True), q, k, v)
    source = seeds.BACKEND.seed(workload)
    chosen = source.defaults() | {"ROW_TILE": 3, "ROW_LIMIT": 32}
    assert set(chosen) == set(source.defaults())
    assert "seen[MOST_ROWS + ROW_TILE]" in source.text
    assert "" == seeds.fault(source, workload, binding, tmp_path, tunables=chosen)


@pytest.mark.parametrize("loads", ["tiled", "strided"])
def test_a_sum_of_all_there_is_reads_what_lies_across(loads: str, tmp_path: Path) -> None:
    """Partial sums beside tiles of a transposed operand."""
    for function in (lambda x: (x * x.t()).sum() * 2, lambda x: (x - x.t()).abs().mean()):
        ((workload, binding),) = seeds.regions_of(function, torch.randn(512, 512))
        source = seeds.BACKEND.render(workload, {"loads": loads} if "loads" in seeds.BACKEND.grammar(workload) else {})
        assert "" == seeds.fault(source, workload, binding, tmp_path)


@pytest.mark.parametrize("keep", ["heavy", "none"])
def test_a_kept_row_is_read_where_it_was_put(keep: str, tmp_path: Path) -> None:
    """A part of a row that the first pass computed is all that the second finds there."""

    def mixed(x: Tensor, y: Tensor) -> Tensor:
        t = torch.cat([x.exp()[:, :40], y[:, 40:]], -1)
        return t * x.exp() / t.sum(-1, keepdim=True)

    ((workload, binding),) = seeds.regions_of(mixed, torch.randn(5, 83), torch.randn(5, 83))
    assert keep in seeds.BACKEND.grammar(workload)["keep"]
    assert "" == seeds.fault(seeds.BACKEND.render(workload, {"keep": keep}), workload, binding, tmp_path)


def test_a_kernel_that_does_not_count_from_the_end_is_refused(tmp_path: Path) -> None:
    """x[-1] is x's last row."""
    ((workload, binding),) = seeds.regions_of(lambda x, i: x[i] * 2 + 1, torch.randn(50, 64), torch.randint(0, 50, (32,)))
    seed = seeds.BACKEND.seed(workload)
    assert "" == seeds.fault(seed, workload, binding, tmp_path)
    counts = "if (NEGATIVE) at += at < 0 ? size : 0;"
    assert counts in seed.text
    assert seeds.fault(replace(seed, text=seed.text.replace(counts, "")), workload, binding, tmp_path)


def test_a_number_that_eager_rounds_first_is_left_to_it() -> None:
    """One float32 beside many bfloat16 does not widen them: x > bf16(0.1), not x > 0.1."""
    x, bound = torch.rand(64, 512).bfloat16(), torch.tensor(0.1)
    for function in (lambda x, y: torch.where(x > y, x * 3, x + 1), lambda x, y: torch.where(y > x, x * 3, x + 1)):
        ((workload, _),) = seeds.regions_of(function, x, bound)
        assert "eager rounds to 16" in str(seeds.BACKEND.supports(workload))
        ((wide, _),) = seeds.regions_of(function, x.float(), bound)
        assert seeds.BACKEND.supports(wide) is None


SEVERAL: dict[str, tuple[Function, tuple[Tensor, ...]]] = {
    "a part of a concatenation beside itself": (
        lambda x, y: torch.minimum(x, torch.cat([x, y], 1)) * 2,
        (torch.randn(16, 1), torch.randn(16, 64)),
    ),
    "a number of another type": (
        lambda x, y: torch.maximum(x + y, y) * 2,
        (torch.arange(-128, 128).repeat(64, 1).to(torch.int8), torch.tensor(184, dtype=torch.uint8)),
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_inputs_are_read_as_eager_reads_them(name: str, tmp_path: Path) -> None:
    function, given = SEVERAL[name]
    ((workload, binding),) = seeds.regions_of(function, *given)
    source = seeds.BACKEND.seed(workload)
    assert "" == seeds.fault(source, workload, binding, tmp_path, families=("wide_ints",))
