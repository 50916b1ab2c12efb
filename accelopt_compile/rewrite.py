"""One spelling for constants and for calls with arguments that change nothing, beside that of views. Every rule keeps the
value exactly: arguments at their default are dropped, numbers are what ATen rounds them to.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from accelopt_compile.attention import BACKWARD, BACKWARDS, FORWARD, FORWARDS
from accelopt_compile.terms import Builder, Out, Shape, Spec
from accelopt_compile.views import VIEWS, Call, Rule, bound, convert, reshape, slice_

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_SINGLE = (torch.float32, torch.bfloat16, torch.float16)
"""Dtypes whose arithmetic with a Python scalar is done in float32 (ATen's `opmath_type`)."""


def scalar(value: Any, dtype: torch.dtype) -> Any:
    """The literal for a Python number in arithmetic of `dtype`: what ATen rounds it to (float32 for the short floats),
    written as the shortest decimal that gives that float32. So 1/sqrt(2) is one literal however it was computed."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if dtype.is_floating_point and isinstance(value, int):
        value = float(value)
    if dtype not in _SINGLE or not math.isfinite(value):
        return value
    with np.errstate(over="ignore"):
        single = np.float32(value)
    short = float(str(single))
    return float(single) if abs(short) > _FLOAT32_MAX else short


def held(value: Any, dtype: torch.dtype) -> Any:
    """The number as it is where a 16-bit float holds it, and for any other dtype; else the nearest that the float holds."""
    if dtype not in (torch.bfloat16, torch.float16) or isinstance(value, bool) or not isinstance(value, int | float):
        return value
    nearest = float(torch.tensor(float(value), dtype=dtype))
    return value if nearest == value or math.isnan(nearest) else nearest


def dims_from_front(dim: Any, rank: int) -> Any:
    """Dimensions counted from the front; a list also sorted, an empty one resolved to all."""
    if isinstance(dim, tuple):
        return tuple(sorted(d % rank for d in dim)) if dim else tuple(range(rank))
    if isinstance(dim, int) and not isinstance(dim, bool):
        return dim % rank if rank else 0
    return tuple(range(rank)) if dim is None else dim


def _rule_cat(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    tensors = tuple(t for t in c["tensors"] if t.shape != (0,) or specs[0].shape == (0,))
    if len(tensors) == 1:
        only: Out = tensors[0]
        return only
    return b.one("aten.cat.default", (tensors, c["dim"] % len(specs[0].shape)), specs[0].dtype, specs[0].shape)


# ---------------------------------------------------------------- constants


def full(b: Builder, shape: Shape, value: Any, dtype: torch.dtype) -> Out:
    """A constant tensor: of what its elements hold, where that is less than the number that was asked for."""
    return b.call("aten.full.default", (shape, scalar(held(value, dtype), dtype)), (("dtype", dtype),), (Spec(dtype, shape),))


def _rule_full(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    return full(b, specs[0].shape, c["fill_value"] if "fill_value" in c else c["s"], specs[0].dtype)


def _rule_iota(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    kwargs = (("start", c["start"]), ("step", c["step"]), ("dtype", specs[0].dtype))
    return b.call("prims.iota.default", (specs[0].shape[0],), kwargs, specs)


# ---------------------------------------------------------------- calls with arguments that change nothing


def _rule_embedding(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    return b.one("aten.embedding.default", (c["weight"], c["indices"]), specs[0].dtype, specs[0].shape)


def _rule_attention(b: Builder, c: Call, specs: tuple[Spec, ...]) -> tuple[Out | None, ...]:
    """Whatever the device's operator, the CPU's: its log-sum-exp has (batch, heads, queries)."""
    query = c["query"]
    sums = specs[1] if len(specs[1].shape) == 3 else Spec(torch.float32, query.shape[:3])
    fits = len(specs[1].shape) == 4 or sums.shape[2] == query.shape[2]
    args = (query, c["key"], c["value"], 0.0, c["is_causal"])
    term = b.term(f"{FORWARD}.default", args, _attention_options(c), (specs[0], sums))
    return Out(term), reshape(b, Out(term, 1), specs[1].shape) if fits else None, *(None for _ in specs[2:])


def _rule_attention_backward(b: Builder, c: Call, specs: tuple[Spec, ...]) -> tuple[Out | None, ...]:
    query, sums = c["query"], c["logsumexp"]
    if len(sums.shape) == 4:
        sums = reshape(b, sums, query.shape[:3])
    elif sums.shape[2] != query.shape[2]:
        sums = slice_(b, sums, 2, 0, query.shape[2], 1)
    grad = c["grad_out"] if "grad_out" in c else c["grad_out_"]
    args = (grad, query, c["key"], c["value"], c["out"], sums, 0.0, c["is_causal"])
    term = b.term(f"{BACKWARD}.default", args, _attention_options(c), specs[:3])
    return *(Out(term, i) for i in range(3)), *(None for _ in specs[3:])


def _attention_options(c: Call) -> list[tuple[str, Any]]:
    """Mask and scale, where they are no defaults."""
    head, scale = c["query"].shape[-1], c["scale"]
    if scale is not None and isinstance(head, int) and np.float32(scale) == np.float32(head**-0.5):
        scale = None
    mask = c.get("attn_mask", c.get("attn_bias"))
    return [(n, v) for n, v in (("attn_mask", mask), ("scale", scale)) if v is not None]


def _rule_slice_scatter(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out | None:
    """Writing a slice into a constant tensor is padding with that constant."""
    base, source = c["self"], c["src"]
    if base.term.op != "aten.full.default" or c["step"] != 1:
        return None
    dim, size = c["dim"] % len(base.shape), base.shape[c["dim"]]
    start, end = bound(c["start"], size, 0), bound(c["end"], size, size)
    if not all(isinstance(v, int) for v in (start, end, size)) or end - start != source.shape[dim]:
        return None
    pad = [0, 0] * (len(base.shape) - 1 - dim) + [start, size - end]
    source = convert(b, source, specs[0].dtype)
    return b.call("aten.constant_pad_nd.default", (source, tuple(pad), base.term.args[1]), (), specs)


REWRITE_RULES: dict[str, Rule] = {
    **VIEWS,
    "aten.cat": _rule_cat,
    "aten.slice_scatter": _rule_slice_scatter,
    "aten.full": _rule_full,
    "aten.scalar_tensor": _rule_full,
    "prims.iota": _rule_iota,
    "aten.embedding": _rule_embedding,
    **dict.fromkeys(FORWARDS, _rule_attention),
    **dict.fromkeys(BACKWARDS, _rule_attention_backward),
}
"""By the name of the operator's packet."""
