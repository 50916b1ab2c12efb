"""Where the largest of a row may pass over NaN, because a sum over the row tells of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from accelopt_backends.loops.nests import Nest, reduced_atoms
from accelopt_backends.loops.values import Val

_ARITHMETIC = frozenset({"id", "add", "sub", "mul", "div", "fma", "neg", "square", "reciprocal", "exp", "log"})
"""Operators that give NaN wherever one of their operands is NaN."""

_VIEWS = frozenset({"expand", "reshape", "permute"})


def told_by_a_sum(nest: Nest, extreme: Val, exported: Iterable[Val]) -> bool:
    """Whether the nest's results are the same if `extreme`, the largest or smallest x of each row, passes over NaN: all that it
    reaches of them goes through arithmetic with a sum over the same row of what a NaN of x makes NaN. Softmax is so, by the
    sum of e**(x - largest); a largest element that is a result is not. `exported` are the reductions that later nests read."""
    x = extreme.args[0]
    sums = [
        red
        for red in nest.reductions
        if red.data[0] == "sum" and reduced_atoms(red) == reduced_atoms(extreme) and _strict(red.args[0], [x], _ARITHMETIC)
    ]
    results = [*(s.val for s in nest.stores), *(a.args[0] for a in nest.accumulations), *(set(exported) & set(nest.reductions))]
    known: dict[int, bool] = {}

    def same(val: Val) -> bool:
        if val.id not in known:
            told = val is not extreme and (_strict(val, sums, _ARITHMETIC | _VIEWS) or all(same(arg) for arg in val.args))
            known[val.id] = told
        return known[val.id]

    return all(same(result) for result in results)


def _strict(val: Val, sources: Collection[Val], through: Collection[str]) -> bool:
    """Whether `val` is NaN wherever one of `sources` is, by operators and views of `through` alone."""
    if any(val is source for source in sources):
        return True
    operator = val.data if val.kind == "point" else val.kind
    return operator in through and any(_strict(arg, sources, through) for arg in val.args)
