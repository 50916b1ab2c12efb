"""Element-wise operators."""

from __future__ import annotations

from accelopt_backends.loops.affine import Unsupported
from accelopt_backends.loops.operands import Result, Rule, argument, convert, promote
from accelopt_backends.loops.values import NARROW, Graph, Val, lane_of
from accelopt_compile.records import Arg, DtypeArg, Node

FLOAT_ONLY = [
    "exp",
    "exp2",
    "log",
    "log1p",
    "log2",
    "expm1",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sigmoid",
    "tanh",
    "erf",
    "sin",
    "cos",
    "atan2",
]
"""Operators that are written for floats alone."""


SHORT = ("bf16", "f16")
_OF_MASKS = {"mul": "and", "add": "or", "minimum": "and", "maximum": "or"}
"""What operators do with truth values: a mask's lanes are 0 and -1, whose product is no mask, and true is the smaller one."""


def binary(op: str) -> Rule:
    def rule(g: Graph, node: Node) -> Result:
        out = node.outputs[0].dtype
        if out == "b8":
            return of_masks(op, g, node)
        a, b = (_in_type(g, g.operand(x, out), out) for x in node.args[:2])
        alpha = argument(node, 2, "alpha", 1)
        a, b = promote(g, [a, b], lane_of(out))
        if alpha != 1:
            b = g.point("mul", promote(g, [b, g.operand(alpha, out)], lane_of(out)), out)
        return [g.point(op, [a, b], out)]

    return rule


def of_masks(op: str, g: Graph, node: Node) -> Result:
    """An operator of numbers on truth values."""
    if op not in _OF_MASKS:
        raise Unsupported(f"{op} of truth values")
    return logical(_OF_MASKS[op])(g, node)


