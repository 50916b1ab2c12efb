"""The judge: outputs against the golden answer and eager. Pure functions of tensors, so that they can run in any process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from accelopt_compile.evaluate.roundings import FLUSHED, TINY
from accelopt_compile.evaluate.tolerance import Allowance


@dataclass(frozen=True, kw_only=True)
class Exact:
    """What an output must equal, element by element: eager, or the golden answer where they differ (a comparison of two
    nearly equal floats). Floats that were only moved, selected or rounded once are held to this too; `signed` where the
    sign of a zero must be eager's."""

    eager: torch.Tensor
    golden: torch.Tensor
    signed: bool = False


@dataclass(frozen=True, kw_only=True)
class Picked:
    """Positions that a top-k chose along `dim` of `source` (the golden answer). Equal elements may change places, so what
    must be right is the element at each position, to within `limit` of `values`, and that no position comes twice.
    `positions` are eager's own."""

    positions: torch.Tensor
    source: torch.Tensor
    values: torch.Tensor
    limit: torch.Tensor
    dim: int


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """`share` is the worst error as a share of what is allowed; `fault` is empty when right, else what is wrong with
    the first wrong element."""

    share: float
    fault: str = ""


Expected = Allowance | Exact | Picked


def judge(outputs: Sequence[torch.Tensor], expected: Sequence[Expected]) -> Judgement:
    """Hold contiguous outputs against what is expected of them; the first fault ends it."""
    share = 0.0
    for number, (output, wanted) in enumerate(zip(outputs, expected, strict=True)):
        match wanted:
            case Exact():
                found = _exact(output, wanted)
            case Picked():
                found = _picked(output, wanted)
            case Allowance():
                found = _floats(output, wanted)
        if found.fault:
            where = f"output {number}: " if len(outputs) > 1 else ""
            return Judgement(share=found.share, fault=where + found.fault)
        share = max(share, found.share)
    return Judgement(share=share)


def _exact(output: torch.Tensor, wanted: Exact) -> Judgement:
    raw = output.view(torch.uint8) if output.dtype == torch.bool else output
    if output.dtype == torch.bool and bool((raw > 1).any()):
        return Judgement(share=float("inf"), fault="a boolean element is neither 0 nor 1")
    wrong = (output != wanted.eager) & (output != wanted.golden)
    if output.is_floating_point():
        wrong &= ~(output.isnan() & wanted.eager.isnan())
        if output.dtype in FLUSHED:
            wrong &= ~((output == 0) & (wanted.eager.abs() < TINY[output.dtype]))
        if wanted.signed:
            wrong |= (output == 0) & (wanted.eager == 0) & (output.signbit() != wanted.eager.signbit())
    if not bool(wrong.any()):
        return Judgement(share=0.0)
    return Judgement(share=float("inf"), fault=_first(wrong, output, wanted.eager, "must be exact"))


def _picked(output: torch.Tensor, wanted: Picked) -> Judgement:
    size = wanted.source.shape[wanted.dim]
    outside = (output < 0) | (output >= size)
    if bool(outside.any()):
        fault = _first(outside, output, output.clamp(0, size - 1), "a position outside the row")
        return Judgement(share=float("inf"), fault=fault)
    ordered, order = output.sort(dim=wanted.dim)
    twice = torch.zeros_like(outside)
    if output.shape[wanted.dim] > 1:
        again = ordered.diff(dim=wanted.dim) == 0
        twice.scatter_(wanted.dim, order.narrow(wanted.dim, 1, again.shape[wanted.dim]), again)
    if bool(twice.any()):
        return Judgement(share=float("inf"), fault=_first(twice, output, output, "a position chosen twice"))
    chosen = wanted.source.gather(wanted.dim, output.to(torch.int64))
    equal = (chosen == wanted.values) | (chosen.isnan() & wanted.values.isnan())
    right = equal | ((chosen - wanted.values).abs() <= wanted.limit)
    if bool(right.all()):
        return Judgement(share=0.0)
    return Judgement(share=float("inf"), fault=_first(~right, chosen, wanted.values, "the element at the chosen position"))


