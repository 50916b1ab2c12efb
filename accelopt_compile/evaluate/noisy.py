"""The golden answer with rounding put back in at random: how much do half-ulp errors on the way move the result?

Moving only the inputs misses what cancels inside (1 + erf(x) far below zero, x - mean(x) of a constant row): there a right
kernel differs from eager by a rounding of an intermediate. So the results of the nodes are moved as well.

Below the smallest normal number rounding is absolute, half a spacing of the subnormals; a function that no standard defines
there (exp, division by way of a reciprocal) may also give zero. Sums, differences and products may not.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter
from torch.fx import Node as FxNode

from accelopt_compile.attention import BACKWARD, FORWARD
from accelopt_compile.evaluate.reference import widen

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
TINY = {dtype: torch.finfo(dtype).tiny for dtype in UNIT}
"""The smallest normal number; TINY * UNIT is half a spacing of the subnormals."""
HALVES = (torch.float16, torch.bfloat16)
FLUSHED = (torch.bfloat16,)
"""Dtypes whose subnormals a kernel may write as zero: the instructions that round to bfloat16 (VCVTNEPS2BF16) do."""

ROUNDINGS = 8.0
"""How many times S a right kernel may be off."""
FLUSHES = 2.0 / ROUNDINGS
"""By how many smallest normal numbers a function moves in a probe that may give zero below it. ROUNDINGS S is then twice what
is lost: at exactly that much, one of 400,000 elements of a softmax's gradient was off by more, in a third of the seeds."""

EXACT = frozenset(
    (
        "view", "reshape", "_unsafe_view", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze",
        "squeeze", "clone", "alias", "cat", "stack", "split", "split_with_sizes", "gather", "embedding", "index",
        "_unsafe_index", "index_select", "scatter", "slice_scatter", "select_scatter", "where", "full", "full_like",
        "iota", "neg", "abs", "relu", "amax", "amin", "max", "min", "maximum", "minimum", "clamp", "clamp_min",
        "clamp_max", "floor", "ceil", "round", "trunc", "sign", "sort", "topk", "flip", "constant_pad_nd",
        "masked_fill", "lift_fresh_copy", "copy", "as_strided", "empty", "zeros", "ones", "eq", "ne", "ge", "gt",
        "le", "lt"
    )
)  # fmt: skip
"""Operators whose result is exact: they move, select or compare."""

DEFINED = frozenset(("add", "sub", "rsub", "mul", "sum", "mean", "cumsum", "convert_element_type", "_to_copy", "square"))
"""Operators whose results IEEE 754 defines down to the last subnormal. Matrix products come from libraries that may flush."""

MATMULS = ("mm", "addmm", "bmm", "baddbmm", "mv", "dot")
ATTENTION = tuple(name.removeprefix("aten.") for name in (FORWARD, BACKWARD))
FUNCTIONS = {"erf": 3.0}
"""Functions that are usually right to a few units only: torch's own vector erf is 1.5e-7 off (Abramowitz and Stegun 7.1.26)."""
CHAIN = 1024
"""Additions into one accumulator that a right kernel may make one after the other, at most."""
SUMS = ("sum", "mean", "var", "var_mean", "cumsum", "prod", "logsumexp")


