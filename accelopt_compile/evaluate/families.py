"""Families of inputs that aim at one kind of mistake each: per row, over all exponents, in runs. Where each applies."""

from __future__ import annotations

import torch

from accelopt_compile.records import Workload

AIMED = ("nonfinite_rows", "offset_rows", "exp_rows", "mask_runs", "index_runs", "exponents", "mid_exponents", "wide_ints")
NONFINITE = ("nonfinite", "nonfinite_rows")
EXPONENTS = ("exponents", "mid_exponents")
BY_ROWS = ("nonfinite_rows", "offset_rows", "exp_rows", "mask_runs", "index_runs")
"""Each row is a draw of its own: tried once more at sizes with more rows."""

_EXPONENTIAL = ("exp", "softmax", "sigmoid", "silu", "tanh", "gelu", "erf", "softplus", "attention")
_INTEGERS = {torch.float64: torch.int64, torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
_MANTISSA = {torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}
NAN, INF = float("nan"), float("inf")
DECK: tuple[tuple[float, float, int], ...] = (
    (0.0, 0.0, 0), (NAN, NAN, 1), (NAN, NAN, 2), (NAN, NAN, -1), (INF, INF, 1), (INF, INF, 2), (INF, INF, -1),
    (-INF, -INF, 1), (-INF, -INF, 2), (-INF, -INF, -1), (INF, -INF, 2), (-INF, -INF, -2),
)  # fmt: skip
"""What `nonfinite_rows` deals to rows: two values, and how many elements take them; -1: all, -2: all but one. Fewer than SMALL,
so that a small case holds each."""


def applies(workload: Workload, family: str, *, indexed: bool, counted: bool) -> bool:
    """Whether a family has something to say of this workload. `indexed`: some input is used as an index; `counted`: some is an
    integer and no index."""
    match family:
        case "mask_runs":
            return any(spec.dtype == "b8" for spec in workload.inputs)
        case "index_runs":
            return indexed
        case "wide_ints":
            return counted
        case "exponents" | "mid_exponents":  # a fused multiply-add of scores above 2^24 is off by more than 1
            return not any("attention" in node.op for node in workload.nodes)
        case "exp_rows":
            names = [node.op.split(".")[1] for node in workload.nodes]
            return any(mark in name.replace("expand", "") for name in names for mark in _EXPONENTIAL)
    return True


def aimed_floats(family: str, shape: tuple[int, ...], dtype: torch.dtype, x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    """`x`, normal numbers, made into one of these families."""
    rows = (*shape[:-1], 1) if shape else ()

    def uniform(low: float, high: float, size: tuple[int, ...] = rows) -> torch.Tensor:
        return torch.rand(size, generator=g, dtype=x.dtype) * (high - low) + low

    match family:
        case "nonfinite_rows":
            return _nonfinite_rows(x, g)
        case "offset_rows":
            offset = torch.exp2(uniform(-6, 10)) * _signs(rows, g)
            return offset + x * offset * torch.exp2(uniform(-20, 0))
        case "exp_rows":  # every second row where exponentials are subnormal or overflow, or nearly
            far = torch.rand(rows, generator=g) < 0.5
            return x + torch.where(far, uniform(80, 110), uniform(0, 110)) * _signs(rows, g)
        case "exponents" | "mid_exponents":
            info = torch.finfo(dtype)
            low, high = torch.tensor([info.tiny, info.max], dtype=torch.float64).log2().tolist()
            if family == "mid_exponents":  # products of two, and sums of squares, stay in range
                low, high = 0.47 * low, 0.47 * high + 1
            return torch.exp2(uniform(low, high - 2, shape)) * _signs(shape, g)  # differences are in range
    return x


def _signs(shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
    return 1 - 2 * torch.randint(0, 2, shape, generator=g)


def _places(shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
    """For each element its number in a random order of its row."""
    return torch.rand(shape, generator=g).argsort(-1).argsort(-1)


def _nonfinite_rows(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    if not x.dim() or not x.numel():
        return x
    columns = x.shape[-1]
    flat = x.reshape(-1, columns)
    order = torch.randperm(len(DECK), generator=g)
    dealt = torch.tensor(DECK, dtype=x.dtype)[order[torch.arange(len(flat)) % len(DECK)]]
    first, second, count = (dealt[:, k : k + 1] for k in range(3))
    count = torch.where(count < 0, columns + 1 + count, count)
    place = _places((len(flat), columns), g)
    return torch.where(place < count, torch.where(place % 2 == 0, first, second), flat).view(x.shape)


def any_nan(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    """`x` with its NaNs of both signs, mantissas full, quiet with nothing else, and 1: bits that a hand-made rounding carries
    into the sign or cuts to an infinity."""
    bits = _MANTISSA[x.dtype]
    whole = _INTEGERS[x.dtype]
    width = torch.iinfo(whole).bits
    top = (1 << (width - 1)) - (1 << bits)
    negative = -(1 << (width - 1))
    kinds = [sign + top + mantissa for sign in (0, negative) for mantissa in ((1 << bits) - 1, 1 << (bits - 1), 1)]
    drawn = torch.tensor(kinds, dtype=whole)[torch.randint(0, len(kinds), x.shape, generator=g)]
    return torch.where(x.isnan(), drawn, x.contiguous().view(whole)).view(x.dtype)


def mask_runs(shape: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
    """Each row true in a prefix, a suffix or a run in the middle, or but there, or true at one place, or false at one."""
    columns = shape[-1] if shape else 1
    rows = (*shape[:-1], 1) if shape else (1,)
    ends = torch.randint(0, columns + 1, (2, *rows), generator=g)
    at, begin, end = torch.arange(columns), ends.amin(0), ends.amax(0)
    one = torch.randint(0, max(columns, 1), rows, generator=g)
    count = begin.numel()
    kind = ((torch.arange(count) + int(torch.randint(0, 6, (), generator=g))) % 6).view(rows)
    runs = [at < end, at >= begin, (at >= begin) & (at < end), (at < begin) | (at >= end), at == one, at != one]
    made = torch.zeros((*rows[:-1], columns), dtype=torch.bool)
    for k, run in enumerate(runs):
        made = torch.where(kind == k, run, made)
    return made.view(shape)


def wide_ints(shape: tuple[int, ...], dtype: torch.dtype, g: torch.Generator) -> torch.Tensor:
    """Integers of every length that the type holds, of both signs: sums and products of two often do not fit."""
    info = torch.iinfo(dtype)
    bits = info.bits - (info.min < 0)
    lengths = torch.randint(0, bits + 1, shape, generator=g)
    drawn = torch.randint(0, 1 << 62, shape, generator=g) >> (62 - lengths).clamp(min=0)
    negative = (torch.rand(shape, generator=g) < 0.5) & (info.min < 0)
    return torch.where(negative, ~drawn, drawn)


def index_runs(shape: tuple[int, ...], bound: int, g: torch.Generator) -> torch.Tensor:
    """Stretches of 16 or more that go up by one, down by one, or stay; round the end to the beginning."""
    made = torch.zeros(shape, dtype=torch.int64)
    flat, bound = made.view(-1), max(bound, 1)
    length = max(16, -(-flat.numel() // 3))
    steps = torch.tensor([1, -1, 0])[torch.randperm(3, generator=g)].tolist()
    for k, begin in enumerate(range(0, flat.numel(), length)):
        stretch = flat[begin : begin + length]
        start = int(torch.randint(0, bound, (), generator=g))
        stretch.copy_((start + steps[k % 3] * torch.arange(stretch.numel())) % bound)
    return made
