"""How dimensions relate in matrix products and in attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelopt_compile.alignment import align, keep
from accelopt_compile.terms import Out, Term

if TYPE_CHECKING:
    from accelopt_compile.dims import Dims


def matrix_product(dims: Dims, term: Term) -> None:
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
        align(dims, operand, y)


def attention(dims: Dims, term: Term) -> None:
    q, k, v = term.args[:3]
    _attention_operands(dims, term, q, k, v, Out(term, 0), Out(term, 1))


def attention_backward(dims: Dims, term: Term) -> None:
    grad, q, k, v, out, lse = term.args[:6]
    _attention_operands(dims, term, q, k, v, out, lse)
    for x, y in ((q, grad), (q, Out(term, 0)), (k, Out(term, 1)), (v, Out(term, 2))):
        keep(dims, x, y, ((d, d) for d in range(4)))


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
        keep(dims, q, lse, ((d, d) for d in range(3)))
    mask = dict(term.kwargs).get("attn_mask")
    if mask is not None:
        for d in range(-len(mask.shape), 0):
            a = (mask, d + len(mask.shape))
            b = (k, 2) if d == -1 else (q, 4 + d)
            if dims.hint_of(a) == 1 and dims.hint_of(b) != 1:
                dims.pin(a)
            else:
                dims.unify(a, b)