def divide(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    mode = dict(node.kwargs).get("rounding_mode", node.args[2] if len(node.args) > 2 else None)
    a, b = promote(g, [g.operand(x, out) for x in node.args[:2]], lane_of(out))
    if mode is None:
        return [g.point("div", [a, b], out)]
    if lane_of(out) != "f":
        raise Unsupported("integer division")
    if mode == "floor":
        raise Unsupported("division to the floor: eager takes the remainder away first, so that 1 // 0.1 is 9")
    return [g.point("trunc", [g.point("div", [a, b], out)], out)]


def pointwise(op: str) -> Rule:
    """An operator that the backends have under the same name."""

    def rule(g: Graph, node: Node) -> Result:
        out = node.outputs[0].dtype
        vals = [_in_type(g, g.operand(x, out), out) for x in node.args if not isinstance(x, DtypeArg)]
        if out == "b8" and op not in ("isnan", "isinf"):
            return of_masks(op, g, node)
        lane = lane_of(out) if out != "b8" else None
        if op in FLOAT_ONLY and lane != "f":
            raise Unsupported(f"{op} of {out}")
        return [g.point(op, promote(g, vals, lane), out)]

    return rule


def compare(op: str) -> Rule:
    def rule(g: Graph, node: Node) -> Result:
        first = g.operand(node.args[0], "f32")
        second = g.operand(node.args[1], first.dtype)
        for number, other in ((first, second), (second, first)):
            if number.dtype == "f32" and not number.shape and number.kind != "const" and other.shape and other.dtype in SHORT:
                raise Unsupported("a comparison of 16 bits with one number of 32, which eager rounds to 16 first")
        masks = first.lane == second.lane == "b" and op not in ("eq", "ne")
        return [g.point(op, promote(g, [first, second], "l" if masks else None), "b8")]

    return rule


def logical(op: str) -> Rule:
    def rule(g: Graph, node: Node) -> Result:
        if node.outputs[0].dtype != "b8":
            raise Unsupported(f"{op} of integers")
        return [g.point(op, promote(g, [g.operand(x, "b8") for x in node.args], "b"), "b8")]

    return rule


def where(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    cond = convert(g, g.operand(node.args[0], "b8"), "b")
    a, b = promote(g, [g.operand(x, out) for x in node.args[1:3]], lane_of(out))
    return [g.point("where", [cond, a, b], out)]


def power(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    base, exponent = node.args[:2]
    if isinstance(exponent, int | float) and not isinstance(exponent, bool):
        x = convert(g, g.operand(base, out), lane_of(out))
        if exponent in (2, 3, 4, -1, -2, 1, 0.5, -0.5):
            return [_fixed_power(g, x, float(exponent), out)]
    if lane_of(out) != "f":
        raise Unsupported("integer power")
    return [g.point("pow", promote(g, [g.operand(base, out), g.operand(exponent, out)], "f"), out)]


def _fixed_power(g: Graph, x: Val, exponent: float, out: str) -> Val:
    if exponent == 0.5:
        return g.point("sqrt", [x], out)
    if exponent == -0.5:
        return g.point("rsqrt", [x], out)
    product = x
    square = g.point("mul", [x, x], out)
    match abs(exponent):
        case 2:
            product = square
        case 3:
            product = g.point("mul", [square, x], out)
        case 4:
            product = g.point("mul", [square, square], out)
    return product if exponent > 0 else g.point("reciprocal", [product], out)


def clamp(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    name = node.op.split(".")[1]
    x = convert(g, g.operand(node.args[0], out), lane_of(out))
    low = argument(node, 1, "min") if name in ("clamp", "clamp_min") else None
    high = argument(node, 2, "max") if name == "clamp" else (argument(node, 1, "max") if name == "clamp_max" else None)
    if low is not None:
        x = g.point("maximum", promote(g, [x, g.operand(_bound(low, out), out)], lane_of(out)), out)
    if high is not None:
        x = g.point("minimum", promote(g, [x, g.operand(_bound(high, out), out)], lane_of(out)), out)
    return [x]


def _bound(value: Arg, dtype: str) -> Arg:
    """A bound as eager has it, in the dtype of the result: -1 is 255 for a uint8."""
    if dtype not in NARROW or not isinstance(value, int) or isinstance(value, bool):
        return value
    bits = int(dtype[1:])
    wrapped = value % (1 << bits)
    return wrapped - (1 << bits) if dtype[0] == "i" and wrapped >> (bits - 1) else wrapped


def to_dtype(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    x = g.operand(node.args[0], out)
    y = convert(g, x, lane_of(out))
    if x.lane == "f" and out in NARROW:
        y = g.point("cut_i32", [y], "i64")
    if y is x or y.dtype != out:
        # A narrower float is rounded where it is stored.
        y = g.point("id", [y], out)
    return [y]


_OVERFLOWS = ("add", "sub", "mul", "neg", "abs", "pow", "square", "convert_element_type", "_to_copy", "sum", "addcmul")
"""Operators whose exact result may not fit into their integer type."""


def wrapped(g: Graph, val: Val | None, name: str) -> Val | None:
    """The result of the operator `name` as an integer of its type: the arithmetic of all of them has 64 bits."""
    if val is None or val.dtype not in NARROW or name not in _OVERFLOWS:
        return val
    return g.point(f"wrap_{val.dtype}", [val], val.dtype)


def _in_type(g: Graph, val: Val, out: str) -> Val:
    """An operand in the type of the result, where that holds less: a single uint8 of 184 beside int8 is -72."""
    if val.kind == "const" or val.dtype == out or val.lane != "l" or out not in NARROW:
        return val
    return g.point(f"wrap_{out}", [val], out)


def identity(g: Graph, node: Node) -> Result:
    return [g.point("id", [g.value(node.args[0])], node.outputs[0].dtype)]


def lerp(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    a, b, w = promote(g, [g.operand(x, out) for x in node.args[:3]], "f")
    return [g.point("add", [a, g.point("mul", [w, g.point("sub", [b, a], out)], out)], out)]


def addc(op: str) -> Rule:
    def rule(g: Graph, node: Node) -> Result:
        out = node.outputs[0].dtype
        lane = lane_of(out)
        if lane != "f" and op == "div":
            raise Unsupported("integer division")
        a, b, c = promote(g, [g.operand(x, out) for x in node.args[:3]], lane)
        value = dict(node.kwargs).get("value", 1)
        product = g.point(op, [b, c], out)
        if value != 1:
            product = g.point("mul", [product, convert(g, g.operand(value, out), lane)], out)
        return [g.point("add", [a, product], out)]

    return rule


def bits(op: str) -> Rule:
    """Bit-wise operators of integers, and shifts to the right (to the left a narrow integer would have to wrap)."""

    def rule(g: Graph, node: Node) -> Result:
        out = node.outputs[0].dtype
        if lane_of(out) != "l":
            raise Unsupported(f"{op} of {out}")
        return [g.point(op, promote(g, [g.operand(x, out) for x in node.args[:2]], "l"), out)]

    return rule


def bits_or(op: str, logical: Rule) -> Rule:
    """Of integers their bits, else what is logical of masks."""
    of_integers = bits(op)
    return lambda g, node: (of_integers if lane_of(node.outputs[0].dtype) == "l" else logical)(g, node)
