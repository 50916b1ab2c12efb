"""Attention as a workload spells it (`attention.FORWARD`, `attention.BACKWARD`: the CPU's operators), on any device.

`forward` and `backward` are right on each device, for eager in the place of a kernel; `timed_forward` and `timed_backward` are
what the device would run, for baselines.
"""

from __future__ import annotations

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

Pair = tuple[torch.Tensor, torch.Tensor]
Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

_PADDED_TO = 32
"""Queries of the log-sum-exp that the memory-efficient operator works with, rounded up to a multiple of so many."""


def timed_forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> Pair:
    """The output, by the operator that the device picks, and zeros for the log-sum-exp (batch, heads, queries; float32), which
    every device's operator gives for nothing."""
    grouped = query.shape[1] != key.shape[1]
    out = scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, enable_gqa=grouped
    )
    return out, torch.zeros(query.shape[:3], dtype=torch.float32, device=query.device)


def forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> Pair:
    """The output, and the log-sum-exp (batch, heads, queries; float32)."""
    out, _ = timed_forward(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
    many = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = (query.float() @ many.float().mT) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, float("-inf")) if attn_mask.dtype == torch.bool else scores + attn_mask
    return out, scores.logsumexp(-1)


def backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> Triple:
    """The gradients of query, key and value; the forward is done again for them."""
    with torch.enable_grad():
        q, k, v = (x.detach().requires_grad_() for x in (query, key, value))
        again, _ = timed_forward(q, k, v, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
        grad_query, grad_key, grad_value = torch.autograd.grad(again, (q, k, v), grad_out)
    return grad_query, grad_key, grad_value


def timed_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> Triple:
    """The gradients of query, key and value by the device's operator: flash in 16 bits without a mask, else the memory-efficient
    one. Raises RuntimeError where the device has neither for these tensors."""
    seed = torch.zeros((), dtype=torch.int64, device=query.device)  # of a dropout that there is none of
    if query.element_size() == 2 and attn_mask is None:
        longest = query.shape[2], key.shape[2]
        flash = torch.ops.aten._scaled_dot_product_flash_attention_backward.default
        found = flash(
            grad_out, query, key, value, out, logsumexp, None, None, *longest, dropout_p, is_causal, seed, seed, scale=scale
        )
    else:
        more = -query.shape[2] % _PADDED_TO
        sums = pad(logsumexp, (0, more), value=float("inf"))
        mask = None if attn_mask is None else attn_mask.expand(*query.shape[:3], key.shape[2])
        wanted = [True, True, True, False]
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention_backward.default
        found = efficient(grad_out, query, key, value, mask, out, sums, seed, seed, dropout_p, wanted, is_causal, scale=scale)
    return found[0], found[1], found[2]
