"""ATen to values: one small function per operator family. An operator that is not here is Unsupported by name."""

from __future__ import annotations

from accelopt_backends.loops import creation, elementwise, indexing, reductions
from accelopt_backends.loops.affine import Unsupported
from accelopt_backends.loops.operands import Result, Rule
from accelopt_backends.loops.values import Graph
from accelopt_compile.records import Node

# Element-wise operators whose C++ name in the prelude is the ATen name; arity is the operands'.
_SAME = [
    *elementwise.FLOAT_ONLY,
    *["neg", "abs", "relu", "floor", "ceil", "trunc", "round", "sign", "isnan", "isinf", "maximum", "minimum", "square", "fma"],
]
_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


def translate(g: Graph, node: Node) -> Result:
    """The values of one node's results (None for a result nobody can use)."""
    name = node.op.split(".")[1]
    rule = RULES.get(name)
    if rule is None:
        raise Unsupported(f"operator {node.op}")
    return [elementwise.wrapped(g, val, name) for val in rule(g, node)]


RULES: dict[str, Rule] = {
    **{name: elementwise.pointwise(name) for name in _SAME},
    **{name: elementwise.compare(op) for name, op in _COMPARE.items()},
    "add": elementwise.binary("add"),
    "sub": elementwise.binary("sub"),
    "mul": elementwise.binary("mul"),
    "div": elementwise.divide,
    "true_divide": elementwise.divide,
    "where": elementwise.where,
    "pow": elementwise.power,
    "clamp": elementwise.clamp,
    "clamp_min": elementwise.clamp,
    "clamp_max": elementwise.clamp,
    "convert_element_type": elementwise.to_dtype,
    "_to_copy": elementwise.to_dtype,
    "clone": elementwise.identity,
    "alias": elementwise.identity,
    "copy": elementwise.identity,
    "logical_and": elementwise.logical("and"),
    "logical_or": elementwise.logical("or"),
    "logical_not": elementwise.logical("not"),
    "logical_xor": elementwise.logical("xor"),
    "bitwise_and": elementwise.bits_or("bitand", elementwise.logical("and")),
    "bitwise_or": elementwise.bits_or("bitor", elementwise.logical("or")),
    "bitwise_right_shift": elementwise.bits("shr"),
    "__rshift__": elementwise.bits("shr"),
    **dict.fromkeys(["mm", "addmm", "bmm", "baddbmm"], reductions.matrix_product),
    "bitwise_not": elementwise.logical("not"),
    "bitwise_xor": elementwise.logical("xor"),
    "full": creation.full,
    "scalar_tensor": creation.full,
    "iota": creation.iota,
    "arange": creation.arange,
    "sum": reductions.reduce_sum,
    "mean": reductions.mean,
    "var_mean": reductions.var_mean,
    "var": reductions.var_mean,
    "amax": reductions.extreme("max"),
    "amin": reductions.extreme("min"),
    "max": reductions.arg_extreme("max", True),
    "min": reductions.arg_extreme("min", True),
    "argmax": reductions.arg_extreme("max", False),
    "argmin": reductions.arg_extreme("min", False),
    "any": reductions.reduce_any,
    "cumsum": reductions.running_sum,
    "reshape": indexing.reshape,
    "view": indexing.reshape,
    "_unsafe_view": indexing.reshape,
    "unsqueeze": indexing.reshape,
    "squeeze": indexing.reshape,
    "permute": indexing.permute,
    "transpose": indexing.permute,
    "t": indexing.permute,
    "expand": indexing.expand,
    "slice": indexing.strided_slice,
    "select": indexing.select,
    "split": indexing.split,
    "split_with_sizes": indexing.split,
    "cat": indexing.cat,
    "constant_pad_nd": indexing.pad,
    "embedding": indexing.embedding,
    "gather": indexing.gather,
    "index": indexing.index_rows,
    "lerp": elementwise.lerp,
    "addcmul": elementwise.addc("mul"),
    "addcdiv": elementwise.addc("div"),
}
