"""How the dimensions of a call's operands and results relate, operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from accelopt_compile.attention import BACKWARD, FORWARD
from accelopt_compile.family import PRODUCTS
from accelopt_compile.nodes import is_pointwise
from accelopt_compile.terms import INPUT, Out, Size, Term, outs_of, unviewed

if TYPE_CHECKING:
    from accelopt_compile.dims import Dims

Slot = tuple[Out, int]
"""A dimension of a value."""

Relation = Callable[["Dims", Term], None]


def size_at(slot: Slot) -> Size:
    """The size of a dimension, as the graph has it."""
    out, dim = slot
    return out.shape[dim]


def relation_of(term: Term) -> Relation:
    """The relation of a call: its own; or broadcasting if it is pointwise; else nothing is free."""
    if term.op == INPUT:
        return _nothing
    return RELATIONS.get(term.op) or (broadcast if is_pointwise(term.op) else pin_all)


def pin_all(dims: Dims, term: Term) -> None:
    """An operator of which nothing is known."""
    for out in (*outs_of(term), *(Out(term, i) for i in range(len(term.outs)))):
        for d in range(len(out.shape)):
            dims.pin((out, d))


def broadcast(dims: Dims, term: Term) -> None:
    """Pointwise: trailing dimensions are equal, or 1 against something larger."""
    for index in range(len(term.outs)):
        result = Out(term, index)
        for operand in outs_of(term):
            _align(dims, operand, result)


def _align(dims: Dims, operand: Out, result: Out) -> None:
    shift = len(result.shape) - len(operand.shape)
    for d in range(len(operand.shape)):
        a, b = (operand, d), (result, d + shift)
        if dims.hint_of(a) == 1 and dims.hint_of(b) != 1:
            dims.pin(a)
        else:
            dims.unify(a, b)


def _keep(dims: Dims, x: Out, y: Out, pairs: Iterable[tuple[int, int]]) -> None:
    for i, j in pairs:
        dims.unify((x, i), (y, j))


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
            _keep(dims, x, y, ((d, d) for d in kept))
            for d in reduced:
                dims.pin((y, d))
        else:
            _keep(dims, x, y, ((d, i) for i, d in enumerate(kept)))


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
    _keep(dims, x, Out(term), ((d, i) for i, d in enumerate(order)))


def _select(dims: Dims, term: Term) -> None:
    x, dim = term.args[:2]
    dims.pin((x, dim))
    _keep(dims, x, Out(term), ((d, d - (d > dim)) for d in range(len(x.shape)) if d != dim))


def _embedding(dims: Dims, term: Term) -> None:
    """Rows of a table, of which there may be any number: one kernel serves all vocabularies, and is proven on a small one (a
    table of 32000 rows of 2048 made a proof take 85 s, more than any budget)."""
    weight, indices = term.args[:2]
    y = Out(term)
    if not _given(indices):
        dims.pin((weight, 0))
    dims.unify((weight, 1), (y, len(y.shape) - 1))
    _keep(dims, indices, y, ((d, d) for d in range(len(indices.shape))))


def _given(positions: Out) -> bool:
    """Whether positions are an input's, whose range is known for a table of any size; computed ones (an argmin over as many
    columns as the table has rows) may be right for this size alone."""
    while (positions := unviewed(positions)).term.op.startswith("prims.convert_element_type."):
        positions = positions.term.args[0]
    return positions.term.op == INPUT


def _gather(dims: Dims, term: Term) -> None:
    """gather, scatter: the tensors agree where their sizes do, apart from the indexed dimension."""
    x, dim, *others = term.args
    y = Out(term)
    for other in (*(o for o in others if isinstance(o, Out)), y):
        for d in range(len(x.shape)):
            a, b = (x, d), (other, d)
            if len(other.shape) == len(x.shape) and d != dim and dims.hint_of(a) == dims.hint_of(b):
                dims.unify(a, b)
            elif d < len(other.shape):
                dims.pin(a)
                dims.pin(b)
    if term.op.startswith("aten.gather"):
        index = others[0]
        dims.unify((index, dim), (y, dim))


def _index(dims: Dims, term: Term) -> None:
    """x[i, j, :]: indices side by side broadcast to one group of dimensions; with gaps between them all is pinned. A single
    one looks up rows of a table, of which there may be any number."""
    x, indices = term.args[:2]
    y = Out(term)
    used = [d for d, i in enumerate(indices) if i is not None]
    rank = max(len(indices[d].shape) for d in used)
    if used != list(range(used[0], used[-1] + 1)):
        for out in (x, y, *(indices[d] for d in used)):
            for d in range(len(out.shape)):
                dims.pin((out, d))
        return
    for d in used:
        if len(used) > 1 or not _given(indices[d]):
            dims.pin((x, d))
        for k in range(len(indices[d].shape)):
            a, b = (indices[d], k), (y, used[0] + rank - len(indices[d].shape) + k)
            if dims.hint_of(a) == 1 and dims.hint_of(b) != 1:
                dims.pin(a)
            else:
                dims.unify(a, b)
    _keep(dims, x, y, ((d, d) for d in range(used[0])))
    _keep(dims, x, y, ((d, d + rank - len(used)) for d in range(used[-1] + 1, len(x.shape))))


def _attention(dims: Dims, term: Term) -> None:
    q, k, v = term.args[:3]
    _attention_operands(dims, term, q, k, v, Out(term, 0), Out(term, 1))


def _attention_backward(dims: Dims, term: Term) -> None:
    grad, q, k, v, out, lse = term.args[:6]
    _attention_operands(dims, term, q, k, v, out, lse)
    for x, y in ((q, grad), (q, Out(term, 0)), (k, Out(term, 1)), (v, Out(term, 2))):
        _keep(dims, x, y, ((d, d) for d in range(4)))


def _attention_operands(dims: Dims, term: Term, q: Out, k: Out, v: Out, out: Out, lse: Out) -> None:
    for other in (k, v, out):
        dims.unify((q, 0), (other, 0))
        if dims.hint_of((other, 1)) == dims.hint_of((q, 1)):
            dims.unify((q, 1), (other, 1))
        else:  # several query heads share one of keys and values
            dims.pin((q, 1))
            dims.pin((other, 1))
    dims.unify((q, 2), (out, 2))
    dims.unify((k, 2), (v, 2))
    dims.unify((q, 3), (k, 3))
    dims.unify((v, 3), (out, 3))
    dims.pin((q, 3))
    dims.pin((v, 3))
    if len(lse.shape) == 3:
        _keep(dims, q, lse, ((d, d) for d in range(3)))
    mask = dict(term.kwargs).get("attn_mask")
    if mask is not None:
        for d in range(-len(mask.shape), 0):
            a = (mask, d + len(mask.shape))
            b = (k, 2) if d == -1 else (q, 4 + d)
            if dims.hint_of(a) == 1 and dims.hint_of(b) != 1:
                dims.pin(a)
            else:
                dims.unify(a, b)


def _gemm(dims: Dims, term: Term) -> None:
    """mm, addmm, bmm, baddbmm: rows and batches are free, what is summed over is not, nor are the columns of a weight."""
    *bias, a, b = term.args[:3] if "add" in term.op else term.args[:2]
    y, rank = Out(term), len(a.shape)
    if rank == 3:
        dims.unify((a, 0), (b, 0))
        dims.unify((a, 0), (y, 0))
    dims.unify((a, rank - 2), (y, rank - 2))
    dims.unify((b, rank - 1), (y, rank - 1))
    dims.unify((a, rank - 1), (b, rank - 2))
    dims.pin((a, rank - 1))
    if rank == 2:
        dims.pin((b, 1))
    for operand in bias:
        _align(dims, operand, y)


def _reshape(dims: Dims, term: Term) -> None:
    x, y = term.args[0], Out(term)
    left, right = [(x, d) for d in range(len(x.shape))], [(y, d) for d in range(len(y.shape))]
    if any(dims.hint_of(s) == 0 for s in (*left, *right)):
        for slot in (*left, *right):
            dims.pin(slot)
        return
    while left and right:
        a, b = _next_group(dims, left, right)
        if len(a) == 1 and len(b) == 1:
            dims.unify(a[0], b[0])
        elif len(b) == 1:
            dims.group(b[0], a)
        elif len(a) == 1:
            dims.group(a[0], b)
        else:
            for slot in (*a, *b):
                dims.pin(slot)
    for slot in (*left, *right):
        dims.pin(slot)  # ones that are left over


def _next_group(dims: Dims, left: list[Slot], right: list[Slot]) -> tuple[list[Slot], list[Slot]]:
    """Take from both fronts the fewest dimensions with equal products: of numbers and, if symbolic, of expressions."""
    a, b = [left.pop(0)], [right.pop(0)]
    product_a, product_b = size_at(a[0]), size_at(b[0])
    while product_a != product_b and (left or right):
        hint_a, hint_b = _product(dims, a), _product(dims, b)
        if left and (hint_a < hint_b or not right or (hint_a == hint_b and len(a) <= len(b))):
            a.append(left.pop(0))
            product_a = product_a * size_at(a[-1])
        elif right:
            b.append(right.pop(0))
            product_b = product_b * size_at(b[-1])
        else:
            break
    return a, b


def _product(dims: Dims, slots: list[Slot]) -> int:
    total = 1
    for slot in slots:
        total *= dims.hint_of(slot)
    return total


def _nothing(dims: Dims, term: Term) -> None:
    """A constant: its sizes follow from its users."""


RELATIONS: dict[str, Relation] = {
    "aten.reshape.default": _reshape,
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
    "aten.embedding.default": _embedding,
    "aten.gather.default": _gather,
    "aten.scatter.value": _gather,
    "aten.scatter.src": _gather,
    "aten.index.Tensor": _index,
    "aten.full.default": _nothing,
    "prims.iota.default": _nothing,
    f"{FORWARD}.default": _attention,
    f"{BACKWARD}.default": _attention_backward,
    **{f"aten.{name}.default": _gemm for name in PRODUCTS},
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