def _floats(output: torch.Tensor, wanted: Allowance) -> Judgement:
    if output.numel() == 0:
        return Judgement(share=0.0)
    error = output.to(torch.float64) - wanted.golden
    if wanted.finite is not None:
        pattern = _pattern_fault(output, wanted)
        if pattern:
            return Judgement(share=float("inf"), fault=pattern)
        judged = wanted.finite & ~output.isnan() if wanted.nan == "anywhere" else wanted.finite
        error = torch.where(judged, error, 0.0)
    size = error.abs()
    ratio = size / wanted.limit
    share = float(ratio.max())
    if not share <= 1.0:  # NaN compares false
        wrong = ~(ratio <= 1.0)
        return Judgement(
            share=share,
            fault=_first(
                wrong, output, wanted.golden, f"error {share:.3g} times the allowed" if share == share else "not a number"
            ),
        )
    overall = _overall(error, size, wanted)
    if overall.fault:
        return overall
    return Judgement(share=max(share, overall.share))


def _pattern_fault(output: torch.Tensor, wanted: Allowance) -> str:
    """Non-finite elements must be where, and what, eager has or what the rounded golden has."""
    rounded = wanted.golden.to(output.dtype)

    def same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        finite = torch.isfinite(a) & torch.isfinite(b)
        return finite | (a.isnan() & b.isnan()) | ((a == b) & ~torch.isfinite(a))

    wrong = ~(same(output, wanted.eager) | same(output, rounded))
    if wanted.nan == "anywhere":
        wrong &= ~output.isnan()
    elif wanted.nan == "for_infinite":
        wrong &= ~(output.isnan() & wanted.eager.isinf())
    return _first(wrong, output, wanted.eager, "NaN or Inf in the wrong place") if bool(wrong.any()) else ""


def _overall(error: torch.Tensor, size: torch.Tensor, wanted: Allowance) -> Judgement:
    """Limits on the whole output: largest and rms error, and bias against 1, g and |g|."""
    mean_square = float(error.square().mean())
    shares = {"rms error": mean_square**0.5 / wanted.rms, "largest error": float(size.max()) / wanted.largest}
    golden = wanted.golden if wanted.finite is None else torch.where(wanted.finite, wanted.golden, 0.0)
    for name, limit, norm, b in zip(
        ("1", "g", "|g|"), wanted.projections, wanted.norms, (None, golden, golden.abs()), strict=False
    ):
        product = error if b is None else error * b
        bias = abs(float(product.sum())) / norm
        noise = 8 * float(product.square().sum()) ** 0.5 / norm
        if wanted.alike and bias > limit + noise:
            noise = 8 * float(_together(product, wanted.golden).square().sum()) ** 0.5 / norm
        shares[f"bias along {name}"] = bias / max(limit + noise, 1e-300)
    name, share = max(shares.items(), key=lambda item: item[1])
    return Judgement(share=share, fault="" if share <= 1.0 else f"{name} is {share:.3g} times the allowed")


def _together(product: torch.Tensor, golden: torch.Tensor) -> torch.Tensor:
    """The sum over the elements of each value: equal ones round to the same side, so a row of one value is one draw. (A kernel of
    silu(x) * y in bfloat16 whose error is a ten-thousandth of a rounding was refused once in 12 verifications before.)"""
    _, which = torch.unique(golden.reshape(-1), return_inverse=True)
    return torch.zeros(int(which.max()) + 1, dtype=product.dtype).index_add_(0, which, product.reshape(-1))


def _first(wrong: torch.Tensor, output: torch.Tensor, wanted: torch.Tensor, why: str) -> str:
    flat = int(wrong.reshape(-1).to(torch.uint8).argmax())
    index, rest = [], flat
    for n in reversed(output.shape):
        index.append(rest % n)
        rest //= n
    expected, actual = wanted.reshape(-1)[flat].item(), output.reshape(-1)[flat].item()
    where = tuple(reversed(index))
    count = f"{int(wrong.sum())} of {output.numel()} elements wrong"
    return f"{count}, first at {where}: expected {expected!r}, got {actual!r} ({why})"
