"""What the rules of `translate` share: how a call's arguments are read, and values brought to one arithmetic type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from accelopt_backends.loops.affine import Mono, mono
from accelopt_backends.loops.values import Graph, Val
from accelopt_compile.records import Arg, Node

Result = Sequence[Val | None]
Rule = Callable[[Graph, Node], Result]


def argument(node: Node, position: int, name: str, default: Arg = None) -> Arg:
    """An argument that may be given by its position or by its name."""
    if len(node.args) > position:
        return node.args[position]
    return dict(node.kwargs).get(name, default)


def dims_of(arg: Any) -> list[int]:
    """Dimensions as a list, whether one, several or none are given."""
    if arg is None:
        return []
    return [int(a) for a in arg] if isinstance(arg, tuple) else [int(arg)]


def shape_of(node: Node, k: int = 0) -> list[Mono]:
    """The shape of result `k`."""
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


def promote(g: Graph, vals: Sequence[Val], lane: str | None = None) -> list[Val]:
    """All in `lane`, or in the widest that one of them has."""
    if lane is None:
        lanes = {v.lane for v in vals}
        lane = "f" if "f" in lanes else "l" if "l" in lanes else "b"
    return [convert(g, v, lane) for v in vals]
