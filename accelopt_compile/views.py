"""Views, copies and conversions in one spelling. Each keeps the value exactly.

Views that only regroup become "aten.reshape.default", conversions "prims.convert_element_type.default", copies vanish; negative
dimensions and open slice ends are resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from accelopt_compile.terms import Builder, Out, Shape, Size, Spec

_TO_THE_END = 2**62

Call = dict[str, Any]
"""Arguments by name, with defaults filled in, values as `Out`."""

Rule = Callable[[Builder, Call, tuple[Spec, ...]], "Out | tuple[Out | None, ...] | None"]


def size_of(size: int | torch.SymInt) -> Size:
    """An integer, or the sympy expression of a symbolic size."""
    return size if isinstance(size, int) else _plain(size.node.expr)


def _plain(expr: Any) -> Size:
    return expr if isinstance(expr, int) or not expr.is_Integer else int(expr)


def spec_of(value: torch.Tensor) -> Spec:
    """Dtype and shape of a fake tensor."""
    return Spec(value.dtype, tuple(size_of(s) for s in value.shape))


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
    start, end = (bound(v, size, fallback) for v, fallback in ((start, 0), (end, size)))
    if start == 0 and end == size and step == 1:
        return x
    length = _plain(end - start if step == 1 else -((start - end) // step))
    if isinstance(length, int):
        length = max(length, 0)
    shape = (*x.shape[:dim], length, *x.shape[dim + 1 :])
    return b.one("aten.slice.Tensor", (x, dim, start, end, *((step,) if step != 1 else ())), x.dtype, shape)


def bound(value: Size, size: Size, fallback: Size) -> Size:
    """An end of a slice, from the front and inside where that can be told."""
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


VIEWS: dict[str, Rule] = {
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
}
"""By the name of the operator's packet."""
