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
    x = _Strict([extreme.args[0]], _ARITHMETIC)
    sums = [
        r for r in nest.reductions if r.data[0] == "sum" and reduced_atoms(r) == reduced_atoms(extreme) and x.reaches(r.args[0])
    ]
    told = _Strict(sums, _ARITHMETIC | _VIEWS)  # in whatever view: a row's sum is only read by its own row
    results = [*(s.val for s in nest.stores), *(a.args[0] for a in nest.accumulations), *(set(exported) & set(nest.reductions))]
    known: dict[int, bool] = {}

    def same(val: Val) -> bool:
        if val.id not in known:
            known[val.id] = val is not extreme and (told.reaches(val) or all(same(arg) for arg in val.args))
        return known[val.id]

    return all(same(result) for result in results)


class _Strict:
    """What is NaN wherever one of `sources` is, by operators and views of `through` alone."""

    def __init__(self, sources: Collection[Val], through: Collection[str]) -> None:
        self._through = through
        self._known = {source.id: True for source in sources}

    def reaches(self, val: Val) -> bool:
        if val.id not in self._known:
            operator = val.data if val.kind == "point" else val.kind
            args = val.args if operator in self._through else ()
            self._known[val.id] = any(self.reaches(arg) for arg in args if val.kind != "point" or _side_by_side(arg, val))
        return self._known[val.id]


def _side_by_side(arg: Val, val: Val) -> bool:
    """Whether each element of `val` is made from the one of `arg` at its own place in the loops (or the only one along a
    dimension), as those of x.T + x are not."""
    above = val.dims[len(val.dims) - len(arg.dims) :]
    return all(size.is_one or mine == its for size, mine, its in zip(arg.shape, arg.dims, above, strict=True))
