"""How dimensions relate in a reshape: groups of them, side by side, have equal products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelopt_compile.alignment import Slot, size_at
from accelopt_compile.terms import Out, Term

if TYPE_CHECKING:
    from accelopt_compile.dims import Dims


def reshape(dims: Dims, term: Term) -> None:
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
