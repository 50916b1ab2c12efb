"""Operators with right and wrong ways to compute them, for `bench_judge`.

Every way is a function of float32 tensors (float64 where the operator is); its results are rounded to the operator's dtype.
Right ways are what kernels do: other orders of summation, online and tiled softmax, powers of two, one rounding at the
end. Wrong ways are mistakes of kernels that a fixed tolerance passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Way = Callable[..., Any]
ROWS, COLUMNS = 13, 96


@dataclass(frozen=True, kw_only=True)
class Operator:
    """`function` is what is compiled, on tensors of `shapes` (a shape of ints per input; "i<n>" before it for indices)."""

    function: Way
    shapes: tuple[Any, ...]
    right: Mapping[str, Way] = field(default_factory=dict)
    wrong: Mapping[str, Way] = field(default_factory=dict)
    fine: Mapping[str, Way] = field(default_factory=dict)
    """Wrong in float32 only: one rounding to 16 bits is larger."""
    defined: bool = False
    """Whether its subnormal results are defined, so that to flush them is wrong."""


# ---------------------------------------------------------------- orders of summation over the last dimension


def sequential(x: Tensor) -> Tensor:
    total = torch.zeros_like(x[..., :1])
    for k in range(x.shape[-1]):
        total = total + x[..., k : k + 1]
    return total


def pairwise(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x if half == 0 else pairwise(x[..., :half]) + pairwise(x[..., half:])


def lanes(x: Tensor) -> Tensor:
    """Eight running sums, added at the end."""
    padded = F.pad(x, (0, -x.shape[-1] % 8))
    return pairwise(sequential(padded.unflatten(-1, (-1, 8)).transpose(-1, -2)).squeeze(-1))


def narrow(x: Tensor) -> Tensor:
    """Sequential, the running sum kept in bfloat16."""
    total = torch.zeros_like(x[..., :1])
    for k in range(x.shape[-1]):
        total = (total + x[..., k : k + 1]).bfloat16().to(x.dtype)
    return total


SUMS = {"sequential": sequential, "pairwise": pairwise, "lanes": lanes}


def over_sums(way: Callable[..., Any], **more: Any) -> dict[str, Way]:
    """`way` with each order of summation as its last argument."""
    return {name: (lambda *a, total=total: way(*a, total, **more)) for name, total in SUMS.items()}


def short_exp(x: Tensor) -> Tensor:
    """exp by a polynomial of degree 4 after range reduction: right to four digits."""
    n = torch.round(x * math.log2(math.e))
    r = x - n * math.log(2)
    p = 1 + r * (1 + r * (0.5 + r * (1 / 6 + r / 24)))
    return torch.where(x < -100, 0.0, torch.ldexp(p, n.clamp(-126, 127)))


# ---------------------------------------------------------------- softmax and relatives


def softmax(x: Tensor, total: Way = lanes, exp: Way = torch.exp) -> Tensor:
    e = exp(x - x.amax(-1, keepdim=True))
    return e / total(e)


def online(x: Tensor) -> tuple[Tensor, Tensor]:
    """(maximum, sum of exponentials) tile by tile."""
    top = torch.full_like(x[..., :1], -math.inf)
    total = torch.zeros_like(top)
    for tile in x.split(16, -1):
        higher = torch.maximum(top, tile.amax(-1, keepdim=True))
        total = total * torch.exp(top - higher) + torch.exp(tile - higher).sum(-1, keepdim=True)
        top = higher
    return top, total


def online_softmax(x: Tensor) -> Tensor:
    top, total = online(x)
    return torch.exp(x - top) / total


def unscaled_online(x: Tensor) -> Tensor:
    """Online, the running sum not rescaled when the maximum grows."""
    top, total = x[..., :1], torch.zeros_like(x[..., :1])
    for tile in x.split(16, -1):
        top = torch.maximum(top, tile.amax(-1, keepdim=True))
        total = total + torch.exp(tile - top).sum(-1, keepdim=True)
    return torch.exp(x - top) / total


def log_sum(x: Tensor, total: Way) -> Tensor:
    top = x.amax(-1, keepdim=True)
    return (top + torch.log(total(torch.exp(x - top)))).squeeze(-1)


def cross_entropy(x: Tensor, target: Tensor, total: Way) -> Tensor:
    losses = log_sum(x, total) - x.gather(-1, target[:, None]).squeeze(-1)
    return total(losses).squeeze(-1) / losses.numel()


def onehot_gradient(x: Tensor, target: Tensor, total: Way = lanes) -> Tensor:
    return (softmax(x, total) - F.one_hot(target.view(-1), x.shape[-1])) * (1 / x.shape[0])


# ---------------------------------------------------------------- norms


def layer_norm(x: Tensor, w: Tensor, b: Tensor, total: Way = lanes, eps: float = 1e-5, unbiased: int = 0) -> Tensor:
    n = x.shape[-1]
    d = x - total(x) / n
    return d * torch.rsqrt(total(d * d) / (n - unbiased) + eps) * w + b


def moments_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    n = x.shape[-1]
    mean, square = lanes(x) / n, lanes(x * x) / n
    return (x - mean) * torch.rsqrt((square - mean * mean).clamp(min=0) + 1e-5) * w + b


def welford_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    mean = torch.zeros_like(x[..., :1])
    m2 = torch.zeros_like(mean)
    for k in range(x.shape[-1]):
        d = x[..., k : k + 1] - mean
        mean = mean + d / (k + 1)
        m2 = m2 + d * (x[..., k : k + 1] - mean)
    return (x - mean) * torch.rsqrt(m2 / x.shape[-1] + 1e-5) * w + b


def fused_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    n = x.shape[-1]
    mean = lanes(x) / n
    scale = 1 / torch.sqrt(lanes((x - mean) ** 2) / n + 1e-5)
    return torch.addcmul(b, (x - mean) * scale, w)


def eps_outside(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    n = x.shape[-1]
    d = x - lanes(x) / n
    return d / (torch.sqrt(lanes(d * d) / n) + 1e-5) * w + b


def rms_norm(x: Tensor, w: Tensor, total: Way = lanes, eps: float = 1e-6) -> Tensor:
    return x * torch.rsqrt(total(x * x) / x.shape[-1] + eps) * w


NORM_WRONG: dict[str, Way] = {
    "no eps": lambda x, w, b: layer_norm(x, w, b, eps=0.0),
    "eps outside the root": eps_outside,
    "unbiased variance": lambda x, w, b: layer_norm(x, w, b, unbiased=1),
    "bfloat16 sums": lambda x, w, b: layer_norm(x, w, b, narrow),
    "no bias": lambda x, w, b: layer_norm(x, w, b * 0),
    "no weight": lambda x, w, b: layer_norm(x, w * 0 + 1, b),
    "last column not in the sums": lambda x, w, b: layer_norm(
        x, w, b, lambda v: lanes(v[..., :-1]) * (v.shape[-1] / (v.shape[-1] - 1))
    ),
}
NORM_FINE: dict[str, Way] = {"E[x^2] - E[x]^2": moments_norm}
NORM_RIGHT: dict[str, Way] = {**over_sums(layer_norm), "welford": welford_norm, "fused": fused_norm}


def over_silu(ways: Mapping[str, Way]) -> dict[str, Way]:
    return {name: (lambda x, w, b, way=way: way(x * torch.sigmoid(x), w, b)) for name, way in ways.items()}


def layer_norm_backward(g: Tensor, x: Tensor, w: Tensor, total: Way = lanes, eps: float = 1e-5, drop: int = 0) -> Tensor:
    n = x.shape[-1]
    d = x - total(x) / n
    scale = torch.rsqrt(total(d * d) / n + eps)
    h, gw = d * scale, g * w
    return scale * (gw - (total(gw) / n if drop != 1 else 0) - (h * total(gw * h) / n if drop != 2 else 0))


def batch_norm(x: Tensor, w: Tensor, b: Tensor, total: Way = lanes, unbiased: int = 0) -> Tensor:
    flat = x.transpose(0, 1).flatten(1)
    done = layer_norm(flat, w[:, None], b[:, None], total, unbiased=unbiased)
    return done.unflatten(1, (x.shape[0], *x.shape[2:])).transpose(0, 1)


def adamw(p: Tensor, g: Tensor, m: Tensor, v: Tensor, eps: float = 1e-4, decay: float = 0.02, beta: float = 0.999) -> Any:
    p = p * (1 - decay)
    m = m + (g - m) * 0.1
    v = v * beta + g * g * (1 - beta)
    return p - 1e-3 * (m / 0.65) / (torch.sqrt(v) / 0.1 + eps), m, v


def attention(
    q: Tensor, k: Tensor, v: Tensor, total: Way = lanes, causal: bool = True, scale: float = 0.25, late: int = 0
) -> Tensor:
    s = q @ k.transpose(-1, -2) * scale
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(late), -math.inf)
    return softmax(s, total) @ v


def flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal, tile by tile with a running maximum."""
    s = (q @ k.transpose(-1, -2) * 0.25).masked_fill(~torch.ones(q.shape[-2], k.shape[-2]).tril().bool(), -math.inf)
    top = torch.full_like(s[..., :1], -math.inf)
    total, out = torch.zeros_like(top), torch.zeros_like(q)
    for a in range(0, s.shape[-1], 8):
        tile = s[..., a : a + 8]
        higher = torch.maximum(top, tile.amax(-1, keepdim=True))
        e, back = torch.exp(tile - higher), torch.exp(top - higher)
        total, out, top = total * back + e.sum(-1, keepdim=True), out * back + e @ v[..., a : a + 8, :], higher
    return out / total