class Noisy(Interpreter):
    """Runs a float64 reference module, moving every inexact float result by its unit roundoff (rms) at random; by
    more where many terms were summed, in an order that is free.

    `low` moves only the results that are half precision in the real program, by their unit; else all move by float32's.
    """

    def __init__(self, module: GraphModule, generator: torch.Generator, *, low: bool, equal_terms: bool = False) -> None:
        super().__init__(module, garbage_collect_values=True)
        self._generator, self._low, self._equal_terms = generator, low, equal_terms

    def run_node(self, n: FxNode) -> Any:
        if n.op != "call_function" or n.target is operator.getitem:
            return super().run_node(n)
        packet = getattr(n.target, "overloadpacket", None)
        name = str(packet).rpartition(".")[2]
        if name in ATTENTION:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            spelled = self._attention_backward if name.endswith("_backward") else self._attention
            return spelled(*args, dtype=n.meta.get("dtype", torch.float32), **kwargs)
        result = super().run_node(n)
        if name in EXACT:
            return result
        dtype = n.meta.get("dtype", torch.float32)
        steps = summing_steps(name, self.fetch_args_kwargs_from_env(n)[0], result, equal_terms=self._equal_terms)
        flushes = name not in DEFINED
        if name == "div" and not self._low:
            result = self._by_reciprocal(result, self.fetch_args_kwargs_from_env(n)[0][0], dtype)
        if isinstance(result, list | tuple):
            return type(result)([self._moved(r, dtype, steps, flushes=flushes) for r in result])
        return self._moved(result, dtype, steps, flushes=flushes)

    def _moved(self, value: Any, dtype: torch.dtype, steps: float = 1.0, *, flushes: bool = True) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or (self._low and dtype not in HALVES):
            return value
        inside = dtype if self._low or dtype == torch.float64 else torch.float32
        unit = UNIT[inside] if self._low else steps * max(2.0**-52, UNIT[inside])
        least = TINY[inside] * (FLUSHES if flushes else UNIT[inside])
        if self._low and inside in FLUSHED:
            least = 2 * TINY[inside]
        return moved(value, unit, self._generator, least=least)

    def _by_reciprocal(self, quotient: torch.Tensor, dividend: Any, dtype: torch.dtype) -> torch.Tensor:
        """a / b as a (1 / b), in which 1 / b may be zero below the smallest normal number: x / (1 + exp(-x)) at x = -88."""
        least = TINY[torch.float64 if dtype == torch.float64 else torch.float32] * FLUSHES
        if not isinstance(dividend, torch.Tensor) or not dividend.is_floating_point():
            return quotient
        return quotient + moved(torch.zeros_like(quotient), 0.0, self._generator, least=least) * torch.nan_to_num(dividend)

    def _attention(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        dropout: float = 0.0,
        causal: bool = False,
        *,
        dtype: torch.dtype,
        attn_mask: torch.Tensor | None = None,
        scale: float | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attention spelled out, so that its scores and weights are moved too. Gives the output and log-sum-exp. Scores
        are kept in float32; weights may be rounded to `dtype` before they meet the values, as eager does."""
        k, v = _for_every_head(k, q), _for_every_head(v, q)
        scores = self._scores(q, k, causal, attn_mask, scale)
        lse = torch.logsumexp(scores, -1)
        weights = self._moved(torch.nan_to_num(torch.softmax(scores, -1)), dtype)
        return self._moved(weights @ v, dtype), self._moved(lse, torch.float32)

    def _attention_backward(
        self,
        grad: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
        dropout: float = 0.0,
        causal: bool = False,
        *,
        dtype: torch.dtype,
        attn_mask: torch.Tensor | None = None,
        scale: float | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """The gradients spelled out from the saved log-sum-exp: scores, weights and their gradients are moved too, those
        two rounded to `dtype` before they meet a matrix."""
        every_k, every_v = _for_every_head(k, q), _for_every_head(v, q)
        scores = self._scores(q, every_k, causal, attn_mask, scale)
        weights = self._moved(torch.where(scores == -math.inf, 0.0, torch.exp(scores - lse[..., None])), dtype)
        steps = 1 + math.sqrt(q.shape[-1]) / 2
        towards = self._moved(grad @ every_v.transpose(-1, -2), torch.float32, steps)
        shared = self._moved((grad * out).sum(-1, keepdim=True), torch.float32, steps)
        moving = self._moved(weights * (towards - shared), dtype) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
        grads = (moving @ every_k, _of_groups(moving.mT @ q, k), _of_groups(weights.mT @ grad, v))
        return tuple(self._moved(g, dtype) for g in grads)

    def _scores(
        self, q: torch.Tensor, k: torch.Tensor, causal: bool, attn_mask: torch.Tensor | None, scale: float | None
    ) -> torch.Tensor:
        scores: torch.Tensor = self._moved(q @ k.transpose(-1, -2), torch.float32, 1 + math.sqrt(q.shape[-1]) / 2)
        scores = scores * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
        if causal:
            keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores = scores.masked_fill(~keep, -math.inf)
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
        return scores


def _for_every_head(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Keys or values of grouped queries, once for each query head."""
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def _of_groups(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A gradient for every query head, summed over those that share a head of `x`."""
    return grad if grad.shape == x.shape else grad.reshape(*x.shape[:2], grad.shape[1] // x.shape[1], *x.shape[2:]).sum(2)


class _Watching(Interpreter):
    """Runs a float64 reference module and notes whether a value would not fit the type it has in the real program."""

    found = False

    def run_node(self, n: FxNode) -> Any:
        result = super().run_node(n)
        dtype = n.meta.get("dtype", torch.float32)
        most = torch.finfo(dtype).max if dtype.is_floating_point else math.inf
        name = str(getattr(n.target, "overloadpacket", "")).rpartition(".")[2]
        if name == "exp":  # infinite in the real program too, on every way: 1 / (1 + exp(-x)) is 0 there
            return torch.where(result > most, math.inf, result)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if name in ("sum", "mean", "cumsum") and args[0].is_floating_point():  # by sign first, or in any other order
            terms_of_one_sign = torch.nan_to_num(args[0].abs(), nan=0.0, posinf=0.0)
            sums = n.target(terms_of_one_sign, *args[1:], **kwargs)  # type: ignore[operator]
            terms = args[0].numel() / max(sums.numel(), 1) if name == "mean" else 1
            self._note(sums.max() * terms if sums.numel() else sums.sum(), max(most, torch.finfo(torch.float32).max))
        if name in (*MATMULS, *ATTENTION):  # sums of products that are no node's result
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
            pairs = [tensors[-2:]]
            if name in ATTENTION:
                pairs = [tensors[:2]] if len(tensors) < 6 else [tensors[1:3], [tensors[0], tensors[3]]]
            for q, k in pairs:
                self._note(q.abs().max() * k.abs().max() * q.shape[-1] if q.numel() and k.numel() else q.sum(), most)
        for value in result if isinstance(result, list | tuple) else (result,):
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
                self._note(torch.where(torch.isfinite(value), value, 0.0).abs().max(), most)
        return result

    def _note(self, largest: torch.Tensor, most: float) -> None:
        self.found = self.found or float(largest) > most


def overflows(golden: GraphModule, wide: Sequence[torch.Tensor]) -> bool:
    """Whether the real program overflows somewhere on the way, where float64 does not. What comes out then is eager's luck."""
    watching = _Watching(golden, garbage_collect_values=True)
    watching.run(*wide)
    return watching.found


def summing_steps(name: str, args: Sequence[Any], result: Any, *, equal_terms: bool = False) -> float:
    """By how many units an operator's own rounding and order of summation may move its result. Where all terms of a sum are
    equal their roundings are too and add up instead of averaging out: K u / 2 for a chain of K additions."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name in MATMULS and tensors:
        return 1 + math.sqrt(tensors[-1].shape[-2] if tensors[-1].dim() > 1 else tensors[-1].numel()) / 2
    first = result[0] if isinstance(result, list | tuple) and result else result
    if name not in SUMS or not tensors or not isinstance(first, torch.Tensor):
        return 1.0
    count = tensors[0].numel() / max(first.numel(), 1)
    if name == "cumsum" and tensors[0].dim():
        count = tensors[0].shape[int(args[1])]
    chain = min(count, CHAIN) / 2 / ROUNDINGS if equal_terms else 0.0
    return 1 + max(math.sqrt(count) / 4, chain)


POOL = 1 << 20


@functools.cache
def _draws() -> torch.Tensor:
    """Numbers from 0.5 to 1.5 of either sign, drawn once: a probe takes a stretch from a random place, since drawing anew
    took half of a verification. With signs alone two sources of equal size cancel in all of ten probes once in 1024
    elements; with normal numbers four probes see less than a quarter of a single source once in 100."""
    generator = torch.Generator().manual_seed(20261127)
    sizes = torch.rand(2 * POOL, generator=generator, dtype=torch.float64).add_(0.5)
    return sizes.mul_(torch.randint(0, 2, (2 * POOL,), generator=generator, dtype=torch.int8).mul_(2).sub_(1))


def moved(value: torch.Tensor, step: float, generator: torch.Generator, *, least: float = 0.0) -> torch.Tensor:
    """`value` moved by `step` of itself and by `least`, half to one and a half times, independent in each element. What is
    infinite stays so: it was NaN once, and a row of x / (1 + exp(-x)) with one overflow in it was allowed no error at all."""
    count = value.numel()
    start = int(torch.randint(0, POOL, (), generator=generator))
    draw = _draws()[start : start + min(count, POOL)].to(value.dtype)
    factor = torch.add(torch.ones((), dtype=value.dtype), draw, alpha=step)
    result = torch.empty(value.shape, dtype=value.dtype)
    # Stretch by stretch, as the draws of one lie in a cache: three times as fast on 10 million elements as all at once.
    flat, whole = value.reshape(-1), result.view(-1)
    for begin in range(0, count, POOL):
        part, made = flat[begin : begin + POOL], whole[begin : begin + POOL]
        torch.mul(part, factor[: part.numel()], out=made)
        if least:
            made.add_(draw[: part.numel()], alpha=least)
    return result


@dataclass(frozen=True, kw_only=True)
class Moves:
    """How far one output moved over the probes: rms of each element, and of its sum against 1, g and |g|."""

    elements: torch.Tensor
    along: tuple[float, float, float]
    probes: int


def sensitivity(
    golden: GraphModule,
    inputs: Sequence[torch.Tensor],
    answers: Sequence[torch.Tensor],
    *,
    probes: int,
    low: bool,
    seed: int,
    multiple: float = 1.0,
    equal_terms: bool = False,
) -> list[Moves]:
    """rms over `probes` of noisy golden - answers, per output (zeros for outputs that are no floats).

    Inputs are moved by `multiple` units of float32 (of their own where they are float64), results of nodes by one. `low`
    moves only results in half precision, by one unit of their own: inputs are what they are. A probe says nothing of an
    element that it makes infinite or no number.
    """
    generator = torch.Generator().manual_seed(seed & (2**63 - 1))
    tallies = [_Tally(a) if a.is_floating_point() else None for a in answers]
    wide = widen(inputs)
    for _ in range(probes):
        trial = wide
        if not low:
            units = [multiple * (2.0**-52 if x.dtype == torch.float64 else 2.0**-24) for x in inputs]
            trial = [moved(x, unit, generator) if x.is_floating_point() else x for x, unit in zip(wide, units, strict=True)]
        results = Noisy(golden, generator, low=low, equal_terms=equal_terms).run(*trial)
        for tally, result in zip(tallies, results, strict=True):
            if tally is not None:
                tally.add(result)
    nothing = Moves(elements=torch.zeros(()), along=(0.0, 0.0, 0.0), probes=probes)
    return [nothing if tally is None else tally.moves(probes) for tally in tallies]


class _Tally:
    """Sums of squares over the probes of one output."""

    def __init__(self, answer: torch.Tensor) -> None:
        self._answer = answer
        self._plain = torch.nan_to_num(answer, nan=0.0, posinf=0.0, neginf=0.0).contiguous().view(-1)
        self._size = self._plain.abs()
        self._squares = torch.zeros_like(answer)
        self._lost: torch.Tensor | float = 0.0
        self._along = [0.0, 0.0, 0.0]

    def add(self, result: torch.Tensor) -> None:
        off = result - self._answer
        square = off.square()
        if not math.isfinite(float(square.sum())):
            gone = ~torch.isfinite(square)
            self._lost = self._lost + gone.to(square.dtype)
            off, square = torch.where(gone, 0.0, off), torch.where(gone, 0.0, square)
        self._squares += square
        flat = off.contiguous().view(-1)
        for k, sum_ in enumerate((flat.sum(), flat.dot(self._plain), flat.dot(self._size))):
            self._along[k] += float(sum_) * float(sum_)  # infinite where ** would raise

    def moves(self, probes: int) -> Moves:
        first, second, third = (math.sqrt(square / max(probes, 1)) for square in self._along)
        count = torch.as_tensor(probes - self._lost, dtype=self._squares.dtype).clamp(min=1)
        return Moves(elements=self._squares.div_(count).sqrt_(), along=(first, second, third), probes=probes)
