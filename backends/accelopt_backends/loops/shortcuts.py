"""Expressions that have a cheaper form than their operators one by one."""

from __future__ import annotations

from accelopt_backends.loops.values import Val


def shortcut(val: Val) -> tuple[str, tuple[Val, ...]]:
    """(operator, operands) to write for an element-wise value: its own, or those of the form that it is known by.

    a / (1 + e**z) is one function: its divisor lies where a reciprocal estimate and a Newton step are exact enough (SiLU,
    sigmoid and their spellings). 1 + tanh(x) is 2 / (1 + e**-2x): where tanh is near -1 its last place is many places of the sum
    (35 of 23 million elements of a gated GELU in float32 were beyond what is allowed). e**(x - max x) never meets the upper
    end of exp's range (softmax).
    """
    op, args = str(val.data), val.args
    if op == "div" and (power := _beside_one(args[1], "exp")) is not None:
        return "logistic", (args[0], power.args[0])
    if (curve := _beside_one(val, "tanh")) is not None and curve.dtype == "f32":
        return "tanh_plus_one", curve.args
    if op == "exp" and _below_its_maximum(args[0]):
        return "exp_up_to_0", args
    return op, args


def is_partition(val: Val) -> bool:
    """Whether it is a sum of e**(x - max x) that the largest element itself is in: at least 1, and no more than it has terms.
    A row's sum about the maximum of all rows may be next to nothing."""
    if val.kind != "reduce" or val.data[0] != "sum" or val.args[0].kind != "point":
        return False
    power = val.args[0]
    if shortcut(power)[0] != "exp_up_to_0":
        return False
    _, most = power.args[0].args
    return set(most.data[1]) <= set(val.data[1])


def _beside_one(val: Val, function: str) -> Val | None:
    """function(x) where `val` is 1 + function(x), in float32."""
    if val.kind != "point" or val.data != "add" or val.dtype != "f32":
        return None
    for one, other in (val.args, val.args[::-1]):
        if one.kind == "const" and one.data == 1 and other.kind == "point" and other.data == function:
            return other
    return None


def _below_its_maximum(val: Val) -> bool:
    if val.kind != "point" or val.data != "sub":
        return False
    x, most = val.args
    if most.kind != "reduce" or most.data[0] != "max" or most.args[0] is not x:
        return False
    _, over, keepdim = most.data
    return bool(keepdim) or over == tuple(range(len(over)))  # else what is left of x's dimensions stands beside others of them
