"""Which values an operator with steps is given: there a last bit is a whole step."""

from __future__ import annotations

from accelopt_backends.loops.values import Graph, Val

STEPS = frozenset(
    {"floor", "ceil", "trunc", "round", "sign", "eq", "ne", "lt", "le", "gt", "ge", "to_l", "to_b"}
    | {f"wrap_{kind}" for kind in ("i32", "i16", "i8", "u8")}
)
"""Element-wise operators whose result jumps."""


def stepped(graph: Graph) -> frozenset[Val]:
    """The values that go into an operator with steps, however far from it."""
    found: set[Val] = set()
    open_ = [arg for val in graph.vals if _jumps(val) for arg in val.args]
    while open_:
        val = open_.pop()
        if val not in found:
            found.add(val)
            open_ += val.args
    return frozenset(found)


def _jumps(val: Val) -> bool:
    if val.kind == "reduce":
        return str(val.data[0]).startswith("arg")
    return val.kind == "lookup" or (val.kind == "point" and val.data in STEPS)
