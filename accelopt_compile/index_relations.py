"""How dimensions relate where positions choose elements: rows of a table, elements along a dimension, several indices at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelopt_compile.alignment import keep
from accelopt_compile.terms import INPUT, Out, Term, unviewed

if TYPE_CHECKING:
    from accelopt_compile.dims import Dims


def embedding(dims: Dims, term: Term) -> None:
    """Rows of a table, of which there may be any number: one kernel serves all vocabularies, and is proven on a small one (a
    table of 32000 rows of 2048 made a proof take 85 s, more than any budget)."""
    weight, indices = term.args[:2]
    y = Out(term)
    if not _given(indices):
        dims.pin((weight, 0))
    dims.unify((weight, 1), (y, len(y.shape) - 1))
    keep(dims, indices, y, ((d, d) for d in range(len(indices.shape))))


def index_rows(dims: Dims, term: Term) -> None:
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
    keep(dims, x, y, ((d, d) for d in range(used[0])))
    keep(dims, x, y, ((d, d + rank - len(used)) for d in range(used[-1] + 1, len(x.shape))))


def _given(positions: Out) -> bool:
    """Whether positions are an input's, whose range is known for a table of any size; computed ones (an argmin over as many
    columns as the table has rows) may be right for this size alone."""
    while (positions := unviewed(positions)).term.op.startswith("prims.convert_element_type."):
        positions = positions.term.args[0]
    return positions.term.op == INPUT


def gather(dims: Dims, term: Term) -> None:
    """gather, scatter: the tensors agree where their sizes do, apart from the indexed dimension. ATen asks for no more than that
    an index is not larger, so that sizes which were equal once need not be so again."""
    x, dim, *others = term.args
    y = Out(term)
    for other in (*(o for o in others if isinstance(o, Out)), y):
        for d in range(len(x.shape)):
            a, b = (x, d), (other, d)
            if len(other.shape) == len(x.shape) and d != dim and dims.surely_equal(a, b):
                dims.unify(a, b)
            elif d < len(other.shape):
                dims.pin(a)
                dims.pin(b)
    if term.op.startswith("aten.gather"):
        index = others[0]
        dims.unify((index, dim), (y, dim))
