"""Sums of one-hot rows in closed form: of n products only the one at the hit is not zero.

The gradient of a cross-entropy sums `where(iota == label, -1, 0) * g` over the vocabulary. The sum is -g where the label is
inside; 0 * g is added, so that an infinite or undefined g gives what the sum of all products would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accelopt_backends.loops.affine import Mono
from accelopt_backends.loops.values import Graph, Val


@dataclass(frozen=True)
class _Hit:
    """`value` where the position is `at`, times `factors` everywhere; none of them varies along the row."""

    at: Val
    value: Val
    factors: tuple[Val, ...] = ()


def one_hot_sum(g: Graph, x: Val, over: Sequence[int], dtype: str) -> Val | None:
    """The sum of float `x` over its last dimension, that dimension kept with size 1; None where x is no one-hot."""
    rank = len(x.shape)
    if x.lane != "f" or rank == 0 or [d % rank for d in over] != [rank - 1]:
        return None
    size = x.shape[-1]
    hit = _hit(x, size) if size.static is not None and size.coef > 1 else None
    if hit is None:
        return None
    bounds = [g.new("const", (), "i64", data=bound) for bound in (0, size.coef)]
    inside = g.point("and", [g.point("ge", [hit.at, bounds[0]], "b8"), g.point("lt", [hit.at, bounds[1]], "b8")], "b8")
    zero = g.new("const", (), "f32", data=0.0)
    total = g.point("where", [inside, hit.value, zero], dtype)
    others: Val = zero
    for factor in hit.factors:
        total = g.point("mul", [total, factor], dtype)
        others = g.point("mul", [others, factor], dtype)
    total = g.point("add", [total, others], dtype) if hit.factors else total
    kept = [*x.shape[:-1], Mono(1)]
    return total if list(total.shape) == kept else None


def _hit(x: Val, size: Mono) -> _Hit | None:
    if x.kind != "point":
        return None
    if x.data == "id":
        return _hit(x.args[0], size)
    if x.data == "where":
        condition, value, other = (_unexpanded(a) for a in x.args)
        at = _position(condition, size)
        nothing = other.kind == "const" and other.data == 0
        return _Hit(at, value) if at is not None and nothing and _along(value) else None
    if x.data == "mul":
        for one, factor in (x.args, x.args[::-1]):
            found, factor = _hit(one, size), _unexpanded(factor)
            if found is not None and _along(factor):
                return _Hit(found.at, found.value, (*found.factors, factor))
    return None


def _position(condition: Val, size: Mono) -> Val | None:
    """p where `condition` is iota == p, iota running from 0 along the last dimension."""
    if condition.kind != "point" or condition.data != "eq":
        return None
    left, right = condition.args
    for counted, at in ((left, _unexpanded(right)), (right, _unexpanded(left))):
        iota = counted.args[0] if counted.kind == "reshape" else counted
        runs = iota.kind == "iota" and iota.data == (0, 1) and iota.lane == "l"
        if runs and counted.shape[-1:] == (size,) and all(s.is_one for s in counted.shape[:-1]) and _along(at):
            return at
    return None


def _unexpanded(val: Val) -> Val:
    """The value behind an expansion of a single element, or along the last dimension only."""
    while val.kind == "expand":
        source = val.args[0]
        if source.shape and source.shape != (*val.shape[:-1], Mono(1)):
            break
        val = source
    return val


def _along(val: Val) -> bool:
    """Whether a value is the same all along the last dimension."""
    return not val.shape or val.shape[-1].is_one
