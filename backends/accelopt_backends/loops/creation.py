"""Operators that make a tensor out of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accelopt_backends.loops.affine import Unsupported
from accelopt_backends.loops.operands import Result, argument, convert, shape_of
from accelopt_backends.loops.values import Graph, lane_of
from accelopt_compile.records import Node, SymbolArg


def full(g: Graph, node: Node) -> Result:
    out = node.outputs[0].dtype
    fill = node.args[1] if node.op.startswith("aten.full.") else node.args[0]
    if isinstance(fill, SymbolArg):
        raise Unsupported("a constant tensor of a symbolic value")
    caster: Callable[[Any], Any] = {"f": float, "l": int, "b": bool}[lane_of(out)]
    const = g.new("const", (), out, data=caster(fill))
    return [g.expand(const, shape_of(node))]


def iota(g: Graph, node: Node) -> Result:
    kwargs = dict(node.kwargs)
    return [g.new("iota", shape_of(node), node.outputs[0].dtype, data=(int(kwargs.get("start", 0)), int(kwargs.get("step", 1))))]


def arange(g: Graph, node: Node) -> Result:
    start, step = 0, 1
    if node.op == "aten.arange.start":
        start = node.args[0]
    if node.op == "aten.arange.start_step":
        start, step = node.args[0], argument(node, 2, "step", 1)
    if not isinstance(start, int) or not isinstance(step, int):
        raise Unsupported("arange over other than integers")
    iota = g.new("iota", shape_of(node), "i64", data=(start, step))
    return [convert(g, iota, lane_of(node.outputs[0].dtype))]
