"""Operators that only move elements: views, concatenations, padding, and what lies at positions that are data."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt_backends.loops.affine import ONE, Mono, Unsupported
from accelopt_backends.loops.operands import Result, argument, convert, dims_of, shape_of
from accelopt_backends.loops.values import Graph, Val, lane_of
from accelopt_compile.records import Node, Ref


def reshape(g: Graph, node: Node) -> Result:
    return [g.reshape(g.value(node.args[0]), shape_of(node))]


def permute(g: Graph, node: Node) -> Result:
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


def expand(g: Graph, node: Node) -> Result:
    return [g.expand(g.value(node.args[0]), shape_of(node))]


def strided_slice(g: Graph, node: Node) -> Result:
    x = g.value(node.args[0])
    dim = int(argument(node, 1, "dim", 0)) % len(x.shape)
    start, step = argument(node, 2, "start", 0) or 0, argument(node, 4, "step", 1)
    if not isinstance(start, int) or not isinstance(step, int):
        raise Unsupported("a slice that starts at a symbol")
    size = shape_of(node)[dim]
    if size == x.shape[dim] and step == 1:
        return [x]
    if start < 0:
        if x.shape[dim].static is None:
            raise Unsupported("a slice from the end of a symbolic size")
        start += x.shape[dim].coef
    return [g.slice(x, dim, start, size, step)]


def select(g: Graph, node: Node) -> Result:
    x = g.value(node.args[0])
    dim, index = int(node.args[1]) % len(x.shape), node.args[2]
    if not isinstance(index, int):
        raise Unsupported("a selection at a symbol")
    if index < 0:
        if x.shape[dim].static is None:
            raise Unsupported("a selection from the end of a symbolic size")
        index += x.shape[dim].coef
    return [g.reshape(g.slice(x, dim, index, ONE), shape_of(node))]


def split(g: Graph, node: Node) -> Result:
    x = g.value(node.args[0])
    dim = int(argument(node, 2, "dim", 0)) % len(x.shape)
    start, out = 0, []
    for k in range(len(node.outputs)):
        size = shape_of(node, k)[dim]
        if size.static is None:
            raise Unsupported("a split of a symbolic size")
        out.append(g.slice(x, dim, start, size))
        start += size.static
    return out


def cat(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    parts = [convert(g, g.value(a), lane_of(out)) for a in node.args[0]]
    shape = shape_of(node)
    dim = int(argument(node, 1, "dim", 0)) % len(shape)
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


def pad(g: Graph, node: Node) -> Result:
    x = g.value(node.args[0])
    out = node.outputs[0].dtype
    amounts = dims_of(node.args[1])
    value = argument(node, 2, "value", 0) or 0
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


def embedding(g: Graph, node: Node) -> Result:
    weight, index = g.value(node.args[0]), g.value(node.args[1])
    dims = [*index.dims, *weight.dims[1:]]
    return [g.new("lookup", shape_of(node), node.outputs[0].dtype, (weight, index), ("rows", 0, False), dims)]


def gather(g: Graph, node: Node) -> Result:
    x, dim, index = g.value(node.args[0]), int(node.args[1]) % max(1, len(shape_of(node))), g.value(node.args[2])
    for d in range(len(index.shape)):
        if d != dim and index.shape[d] == x.shape[d] and not x.shape[d].is_one:
            g.unify(index.dims[d], x.dims[d])
    return [g.new("lookup", shape_of(node), node.outputs[0].dtype, (x, index), ("gather", dim, False), list(index.dims))]


def index_rows(g: Graph, node: Node) -> Result:
    x = g.value(node.args[0])
    indices = [(d, a) for d, a in enumerate(node.args[1]) if a is not None]
    if len(indices) != 1 or not isinstance(indices[0][1], Ref):
        raise Unsupported("indexing by more than one tensor")
    dim, ref = indices[0]
    index = g.value(ref)
    if index.lane != "l":
        raise Unsupported("indexing by a mask")
    dims = [*x.dims[:dim], *index.dims, *x.dims[dim + 1 :]]
    return [g.new("lookup", shape_of(node), node.outputs[0].dtype, (x, index), ("rows", dim, True), dims)]
