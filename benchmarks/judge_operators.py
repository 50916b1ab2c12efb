"""The operators of `bench_judge`, each with its right and wrong ways (the ways themselves are in `judge_corpus`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import judge_corpus as c
from benchmarks.judge_corpus import COLUMNS, ROWS, Operator, Way, lanes, narrow, over_sums

X, W = (ROWS, COLUMNS), (COLUMNS,)
IMAGE = (5, 6, 3, 7)
HEADS = (1, 2, 24, 16)


def matmul(a: Tensor, b: Tensor, total: Way) -> Tensor:
    return total(a[:, None, :] * b.t()[None]).squeeze(-1)


def running(x: Tensor) -> Tensor:
    sums, total = [], torch.zeros_like(x[:, :1])
    for k in range(x.shape[1]):
        total = total + x[:, k : k + 1]
        sums.append(total)
    return torch.cat(sums, 1)


def blocked(x: Tensor) -> Tensor:
    parts, offset = [], torch.zeros_like(x[:, :1])
    for tile in x.split(16, 1):
        parts.append(running(tile) + offset)
        offset = parts[-1][:, -1:]
    return torch.cat(parts, 1)


def rotary(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = q.shape[-1] // 2
    return q * cos + torch.cat((-q[..., half:], q[..., :half]), -1) * sin


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * torch.erfc(-x * math.sqrt(0.5))


def gelu_tanh(x: Tensor, factor: float = 0.044715) -> Tensor:
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + factor * x * x * x))


def erf_short(x: Tensor) -> Tensor:
    """Abramowitz and Stegun 7.1.25: off by up to 2.5e-5."""
    t = 1 / (1 + 0.47047 * x.abs())
    return torch.sign(x) * (1 - t * (0.3480242 + t * (-0.0958798 + t * 0.7478556)) * torch.exp(-x * x))


def var(x: Tensor, total: Way, unbiased: int = 1) -> Tensor:
    d = x - total(x) / x.shape[-1]
    return (total(d * d) / (x.shape[-1] - unbiased)).squeeze(-1)


def softmax_function(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


NO_MAX: Mapping[str, Way] = {"no maximum subtracted": lambda x: x.exp() / lanes(x.exp())}

OPERATORS: dict[str, Operator] = {
    "softmax": Operator(
        function=softmax_function,
        shapes=(X,),
        right={
            **over_sums(c.softmax),
            "online": c.online_softmax,
            "by powers of two": lambda x: c.softmax(x, lanes, lambda d: torch.exp2(d * math.log2(math.e))),
        },
        wrong={
            **NO_MAX,
            "bfloat16 sum": lambda x: c.softmax(x, narrow),
            "online without rescaling": c.unscaled_online,
            "last column not in the sum": lambda x: c.softmax(x, lambda e: lanes(e[..., :-1])),
            "last column not in the maximum": lambda x: (
                (x - x[:, :-1].amax(1, keepdim=True)).exp() / (x - x[:, :-1].amax(1, keepdim=True)).exp().sum(1, keepdim=True)
            ),
            "results below 1e-5 zeroed": lambda x: torch.where((s := c.softmax(x)) < 1e-5, 0.0, s),
        },
        fine={"short exp": lambda x: c.softmax(x, lanes, c.short_exp)},
    ),
    "log_softmax": Operator(
        function=lambda x: torch.log_softmax(x, -1),
        shapes=(X,),
        right=over_sums(lambda x, total: (d := x - x.amax(-1, keepdim=True)) - total(d.exp()).log()),
        wrong={
            "no maximum": lambda x: x - lanes(x.exp()).log(),
            "log of softmax": lambda x: c.softmax(x).log(),
            "bfloat16 sum": lambda x: (d := x - x.amax(-1, keepdim=True)) - narrow(d.exp()).log(),
        },
    ),
    "logsumexp": Operator(
        function=lambda x: torch.logsumexp(x, -1),
        shapes=(X,),
        right=over_sums(c.log_sum),
        wrong={"no maximum": lambda x: lanes(x.exp()).log().squeeze(-1), "bfloat16 sum": lambda x: c.log_sum(x, narrow)},
    ),
    "cross_entropy": Operator(
        function=lambda x, t: F.cross_entropy(x, t),
        shapes=(X, ("i96", (ROWS,))),
        right=over_sums(c.cross_entropy),
        wrong={
            "sum for mean": lambda x, t: c.cross_entropy(x, t, lanes) * ROWS,
            "bfloat16 sums": lambda x, t: c.cross_entropy(x, t, narrow),
            "next label": lambda x, t: c.cross_entropy(x, (t + 1) % COLUMNS, lanes),
            "no maximum": lambda x, t: (lanes(x.exp()).log().squeeze(-1) - x.gather(-1, t[:, None]).squeeze(-1)).mean(),
        },
    ),
    "cross_entropy_gradient": Operator(
        function=lambda x, t: (torch.softmax(x, -1) - (torch.arange(COLUMNS) == t).to(x.dtype)) * (1 / ROWS),
        shapes=(X, ("i96", (ROWS, 1))),
        right=over_sums(c.onehot_gradient),
        wrong={
            "no one-hot": lambda x, t: c.softmax(x) * (1 / ROWS),
            "not divided": lambda x, t: c.onehot_gradient(x, t) * ROWS,
            "bfloat16 sum": lambda x, t: c.onehot_gradient(x, t, narrow),
        },
    ),
    "layer_norm": Operator(
        function=lambda x, w, b: F.layer_norm(x, W, w, b),
        shapes=(X, W, W),
        right=c.NORM_RIGHT,
        wrong=c.NORM_WRONG,
        fine=c.NORM_FINE,
    ),
    "silu_layer_norm": Operator(
        function=lambda x, w, b: F.layer_norm(F.silu(x), W, w, b),
        shapes=(X, W, W),
        right=c.over_silu(c.NORM_RIGHT),
        wrong=c.over_silu(c.NORM_WRONG),
        fine=c.over_silu(c.NORM_FINE),
    ),
    "layer_norm_backward": Operator(
        function=lambda g, x, w: c.layer_norm_backward(g, x, w, lambda v: v.sum(-1, keepdim=True)),
        shapes=(X, X, W),
        right=over_sums(c.layer_norm_backward),
        wrong={
            "no mean of the gradient": lambda g, x, w: c.layer_norm_backward(g, x, w, drop=1),
            "no projection": lambda g, x, w: c.layer_norm_backward(g, x, w, drop=2),
            "no eps": lambda g, x, w: c.layer_norm_backward(g, x, w, eps=0.0),
            "bfloat16 sums": lambda g, x, w: c.layer_norm_backward(g, x, w, narrow),
        },
    ),
    "rms_norm": Operator(
        function=lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
        shapes=(X, W),
        right={**over_sums(c.rms_norm), "by a quotient": lambda x, w: x / torch.sqrt(lanes(x * x) / COLUMNS + 1e-6) * w},
        wrong={
            "no eps": lambda x, w: c.rms_norm(x, w, eps=0.0),
            "eps of 1e-5": lambda x, w: c.rms_norm(x, w, eps=1e-5),
            "bfloat16 sums": lambda x, w: c.rms_norm(x, w, narrow),
            "no weight": lambda x, w: c.rms_norm(x, w * 0 + 1),
            "sum for mean": lambda x, w: x * torch.rsqrt(lanes(x * x) + 1e-6) * w,
        },
    ),
    "batch_norm": Operator(
        function=lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        shapes=(IMAGE, (6,), (6,)),
        right=over_sums(c.batch_norm),
        wrong={
            "unbiased variance": lambda x, w, b: c.batch_norm(x, w, b, unbiased=1),
            "bfloat16 sums": lambda x, w, b: c.batch_norm(x, w, b, narrow),
        },
    ),
    "gelu": Operator(
        function=F.gelu,
        shapes=(X,),
        right={"by the normal distribution": gelu, "the other order": lambda x: 0.5 * (x * (1 + torch.erf(x * 0.70710678)))},
        wrong={
            "tanh for erf": gelu_tanh,
            "cut off at -5": lambda x: torch.where(x < -2.5, 0.0, F.gelu(x)),
            "1.702 x": lambda x: x * torch.sigmoid(1.702 * x),
        },
        fine={"short erf": lambda x: 0.5 * x * (1 + erf_short(x * 0.70710678))},
    ),
    "gelu_tanh": Operator(
        function=lambda x: F.gelu(x, approximate="tanh"),
        shapes=(X,),
        right={"by tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))},
        wrong={"erf for tanh": gelu, "0.044": lambda x: gelu_tanh(x, 0.044), "no cube": lambda x: gelu_tanh(x, 0.0)},
    ),
    "silu_mul": Operator(
        function=lambda a, b: F.silu(a) * b,
        shapes=(X, X),
        right={
            "by a quotient": lambda a, b: a / (1 + torch.exp(-a)) * b,
            "the other order": lambda a, b: a * b * torch.sigmoid(a),
        },
        wrong={
            "relu": lambda a, b: F.relu(a) * b,
            "swapped": lambda a, b: F.silu(b) * a,
            "zero below -15": lambda a, b: torch.where(a < -15, 0.0, F.silu(a)) * b,
        },
        fine={"short exp": lambda a, b: a / (1 + c.short_exp(-a)) * b},
    ),
    "sum": Operator(
        function=lambda x: x.sum(-1),
        shapes=(X,),
        right=over_sums(lambda x, total: total(x).squeeze(-1)),
        wrong={
            "bfloat16 sum": lambda x: narrow(x).squeeze(-1),
            "last column left out": lambda x: x[:, :-1].sum(-1),
            "first twice": lambda x: x.sum(-1) + x[:, 0],
        },
    ),
    "column_mean": Operator(
        function=lambda x: x.mean(0),
        shapes=(X,),
        right=over_sums(lambda x, total: total(x.t()).squeeze(-1) / ROWS),
        wrong={"of n - 1": lambda x: x.sum(0) / (ROWS - 1), "bfloat16 sum": lambda x: narrow(x.t()).squeeze(-1) / ROWS},
    ),
    "variance": Operator(
        function=lambda x: x.var(-1),
        shapes=(X,),
        right=over_sums(var),
        wrong={
            "biased": lambda x: var(x, lanes, 0),
            "bfloat16 sums": lambda x: var(x, narrow),
        },
        fine={"E[x^2] - E[x]^2": lambda x: (lanes(x * x) - lanes(x) ** 2 / COLUMNS).squeeze(-1) / (COLUMNS - 1)},
    ),
    "cumsum": Operator(
        function=lambda x: x.cumsum(-1),
        shapes=(X,),
        right={"sequential": running, "blocked": blocked},
        wrong={
            "exclusive": lambda x: running(x) - x,
            "restarts at a tile": lambda x: torch.cat([running(t) for t in x.split(64, 1)], 1),
        },
    ),
    "matmul": Operator(
        function=torch.mm,
        shapes=((ROWS, 40), (40, 24)),
        right=over_sums(matmul),
        wrong={
            "bfloat16 sum": lambda a, b: matmul(a, b, narrow),
            "last k left out": lambda a, b: a[:, :-1] @ b[:-1],
            "tf32 inputs": lambda a, b: cut(a) @ cut(b),
        },
    ),
    "attention": Operator(
        function=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        shapes=(HEADS, HEADS, HEADS),
        right={**over_sums(c.attention), "flash": c.flash},
        wrong={
            "not causal": lambda q, k, v: c.attention(q, k, v, causal=False),
            "diagonal left out below": lambda q, k, v: c.attention(q, k, v, late=1),
            "another scale": lambda q, k, v: c.attention(q, k, v, scale=0.24),
            "bfloat16 sum": lambda q, k, v: c.attention(q, k, v, narrow),
        },
    ),
    "adamw": Operator(
        function=lambda p, g, m, v: c.adamw(p, g, m, v.abs()),
        shapes=(X, X, X, X),
        right={"a quotient moved": lambda p, g, m, v: moved_quotient(p, g, m, v.abs())},
        wrong={
            "no decay": lambda p, g, m, v: c.adamw(p, g, m, v.abs(), decay=0.0),
            "no eps": lambda p, g, m, v: c.adamw(p, g, m, v.abs(), eps=0.0),
            "beta of 0.99": lambda p, g, m, v: c.adamw(p, g, m, v.abs(), beta=0.99),
        },
    ),
    "rotary": Operator(
        function=rotary,
        shapes=((4, ROWS, 16), (ROWS, 16), (ROWS, 16)),
        right={"fused": lambda q, cos, sin: torch.addcmul(q * cos, torch.cat((-q[..., 8:], q[..., :8]), -1), sin)},
        wrong={
            "no minus": lambda q, cos, sin: q * cos + torch.cat((q[..., 8:], q[..., :8]), -1) * sin,
            "swapped": lambda q, cos, sin: rotary(q, sin, cos),
        },
    ),
    "transpose": Operator(
        function=lambda x: x.t().contiguous(),
        shapes=(X,),
        wrong={
            "not transposed": lambda x: x.reshape(COLUMNS, ROWS).clone(),
            "signs of zero lost": lambda x: (x + 0.0).t().contiguous(),
        },
        defined=True,
    ),
    "embedding": Operator(
        function=lambda table, at: F.embedding(at, table) * 8.0,
        shapes=((40, 16), ("i40", (ROWS,))),
        right={"scaled first": lambda table, at: (table * 8.0)[at]},
        wrong={
            "next row": lambda table, at: table[(at + 1) % 40] * 8,
            "last row clamped": lambda table, at: table[at.clamp(max=38)] * 8,
        },
    ),
    "add_relu": Operator(
        function=lambda a, b: F.relu(a + b),
        shapes=(X, X),
        wrong={
            "leaky": lambda a, b: F.leaky_relu(a + b, 1e-3),
            "no relu": lambda a, b: a + b,
        },
        defined=True,
    ),
}


def cut(x: Tensor) -> Tensor:
    """The ten bits of mantissa that TF32 keeps."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32) if x.dtype == torch.float32 else x


def moved_quotient(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Any:
    m = 0.9 * m + 0.1 * g
    v = v + (g * g - v) * 0.001
    return p - p * 0.02 - (1e-3 / 0.65) * m / (v.sqrt() * 10.0 + 1e-4), m, v
