"""Functions of each family of operators, with shapes that no block divides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

R = torch.randn


def rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def rotary(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    q = q.view(2, 5, 3, 16).transpose(1, 2)
    turned = torch.cat([-q[..., 8:], q[..., :8]], -1)
    return q * cos + turned * sin


def by_sums_in_another_order(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of the second result are those of the first, counted along the other dimension."""
    e = x - x.mean(-1, keepdim=True)
    return e, (e * e).transpose(0, 1).sum(-1)[..., None] * w


CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "softmax": (lambda x: torch.softmax(x, -1), ((5, 37),)),
    "softmax over an outer dimension": (lambda x: torch.softmax(x, 1), ((3, 17, 21),)),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (37,), w, b), ((2, 5, 37), (37,), (37,))),
    "residual and rms norm": (lambda x, y, w: (x + y, rms(x + y, w)), ((2, 5, 37), (2, 5, 37), (37,))),
    "batch norm in training": (lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, True)), ((3, 8, 5, 7), (8,), (8,))),
    "group norm": (lambda x, w, b: F.group_norm(x, 4, w, b), ((2, 12, 5, 7), (12,), (12,))),
    "scaled by another row's sum": (lambda x, y: y * x.sum(-1).t()[:, :, None], ((9, 9, 37), (9, 9, 21))),
    "scaled by sums in another order": (by_sums_in_another_order, ((3, 5, 37), (5, 3, 41))),
    "first row of a layer norm": (lambda x, w, b: F.layer_norm(x, (37,), w, b)[:, 0] * 2, ((3, 5, 37), (37,), (37,))),
    "pooled batch norm": (
        lambda x, y, w, b: F.relu(F.batch_norm(x, None, None, w, b, True) + y).mean((2, 3)),
        ((5, 8, 3, 7), (5, 8, 3, 7), (8,), (8,)),
    ),
    "swiglu": (lambda a, b: F.silu(a) * b, ((7, 45), (7, 45))),
    "gelu and tanh": (lambda a: F.gelu(a) + torch.tanh(a), ((7, 45),)),
    "rotary": (rotary, ((2, 5, 48), (5, 16), (5, 16))),
    "sum of everything": (lambda x: (x * 2).sum(), ((33, 45),)),
    "mean over rows": (lambda x: x.mean(0), ((33, 45),)),
    "running sum": (lambda x: x.cumsum(-1) * 2, ((5, 83),)),
    "largest and where": (lambda x: x.max(-1), ((5, 83),)),
    "transpose": (lambda x: x.t().contiguous() + 1, ((45, 70),)),
    "against its transpose": (lambda x: (x + x.t()).softmax(-1), ((19, 19),)),
    "one row times a matrix": (lambda x, w, y: F.linear(x, w) + y, ((1, 1, 83), (45, 83), (1, 1, 45))),
    "one row with a bias": (lambda x, w, b: F.gelu(F.linear(x, w, b)), ((1, 83), (45, 83), (45,))),
    "a row times a matrix that lies by rows": (lambda x, w, b: torch.addmm(b, x, w, alpha=2.0), ((1, 83), (83, 45), (45,))),
    "batched rows": (lambda x, w: torch.bmm(x, w) * 0.5, ((3, 1, 37), (3, 37, 21))),
    "concatenation along rows": (lambda x, y: torch.cat([x, y], 1).softmax(-1), ((2, 3, 21), (2, 4, 21))),
}


def gradient(scores: torch.Tensor, labels: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """A cross-entropy's, as Inductor writes it."""
    hits = torch.where(torch.arange(21) == labels[:, None], -1.0, 0.0) * g
    return hits - scores.exp() * hits.sum(-1, keepdim=True)
