"""The golden answer with rounding put back in at random: a float64 reference in which the results of the nodes are moved.

Moving only the inputs misses what cancels inside (1 + erf(x) far below zero, x - mean(x) of a constant row): there a right
kernel differs from eager by a rounding of an intermediate.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter
from torch.fx import Node as FxNode

from accelopt_compile.evaluate.roundings import ATTENTION, DEFINED, EXACT, FLUSHED, FLUSHES, HALVES, TINY, UNIT, summing_steps


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


POOL = 1 << 20


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


@functools.cache
def _draws() -> torch.Tensor:
    """Numbers from 0.5 to 1.5 of either sign, drawn once: a probe takes a stretch from a random place, since drawing anew
    took half of a verification. With signs alone two sources of equal size cancel in all of ten probes once in 1024
    elements; with normal numbers four probes see less than a quarter of a single source once in 100."""
    generator = torch.Generator().manual_seed(20261127)
    sizes = torch.rand(2 * POOL, generator=generator, dtype=torch.float64).add_(0.5)
    return sizes.mul_(torch.randint(0, 2, (2 * POOL,), generator=generator, dtype=torch.int8).mul_(2).sub_(1))
