"""What relations are made of: sizes that must be equal, and sizes that a kernel is built around."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from accelopt_compile.terms import Out, Size, Term, outs_of

if TYPE_CHECKING:
    from accelopt_compile.dims import Dims

Slot = tuple[Out, int]
"""A dimension of a value."""


def size_at(slot: Slot) -> Size:
    """The size of a dimension, as the graph has it."""
    out, dim = slot
    return out.shape[dim]


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
            align(dims, operand, result)


def align(dims: Dims, operand: Out, result: Out) -> None:
    shift = len(result.shape) - len(operand.shape)
    for d in range(len(operand.shape)):
        a, b = (operand, d), (result, d + shift)
        if dims.hint_of(a) == 1 and dims.hint_of(b) != 1:
            dims.pin(a)
        else:
            dims.unify(a, b)


def keep(dims: Dims, x: Out, y: Out, pairs: Iterable[tuple[int, int]]) -> None:
    for i, j in pairs:
        dims.unify((x, i), (y, j))
