"""How the dimensions of a call's operands and results relate, operator by operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from accelopt_compile.alignment import broadcast, keep, pin_all
from accelopt_compile.attention import BACKWARD, FORWARD
from accelopt_compile.family import PRODUCTS
from accelopt_compile.index_relations import embedding, gather, index_rows
from accelopt_compile.kinds import is_pointwise
from accelopt_compile.product_relations import attention, attention_backward, matrix_product
from accelopt_compile.regrouping import reshape
from accelopt_compile.terms import INPUT, Out, Term

if TYPE_CHECKING:
    from accelopt_compile.dims import Dims

Relation = Callable[["Dims", Term], None]


def relation_of(term: Term) -> Relation:
    """The relation of a call: its own; or broadcasting if it is pointwise; else nothing is free."""
    if term.op == INPUT:
        return _nothing
    return RELATIONS.get(term.op) or (broadcast if is_pointwise(term.op) else pin_all)


def _reduction(dims: Dims, term: Term) -> None:
    x = term.args[0]
    arg = term.args[1] if len(term.args) > 1 and isinstance(term.args[1], tuple | int) else None
    rank = len(x.shape)
    reduced = set(range(rank)) if arg is None or isinstance(arg, bool) else set(arg if isinstance(arg, tuple) else (arg,))
    for d in reduced:
        dims.pin((x, d))
    for index in range(len(term.outs)):
        y = Out(term, index)
        kept = [d for d in range(rank) if d not in reduced]
        if len(y.shape) == rank:
            keep(dims, x, y, ((d, d) for d in kept))
            for d in reduced:
                dims.pin((y, d))
        else:
            keep(dims, x, y, ((d, i) for i, d in enumerate(kept)))


def _along(dims: Dims, term: Term) -> None:
    """cumsum, sort, topk, flip, cat, pad, slice: pinned along a dimension, equal elsewhere."""
    operands = term.args[0] if isinstance(term.args[0], tuple) else (term.args[0],)
    for index in range(len(term.outs)):
        y = Out(term, index)
        for x in operands:
            for d in range(len(x.shape)):
                if len(x.shape) == len(y.shape) and d not in _moving(term, x):
                    dims.unify((x, d), (y, d))
                else:
                    dims.pin((x, d))
                    if d < len(y.shape):
                        dims.pin((y, d))


def _moving(term: Term, x: Out) -> set[int]:
    rank = len(x.shape)
    if term.op.startswith("aten.constant_pad_nd"):
        pad = term.args[1]
        return {rank - 1 - i // 2 for i, amount in enumerate(pad) if amount != 0}
    named = dict(term.kwargs).get("dim")
    dims = (
        [named]
        if isinstance(named, int)
        else [a for a in term.args[1:] if isinstance(a, int | tuple) and not isinstance(a, bool)]
    )
    at = 1 if term.op.startswith("aten.topk") else 0
    chosen = dims[at] if len(dims) > at else -1
    return {d % rank for d in (chosen if isinstance(chosen, tuple) else (chosen,))} if rank else set()


def _permute(dims: Dims, term: Term) -> None:
    x, order = term.args[:2]
    keep(dims, x, Out(term), ((d, i) for i, d in enumerate(order)))


def _select(dims: Dims, term: Term) -> None:
    x, dim = term.args[:2]
    dims.pin((x, dim))
    keep(dims, x, Out(term), ((d, d - (d > dim)) for d in range(len(x.shape)) if d != dim))


def _nothing(dims: Dims, term: Term) -> None:
    """A constant: its sizes follow from its users."""


RELATIONS: dict[str, Relation] = {
    "aten.reshape.default": reshape,
    "aten.expand.default": broadcast,
    "aten.permute.default": _permute,
    "aten.select.int": _select,
    "aten.slice.Tensor": _along,
    "aten.cat.default": _along,
    "aten.constant_pad_nd.default": _along,
    "aten.flip.default": _along,
    "aten.cumsum.default": _along,
    "aten.cumprod.default": _along,
    "aten.topk.default": _along,
    "aten.sort.default": _along,
    "aten.sort.stable": _along,
    "aten.embedding.default": embedding,
    "aten.gather.default": gather,
    "aten.scatter.value": gather,
    "aten.scatter.src": gather,
    "aten.index.Tensor": index_rows,
    "aten.full.default": _nothing,
    "prims.iota.default": _nothing,
    f"{FORWARD}.default": attention,
    f"{BACKWARD}.default": attention_backward,
    **{f"aten.{name}.default": matrix_product for name in PRODUCTS},
    **{
        f"aten.{name}": _reduction
        for name in [
            "sum.dim_IntList",
            "sum.default",
            "mean.dim",
            "mean.default",
            "amax.default",
            "amin.default",
            "var.correction",
            "var_mean.correction",
            "std.correction",
            "prod.dim_int",
            "prod.default",
            "any.dim",
            "any.dims",
            "any.default",
            "all.dim",
            "all.dims",
            "all.default",
            "logsumexp.default",
            "argmax.default",
            "argmin.default",
            "max.dim",
            "min.dim",
            "max.default",
            "min.default",
            "aminmax.default",
        ]
    },
}
