"""ATen to values: one small function per operator family. An operator that is not here is Unsupported by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from accelopt_backends.loops.affine import ONE, Mono, Unsupported, mono
from accelopt_backends.loops.one_hot import one_hot_sum
from accelopt_backends.loops.values import FLOATS, Graph, Val, lane_of
from accelopt_compile.records import Arg, DtypeArg, Node, Ref, SymbolArg

Result = Sequence[Val | None]
Rule = Callable[[Graph, Node], Result]

# Element-wise operators whose C++ name in the prelude is the ATen name; arity is the operands'.
_FLOAT_ONLY = [
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
_SAME = [
    *_FLOAT_ONLY,
    *["neg", "abs", "relu", "floor", "ceil", "trunc", "round", "sign", "isnan", "isinf", "maximum", "minimum", "square", "fma"],
]
_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


def translate(g: Graph, node: Node) -> Result:
    """The values of one node's results (None for a result nobody can use)."""
    name = node.op.split(".")[1]
    rule = RULES.get(name)
    if rule is None:
        raise Unsupported(f"operator {node.op}")
    return rule(g, node)


def _kw(node: Node, position: int, name: str, default: Arg = None) -> Arg:
    if len(node.args) > position:
        return node.args[position]
    return dict(node.kwargs).get(name, default)


def _dims(arg: Any) -> list[int]:
    if arg is None:
        return []
    return [int(a) for a in arg] if isinstance(arg, tuple) else [int(arg)]


def _shape(node: Node, k: int = 0) -> list[Mono]:
    return [mono(d) for d in node.outputs[k].shape]


def convert(g: Graph, val: Val, lane: str) -> Val:
    """`val` in another arithmetic type; nothing when it is there already."""
    if val.lane == lane:
        return val
    dtype = {"f": "f32", "l": "i64", "b": "b8"}[lane]
    if val.kind == "const" and not isinstance(val.data, str):
        caster: Callable[[Any], Any] = {"f": float, "l": int, "b": bool}[lane]
        return g.new("const", (), dtype, data=caster(val.data))
    return g.point(f"to_{lane}", [val], dtype)


def _promote(g: Graph, vals: Sequence[Val], lane: str | None = None) -> list[Val]:
    if lane is None:
        lanes = {v.lane for v in vals}
        lane = "f" if "f" in lanes else "l" if "l" in lanes else "b"
    return [convert(g, v, lane) for v in vals]


def _binary(op: str) -> Rule:
    def rule(g: Graph, node: Node) -> Result:
        out = node.outputs[0].dtype
        a, b = (g.operand(x, out) for x in node.args[:2])
        alpha = _kw(node, 2, "alpha", 1)
        a, b = _promote(g, [a, b], lane_of(out))
        if alpha != 1:
            b = g.point("mul", _promote(g, [b, g.operand(alpha, out)], lane_of(out)), out)
        return [g.point(op, [a, b], out)]

    return rule


