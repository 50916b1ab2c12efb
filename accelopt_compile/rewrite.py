"""One spelling for views, constants and calls with arguments that change nothing. Every rule keeps the value exactly.

Views that only regroup
become "aten.reshape.default", conversions "prims.convert_element_type.default", copies vanish, negative dimensions and
open slice ends are resolved, arguments at their default are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from accelopt_compile.attention import BACKWARD, BACKWARDS, FORWARD, FORWARDS
from accelopt_compile.terms import Builder, Out, Shape, Size, Spec

_TO_THE_END = 2**62
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_SINGLE = (torch.float32, torch.bfloat16, torch.float16)
"""Dtypes whose arithmetic with a Python scalar is done in float32 (ATen's `opmath_type`)."""

Call = dict[str, Any]
"""Arguments by name, with defaults filled in, values as `Out`."""


def size_of(size: int | torch.SymInt) -> Size:
    """An integer, or the sympy expression of a symbolic size."""
    return size if isinstance(size, int) else _plain(size.node.expr)


def _plain(expr: Any) -> Size:
    return expr if isinstance(expr, int) or not expr.is_Integer else int(expr)


def spec_of(value: torch.Tensor) -> Spec:
    """Dtype and shape of a fake tensor."""
    return Spec(value.dtype, tuple(size_of(s) for s in value.shape))


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


def dims_from_front(dim: Any, rank: int) -> Any:
    """Dimensions counted from the front; a list also sorted, an empty one resolved to all."""
    if isinstance(dim, tuple):
        return tuple(sorted(d % rank for d in dim)) if dim else tuple(range(rank))
    if isinstance(dim, int) and not isinstance(dim, bool):
        return dim % rank if rank else 0
    return tuple(range(rank)) if dim is None else dim


# ---------------------------------------------------------------- views


def reshape(b: Builder, x: Out, shape: Shape) -> Out:
    """A regrouping; two in a row are one, and one to the same shape is none."""
    if x.term.op == "aten.reshape.default":
        x = x.term.args[0]
    return x if x.shape == shape else b.one("aten.reshape.default", (x, shape), x.dtype, shape)


def permute(b: Builder, x: Out, order: Sequence[int]) -> Out:
    """A reordering of dimensions; two in a row are one, the identity is none."""
    if x.term.op == "aten.permute.default":
        inner = x.term.args[1]
        x, order = x.term.args[0], [inner[i] for i in order]
    if list(order) == list(range(len(x.shape))):
        return x
    return b.one("aten.permute.default", (x, tuple(order)), x.dtype, tuple(x.shape[i] for i in order))


def expand(b: Builder, x: Out, shape: Shape) -> Out:
    """A broadcast to `shape`; two in a row are one, one to the same shape is none."""
    if x.term.op == "aten.expand.default":
        x = x.term.args[0]
    return x if x.shape == shape else b.one("aten.expand.default", (x, shape), x.dtype, shape)


def slice_(b: Builder, x: Out, dim: int, start: Size, end: Size, step: int) -> Out:
    """A slice with both ends inside; the whole range is none."""
    size = x.shape[dim]
    start, end = (_bound(v, size, fallback) for v, fallback in ((start, 0), (end, size)))
    if start == 0 and end == size and step == 1:
        return x
    length = _plain(end - start if step == 1 else -((start - end) // step))
    if isinstance(length, int):
        length = max(length, 0)
    shape = (*x.shape[:dim], length, *x.shape[dim + 1 :])
    return b.one("aten.slice.Tensor", (x, dim, start, end, *((step,) if step != 1 else ())), x.dtype, shape)


def _bound(value: Size, size: Size, fallback: Size) -> Size:
    if value is None:
        return fallback
    if isinstance(value, int):
        if value >= _TO_THE_END:
            return size
        if value < 0:
            value = _plain(value + size)
        if isinstance(value, int) and isinstance(size, int):
            return min(max(value, 0), size)
    return value


def select(b: Builder, x: Out, dim: int, index: Size) -> Out:
    """One position along a dimension, which goes away."""
    size = x.shape[dim]
    if isinstance(index, int) and index < 0 and isinstance(size, int):
        index += size
    return b.one("aten.select.int", (x, dim, index), x.dtype, (*x.shape[:dim], *x.shape[dim + 1 :]))


def _rule_reshape(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    return reshape(b, c["self"], specs[0].shape)


def _rule_permute(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    rank = len(c["self"].shape)
    return permute(b, c["self"], [d % rank for d in c["dims"]])


def _rule_transpose(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    order = list(range(len(c["self"].shape)))
    i, j = c.get("dim0", 0) % max(len(order), 1), c.get("dim1", 1) % max(len(order), 1)
    if len(order) >= 2:
        order[i], order[j] = order[j], order[i]
    return permute(b, c["self"], order)


def _rule_expand(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    return expand(b, c["self"], specs[0].shape)


def _rule_slice(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    x = c["self"]
    made = slice_(b, x, c["dim"] % len(x.shape), c["start"], c["end"], c["step"])
    if made.shape == specs[0].shape:
        return made
    # a symbolic length that arithmetic on the ends does not spell as the graph does
    return b.call(made.term.op, made.term.args, (), specs)


def _rule_select(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    return select(b, c["self"], c["dim"] % len(c["self"].shape), c["index"])


def _rule_split(b: Builder, c: Call, specs: tuple[Spec, ...]) -> tuple[Out, ...]:
    x = c["self"]
    dim = c["dim"] % len(x.shape)
    pieces, start = [], 0
    for spec in specs:
        end = _plain(start + spec.shape[dim])
        pieces.append(slice_(b, x, dim, start, end, 1))
        start = end
    return tuple(pieces)


def _rule_unbind(b: Builder, c: Call, specs: tuple[Spec, ...]) -> tuple[Out, ...]:
    x = c["self"]
    return tuple(select(b, x, c["dim"] % len(x.shape), i) for i in range(len(specs)))


def _rule_same(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    out: Out = c["self"] if "self" in c else c["a"]
    return out


def _rule_convert(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    x = c["self"] if "self" in c else c["a"]
    return convert(b, x, specs[0].dtype)


def convert(b: Builder, x: Out, dtype: torch.dtype) -> Out:
    """A conversion; to the same dtype it is none."""
    return x if x.dtype == dtype else b.one("prims.convert_element_type.default", (x, dtype), dtype, x.shape)


def _rule_copy(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    return expand(b, convert(b, c["src"], specs[0].dtype), specs[0].shape)


def _rule_cat(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    tensors = tuple(t for t in c["tensors"] if t.shape != (0,) or specs[0].shape == (0,))
    if len(tensors) == 1:
        only: Out = tensors[0]
        return only
    return b.one("aten.cat.default", (tensors, c["dim"] % len(specs[0].shape)), specs[0].dtype, specs[0].shape)


# ---------------------------------------------------------------- constants


def full(b: Builder, shape: Shape, value: Any, dtype: torch.dtype) -> Out:
    """A constant tensor."""
    return b.call("aten.full.default", (shape, scalar(value, dtype)), (("dtype", dtype),), (Spec(dtype, shape),))


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
    start, end = _bound(c["start"], size, 0), _bound(c["end"], size, size)
    if not all(isinstance(v, int) for v in (start, end, size)) or end - start != source.shape[dim]:
        return None
    pad = [0, 0] * (len(base.shape) - 1 - dim) + [start, size - end]
    return b.call("aten.constant_pad_nd.default", (source, tuple(pad), base.term.args[1]), (), specs)


Rule = Callable[[Builder, Call, tuple[Spec, ...]], "Out | tuple[Out | None, ...] | None"]

VIEW_RULES: dict[str, Rule] = {
    **{f"aten.{n}": _rule_reshape for n in ("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "as_strided")},
    "aten.permute": _rule_permute,
    "aten.transpose": _rule_transpose,
    "aten.t": _rule_transpose,
    "aten.expand": _rule_expand,
    "aten.slice": _rule_slice,
    "aten.select": _rule_select,
    "aten.split": _rule_split,
    "aten.split_with_sizes": _rule_split,
    "aten.unbind": _rule_unbind,
    **{f"aten.{n}": _rule_same for n in ("alias", "detach", "lift_fresh", "clone")},
    "aten._to_copy": _rule_convert,
    "aten.copy": _rule_copy,
    "prims.convert_element_type": _rule_convert,
    "aten.cat": _rule_cat,
    "aten.slice_scatter": _rule_slice_scatter,
    "aten.full": _rule_full,
    "aten.scalar_tensor": _rule_full,
    "prims.iota": _rule_iota,
    "aten.embedding": _rule_embedding,
    **dict.fromkeys(FORWARDS, _rule_attention),
    **dict.fromkeys(BACKWARDS, _rule_attention_backward),
}
