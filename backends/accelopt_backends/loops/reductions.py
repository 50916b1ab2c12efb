"""Sums, moments, extremes, running sums; and matrix products, which are sums too."""

from __future__ import annotations

from accelopt_backends.loops.affine import ONE, Unsupported
from accelopt_backends.loops.one_hot import one_hot_sum
from accelopt_backends.loops.operands import Result, Rule, argument, convert, dims_of, shape_of
from accelopt_backends.loops.values import Graph, Val, lane_of
from accelopt_compile.records import Node


def reduce_sum(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    x = convert(g, g.value(node.args[0]), lane_of(out))
    over, keep = dims_of(argument(node, 1, "dim")), bool(argument(node, 2, "keepdim", False))
    known = one_hot_sum(g, x, over, out)
    if known is not None:
        return [known if keep else g.reshape(known, shape_of(node))]
    return [g.reduce("sum", x, over, out, keep)]


def _count(g: Graph, val: Val, over: list[int], less: float = 0.0) -> Val:
    size = ONE
    for d in over or range(len(val.shape)):
        size = size * val.shape[d]
    if size.static is not None:
        # An empty or single-element correction divides by zero as eager does: inf or nan.
        return g.new("const", (), "f32", data=float(size.static - less))
    return g.new("const", (), "f32", data=f"{size.c()} - {less}" if less else size.c())


def mean(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    x = convert(g, g.value(node.args[0]), "f")
    over = dims_of(argument(node, 1, "dim"))
    total = g.reduce("sum", x, over, out, bool(argument(node, 2, "keepdim", False)))
    return [g.point("div", [total, _count(g, x, over)], out)]


def _two_pass_moments(g: Graph, x: Val, over: list[int], out: str) -> tuple[Val, Val]:
    """(mean, sum of squared differences from it): the mean first, the squares in a second pass."""
    mean = g.point("div", [g.reduce("sum", x, over, out, True), _count(g, x, over)], out)
    centred = g.point("sub", [x, mean], out)
    return mean, g.reduce("sum", g.point("mul", [centred, centred], out), over, out, True)


def _shifted_moments(g: Graph, x: Val, over: list[int], out: str) -> tuple[Val, Val]:
    """The same in one pass, by differences from the mean of 64 of the row's elements, or from 0 where they vary about it.

    sum (x-m)^2 = sum d^2 - (sum d)^2 / n with d = x - shift loses accuracy when |shift - m| is far above the standard
    deviation, and the mean itself where |shift| is far above |m|. Elements that vary more than they lie off zero say nothing of
    the others: one outlier s among them made the shift s/64, and the mean of a batch norm wrong by up to 2 times what is allowed.
    """
    shift = g.reduce("head", x, over, out, True)
    d = g.point("sub", [x, shift], out)
    total = g.reduce("sum", d, over, out, True)
    squares = g.reduce("sum", g.point("mul", [d, d], out), over, out, True)
    offset = g.point("div", [total, _count(g, x, over)], out)
    mean = g.point("add", [shift, offset], out)
    rest = g.point("sub", [squares, g.point("mul", [total, offset], out)], out)
    return mean, g.point("maximum", [rest, g.new("const", (), "f32", data=0.0)], out)


def var_mean(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    x = g.value(node.args[0])
    over = dims_of(argument(node, 1, "dim"))
    correction = dict(node.kwargs).get("correction", 1)
    keep = bool(dict(node.kwargs).get("keepdim", False))
    less = 1.0 if correction is None else float(correction)
    mean, squares = (_shifted_moments if g.moments == "shifted" else _two_pass_moments)(g, x, over, out)
    var = g.point("div", [squares, _count(g, x, over, less)], out)
    # A row with an infinity has no variance, and eager's running mean then is NaN too.
    mean = g.point("where", [g.point("isnan", [var], "b8"), var, mean], out)
    if not keep:
        var, mean = g.reshape(var, shape_of(node)), g.reshape(mean, shape_of(node))
    return [var, mean] if node.op.split(".")[1] == "var_mean" else [var]


def extreme(kind: str) -> Rule:
    def rule(g: Graph, node: Node) -> Result:
        x = g.value(node.args[0])
        if x.lane == "b":
            raise Unsupported(f"{node.op} of bool")
        over, keep = dims_of(argument(node, 1, "dim")), bool(argument(node, 2, "keepdim", False))
        return [g.reduce(kind, x, over, node.outputs[0].dtype, keep)]

    return rule


def arg_extreme(kind: str, with_values: bool) -> Rule:
    """Where the extreme lies; `with_values`: and what it is (max.dim), or, where nobody asks where, that alone (max)."""

    def rule(g: Graph, node: Node) -> Result:
        x = g.value(node.args[0])
        dim = argument(node, 1, "dim")
        if with_values and len(node.outputs) == 1:
            return [g.reduce(kind, x, [], node.outputs[0].dtype, False)]
        if dim is None or x.lane != "f":
            raise Unsupported(f"{node.op} over all dimensions or of integers")
        keep = bool(argument(node, 2, "keepdim", False))
        index = g.reduce(f"arg{kind}", x, dims_of(dim), "i64", keep)
        if not with_values:
            return [index]
        return [g.reduce(kind, x, dims_of(dim), node.outputs[0].dtype, keep), index]

    return rule


def reduce_any(g: Graph, node: Node) -> Result:
    x = convert(g, g.value(node.args[0]), "b")
    return [g.reduce("any", x, dims_of(argument(node, 1, "dim")), "b8", bool(argument(node, 2, "keepdim", False)))]


def running_sum(g: Graph, node: Node) -> Result:
    x = convert(g, g.value(node.args[0]), lane_of(node.outputs[0].dtype))
    dim = int(node.args[1]) % len(x.shape)
    if x.lane != "f":
        raise Unsupported("cumsum of integers")
    if x.shape[dim].is_one:
        return [x]
    return [g.new("scan", x.shape, node.outputs[0].dtype, (x,), ("sum", dim), list(x.dims))]


def matrix_product(g: Graph, node: Node) -> Result:
    """mm, bmm; with a scaled bias: addmm, baddbmm."""
    out = node.outputs[0].dtype
    if lane_of(out) != "f":
        raise Unsupported(f"{node.op} of {out}")
    *bias, left, right = node.args[:3] if "add" in node.op else node.args[:2]
    product = g.product(g.value(left), g.value(right), out)
    if not bias:
        return [product]
    beta, alpha = dict(node.kwargs).get("beta", 1), dict(node.kwargs).get("alpha", 1)
    if alpha == 0:
        raise Unsupported("a matrix product times 0")  # in float32 eager does not look at the operands then
    if alpha != 1:
        product = g.point("mul", [product, g.operand(float(alpha), out)], out)
    if beta == 0:
        return [product]
    added = convert(g, g.value(bias[0]), "f")
    if beta != 1:
        added = g.point("mul", [added, g.operand(float(beta), out)], out)
    return [g.point("add", [product, added], out)]