def _div(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    mode = dict(node.kwargs).get("rounding_mode", node.args[2] if len(node.args) > 2 else None)
    a, b = _promote(g, [g.operand(x, out) for x in node.args[:2]], lane_of(out))
    if mode is None:
        return [g.point("div", [a, b], out)]
    if lane_of(out) != "f":
        raise Unsupported("integer division")
    return [g.point("floor" if mode == "floor" else "trunc", [g.point("div", [a, b], out)], out)]


def _elementwise(op: str) -> Rule:
    def rule(g: Graph, node: Node) -> Result:
        out = node.outputs[0].dtype
        vals = [g.operand(x, out) for x in node.args if not isinstance(x, DtypeArg)]
        lane = lane_of(out) if out != "b8" else None
        if op in _FLOAT_ONLY and lane != "f":
            raise Unsupported(f"{op} of {out}")
        return [g.point(op, _promote(g, vals, lane), out)]

    return rule


def _compare(op: str) -> Rule:
    def rule(g: Graph, node: Node) -> Result:
        first = g.operand(node.args[0], "f32")
        second = g.operand(node.args[1], first.dtype)
        return [g.point(op, _promote(g, [first, second]), "b8")]

    return rule


def _logical(op: str) -> Rule:
    def rule(g: Graph, node: Node) -> Result:
        if node.outputs[0].dtype != "b8":
            raise Unsupported(f"{op} of integers")
        return [g.point(op, _promote(g, [g.operand(x, "b8") for x in node.args], "b"), "b8")]

    return rule


def _where(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    cond = convert(g, g.operand(node.args[0], "b8"), "b")
    a, b = _promote(g, [g.operand(x, out) for x in node.args[1:3]], lane_of(out))
    return [g.point("where", [cond, a, b], out)]


def _pow(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    base, exponent = node.args[:2]
    if isinstance(exponent, int | float) and not isinstance(exponent, bool):
        x = g.operand(base, out)
        if exponent in (2, 3, 4, -1, -2, 1, 0.5, -0.5):
            return [_fixed_power(g, x, float(exponent), out)]
    if lane_of(out) != "f":
        raise Unsupported("integer power")
    return [g.point("pow", _promote(g, [g.operand(base, out), g.operand(exponent, out)], "f"), out)]


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


def _clamp(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    name = node.op.split(".")[1]
    x = convert(g, g.operand(node.args[0], out), lane_of(out))
    low = _kw(node, 1, "min") if name in ("clamp", "clamp_min") else None
    high = _kw(node, 2, "max") if name == "clamp" else (_kw(node, 1, "max") if name == "clamp_max" else None)
    if low is not None:
        x = g.point("maximum", _promote(g, [x, g.operand(low, out)], lane_of(out)), out)
    if high is not None:
        x = g.point("minimum", _promote(g, [x, g.operand(high, out)], lane_of(out)), out)
    return [x]


def _convert(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    x = g.operand(node.args[0], out)
    y = convert(g, x, lane_of(out))
    if y is x or y.dtype != out:
        # A narrower float is rounded where it is stored; integers narrower than 64 bits wrap there too.
        y = g.point("id", [y], out)
    return [y]


def _identity(g: Graph, node: Node) -> Result:
    return [g.point("id", [g.value(node.args[0])], node.outputs[0].dtype)]


def _full(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    fill = node.args[1] if node.op.startswith("aten.full.") else node.args[0]
    if isinstance(fill, SymbolArg):
        raise Unsupported("a constant tensor of a symbolic value")
    caster: Callable[[Any], Any] = {"f": float, "l": int, "b": bool}[lane_of(out)]
    const = g.new("const", (), out, data=caster(fill))
    return [g.expand(const, _shape(node))]


def _iota(g: Graph, node: Node) -> Result:
    kwargs = dict(node.kwargs)
    return [g.new("iota", _shape(node), node.outputs[0].dtype, data=(int(kwargs.get("start", 0)), int(kwargs.get("step", 1))))]


def _arange(g: Graph, node: Node) -> Result:
    start, step = 0, 1
    if node.op == "aten.arange.start":
        start = node.args[0]
    if node.op == "aten.arange.start_step":
        start, step = node.args[0], _kw(node, 2, "step", 1)
    if not isinstance(start, int) or not isinstance(step, int):
        raise Unsupported("arange over other than integers")
    iota = g.new("iota", _shape(node), "i64", data=(start, step))
    return [convert(g, iota, lane_of(node.outputs[0].dtype))]


def _sum(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    x = convert(g, g.value(node.args[0]), lane_of(out))
    over, keep = _dims(_kw(node, 1, "dim")), bool(_kw(node, 2, "keepdim", False))
    known = one_hot_sum(g, x, over, out)
    if known is not None:
        return [known if keep else g.reshape(known, _shape(node))]
    return [g.reduce("sum", x, over, out, keep)]


def _count(g: Graph, val: Val, over: list[int], less: float = 0.0) -> Val:
    size = ONE
    for d in over or range(len(val.shape)):
        size = size * val.shape[d]
    if size.static is not None:
        # An empty or single-element correction divides by zero as eager does: inf or nan.
        return g.new("const", (), "f32", data=float(size.static - less))
    return g.new("const", (), "f32", data=f"{size.c()} - {less}" if less else size.c())


def _mean(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    x = convert(g, g.value(node.args[0]), "f")
    over = _dims(_kw(node, 1, "dim"))
    total = g.reduce("sum", x, over, out, bool(_kw(node, 2, "keepdim", False)))
    return [g.point("div", [total, _count(g, x, over)], out)]


def _two_pass_moments(g: Graph, x: Val, over: list[int], out: str) -> tuple[Val, Val]:
    """(mean, sum of squared differences from it): the mean first, the squares in a second pass."""
    mean = g.point("div", [g.reduce("sum", x, over, out, True), _count(g, x, over)], out)
    centred = g.point("sub", [x, mean], out)
    return mean, g.reduce("sum", g.point("mul", [centred, centred], out), over, out, True)


def _shifted_moments(g: Graph, x: Val, over: list[int], out: str) -> tuple[Val, Val]:
    """The same in one pass, by differences from the mean of the row's first 64 elements, or from 0 where they vary about it.

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


def _var_mean(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    x = g.value(node.args[0])
    over = _dims(_kw(node, 1, "dim"))
    correction = dict(node.kwargs).get("correction", 1)
    keep = bool(dict(node.kwargs).get("keepdim", False))
    less = 1.0 if correction is None else float(correction)
    mean, squares = (_shifted_moments if g.moments == "shifted" else _two_pass_moments)(g, x, over, out)
    var = g.point("div", [squares, _count(g, x, over, less)], out)
    # A row with an infinity has no variance, and eager's running mean then is NaN too.
    mean = g.point("where", [g.point("isnan", [var], "b8"), var, mean], out)
    if not keep:
        var, mean = g.reshape(var, _shape(node)), g.reshape(mean, _shape(node))
    return [var, mean] if node.op.split(".")[1] == "var_mean" else [var]


def _extreme(kind: str) -> Rule:
    def rule(g: Graph, node: Node) -> Result:
        x = g.value(node.args[0])
        if x.lane == "b":
            raise Unsupported(f"{node.op} of bool")
        return [g.reduce(kind, x, _dims(_kw(node, 1, "dim")), node.outputs[0].dtype, bool(_kw(node, 2, "keepdim", False)))]

    return rule


def _arg_extreme(kind: str, with_values: bool) -> Rule:
    def rule(g: Graph, node: Node) -> Result:
        x = g.value(node.args[0])
        dim = _kw(node, 1, "dim")
        if with_values and len(node.outputs) == 1:
            return [g.reduce(kind, x, [], node.outputs[0].dtype, False)]
        if dim is None or x.lane != "f":
            raise Unsupported(f"{node.op} over all dimensions or of integers")
        keep = bool(_kw(node, 2, "keepdim", False))
        index = g.reduce(f"arg{kind}", x, _dims(dim), "i64", keep)
        if not with_values:
            return [index]
        return [g.reduce(kind, x, _dims(dim), node.outputs[0].dtype, keep), index]

    return rule


def _any(g: Graph, node: Node) -> Result:
    x = convert(g, g.value(node.args[0]), "b")
    return [g.reduce("any", x, _dims(_kw(node, 1, "dim")), "b8", bool(_kw(node, 2, "keepdim", False)))]


def _scan(g: Graph, node: Node) -> Result:
    x = convert(g, g.value(node.args[0]), lane_of(node.outputs[0].dtype))
    dim = int(node.args[1]) % len(x.shape)
    if x.lane != "f":
        raise Unsupported("cumsum of integers")
    if x.shape[dim].is_one:
        return [x]
    return [g.new("scan", x.shape, node.outputs[0].dtype, (x,), ("sum", dim), list(x.dims))]


def _reshape(g: Graph, node: Node) -> Result:
    return [g.reshape(g.value(node.args[0]), _shape(node))]


def _permute(g: Graph, node: Node) -> Result:
    x = g.value(node.args[0])
    rank = len(x.shape)
    name = node.op.split(".")[1]
    if name == "permute":
        order = [int(d) % rank for d in node.args[1]]
    else:
        order = list(range(rank))
        a, b = (0, 1) if name == "t" else (int(node.args[1]) % rank, int(node.args[2]) % rank)
        if rank >= 2:
            order[a], order[b] = order[b], order[a]
    return [g.permute(x, order)]


def _expand(g: Graph, node: Node) -> Result:
    return [g.expand(g.value(node.args[0]), _shape(node))]


def _slice(g: Graph, node: Node) -> Result:
    x = g.value(node.args[0])
    dim = int(_kw(node, 1, "dim", 0)) % len(x.shape)
    start, step = _kw(node, 2, "start", 0) or 0, _kw(node, 4, "step", 1)
    if not isinstance(start, int) or not isinstance(step, int):
        raise Unsupported("a slice that starts at a symbol")
    size = _shape(node)[dim]
    if size == x.shape[dim] and step == 1:
        return [x]
    if start < 0:
        if x.shape[dim].static is None:
            raise Unsupported("a slice from the end of a symbolic size")
        start += x.shape[dim].coef
    return [g.slice(x, dim, start, size, step)]


def _select(g: Graph, node: Node) -> Result:
    x = g.value(node.args[0])
    dim, index = int(node.args[1]) % len(x.shape), node.args[2]
    if not isinstance(index, int):
        raise Unsupported("a selection at a symbol")
    if index < 0:
        if x.shape[dim].static is None:
            raise Unsupported("a selection from the end of a symbolic size")
        index += x.shape[dim].coef
    return [g.reshape(g.slice(x, dim, index, ONE), _shape(node))]


def _split(g: Graph, node: Node) -> Result:
    x = g.value(node.args[0])
    dim = int(_kw(node, 2, "dim", 0)) % len(x.shape)
    start, out = 0, []
    for k in range(len(node.outputs)):
        size = _shape(node, k)[dim]
        if size.static is None:
            raise Unsupported("a split of a symbolic size")
        out.append(g.slice(x, dim, start, size))
        start += size.static
    return out


def _cat(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    parts = [convert(g, g.value(a), lane_of(out)) for a in node.args[0]]
    shape = _shape(node)
    dim = int(_kw(node, 1, "dim", 0)) % len(shape)
    return [concatenate(g, parts, dim, shape, out)]


def concatenate(g: Graph, parts: Sequence[Val], dim: int, shape: Sequence[Mono], dtype: str) -> Val:
    """A cat value: all parts share the atoms of every other dimension."""
    dims = [list(d) for d in parts[0].dims]
    for p in parts[1:]:
        for d in range(len(shape)):
            if d != dim:
                g.unify(dims[d], p.dims[d])
    dims[dim] = [g.atom(shape[dim])]
    return g.new("cat", shape, dtype, parts, dim, dims)


def _pad(g: Graph, node: Node) -> Result:
    x = g.value(node.args[0])
    out = node.outputs[0].dtype
    amounts = _dims(node.args[1])
    value = _kw(node, 2, "value", 0) or 0
    for k in range(0, len(amounts), 2):
        dim = len(x.shape) - 1 - k // 2
        before, after = amounts[k], amounts[k + 1]
        if before < 0 or after < 0 or x.shape[dim].static is None:
            raise Unsupported("a negative or symbolic padding")
        shape = list(x.shape)
        shape[dim] = Mono(x.shape[dim].coef + before + after)
        parts = [x]
        for amount, front in ((before, True), (after, False)):
            if amount:
                const = g.new("const", (), out, data={"f": float, "l": int, "b": bool}[lane_of(out)](value))
                piece = g.expand(const, [Mono(amount) if d == dim else s for d, s in enumerate(x.shape)])
                parts = [piece, *parts] if front else [*parts, piece]
        if len(parts) > 1:
            x = concatenate(g, parts, dim, shape, out)
    return [x]


def _embedding(g: Graph, node: Node) -> Result:
    weight, index = g.value(node.args[0]), g.value(node.args[1])
    dims = [*index.dims, *weight.dims[1:]]
    return [g.new("lookup", _shape(node), node.outputs[0].dtype, (weight, index), ("rows", 0), dims)]


def _gather(g: Graph, node: Node) -> Result:
    x, dim, index = g.value(node.args[0]), int(node.args[1]) % max(1, len(_shape(node))), g.value(node.args[2])
    for d in range(len(index.shape)):
        if d != dim and index.shape[d] == x.shape[d] and not x.shape[d].is_one:
            g.unify(index.dims[d], x.dims[d])
    return [g.new("lookup", _shape(node), node.outputs[0].dtype, (x, index), ("gather", dim), list(index.dims))]


def _index(g: Graph, node: Node) -> Result:
    x = g.value(node.args[0])
    indices = [(d, a) for d, a in enumerate(node.args[1]) if a is not None]
    if len(indices) != 1 or not isinstance(indices[0][1], Ref):
        raise Unsupported("indexing by more than one tensor")
    dim, ref = indices[0]
    index = g.value(ref)
    if index.lane != "l":
        raise Unsupported("indexing by a mask")
    dims = [*x.dims[:dim], *index.dims, *x.dims[dim + 1 :]]
    return [g.new("lookup", _shape(node), node.outputs[0].dtype, (x, index), ("rows", dim), dims)]


def _lerp(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    a, b, w = _promote(g, [g.operand(x, out) for x in node.args[:3]], "f")
    return [g.point("add", [a, g.point("mul", [w, g.point("sub", [b, a], out)], out)], out)]


def _addc(op: str) -> Rule:
    def rule(g: Graph, node: Node) -> Result:
        out = node.outputs[0].dtype
        a, b, c = _promote(g, [g.operand(x, out) for x in node.args[:3]], "f")
        value = dict(node.kwargs).get("value", 1)
        product = g.point(op, [b, c], out)
        if value != 1:
            product = g.point("mul", [product, convert(g, g.operand(value, out), "f")], out)
        return [g.point("add", [a, product], out)]

    return rule


def _bits(op: str) -> Rule:
    """Bit-wise operators of integers, and shifts to the right (to the left a narrow integer would have to wrap)."""

    def rule(g: Graph, node: Node) -> Result:
        out = node.outputs[0].dtype
        if lane_of(out) != "l":
            raise Unsupported(f"{op} of {out}")
        return [g.point(op, _promote(g, [g.operand(x, out) for x in node.args[:2]], "l"), out)]

    return rule


def _bits_or(op: str, logical: Rule) -> Rule:
    bits = _bits(op)
    return lambda g, node: (bits if lane_of(node.outputs[0].dtype) == "l" else logical)(g, node)


def _product(g: Graph, node: Node) -> Result:
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


RULES: dict[str, Rule] = {
    **{name: _elementwise(name) for name in _SAME},
    **{name: _compare(op) for name, op in _COMPARE.items()},
    "add": _binary("add"),
    "sub": _binary("sub"),
    "mul": _binary("mul"),
    "div": _div,
    "true_divide": _div,
    "where": _where,
    "pow": _pow,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "convert_element_type": _convert,
    "_to_copy": _convert,
    "clone": _identity,
    "alias": _identity,
    "copy": _identity,
    "logical_and": _logical("and"),
    "logical_or": _logical("or"),
    "logical_not": _logical("not"),
    "logical_xor": _logical("xor"),
    "bitwise_and": _bits_or("bitand", _logical("and")),
    "bitwise_or": _bits_or("bitor", _logical("or")),
    "bitwise_right_shift": _bits("shr"),
    "__rshift__": _bits("shr"),
    **dict.fromkeys(["mm", "addmm", "bmm", "baddbmm"], _product),
    "bitwise_not": _logical("not"),
    "bitwise_xor": _logical("xor"),
    "full": _full,
    "scalar_tensor": _full,
    "iota": _iota,
    "arange": _arange,
    "sum": _sum,
    "mean": _mean,
    "var_mean": _var_mean,
    "var": _var_mean,
    "amax": _extreme("max"),
    "amin": _extreme("min"),
    "max": _arg_extreme("max", True),
    "min": _arg_extreme("min", True),
    "argmax": _arg_extreme("max", False),
    "argmin": _arg_extreme("min", False),
    "any": _any,
    "cumsum": _scan,
    "reshape": _reshape,
    "view": _reshape,
    "_unsafe_view": _reshape,
    "unsqueeze": _reshape,
    "squeeze": _reshape,
    "permute": _permute,
    "transpose": _permute,
    "t": _permute,
    "expand": _expand,
    "slice": _slice,
    "select": _select,
    "split": _split,
    "split_with_sizes": _split,
    "cat": _cat,
    "constant_pad_nd": _pad,
    "embedding": _embedding,
    "gather": _gather,
    "index": _index,
    "lerp": _lerp,
    "addcmul": _addc("mul"),
    "addcdiv": _addc("div"),
}

__all__ = ["FLOATS", "translate"]
