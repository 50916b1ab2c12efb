"""A part of a graph written down call by call: a workload with one node for each call, static in its sizes.

Unlike a signature (`signature.py`) nothing is brought into canonical form: Inductor is to see the calls that it would see
in the graph, views and copies into other layouts among them.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from accelopt_compile.dtypes import SHORT_DTYPE
from accelopt_compile.errors import AccelOptError
from accelopt_compile.nodes import op_name, packet_name, values
from accelopt_compile.records import DtypeArg, Ref, TensorSpec, Workload
from accelopt_compile.records import Node as WorkloadNode
from accelopt_compile.sizes import hint

FORMATS = {
    torch.contiguous_format: "contiguous_format",
    torch.preserve_format: "preserve_format",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
}
FORMAT = "memory_format"
"""The argument whose value travels by its name."""

_UNSAID = ("device", "layout", "pin_memory", "requires_grad")
"""Arguments that a workload does not name: everything is dense and on the CPU."""


class Unwritable(AccelOptError):
    """An argument or a value that a workload cannot hold."""


def written(nodes: Sequence[Node], inputs: Sequence[Node], outputs: Sequence[Node]) -> tuple[Workload, dict[Node, Ref]]:
    """`nodes`, in topological order, as a workload that reads `inputs` and yields `outputs`; and where each node's value is
    in it. Symbolic sizes become their hints. Raises Unwritable."""
    refs = {node: Ref("i", k) for k, node in enumerate(inputs)}
    calls: list[WorkloadNode] = []
    for node in nodes:
        if node.target is operator.getitem:
            source, number = node.args
            assert isinstance(source, Node) and isinstance(number, int)
            refs[node] = Ref("n", refs[source].index, number)
            continue
        calls.append(_call(node, refs))
        refs[node] = Ref("n", len(calls) - 1)
    workload = Workload(
        inputs=tuple(_spec(node.meta["val"]) for node in inputs),
        nodes=tuple(calls),
        outputs=tuple(refs[node] for node in outputs),
        output_specs=tuple(_spec(node.meta["val"]) for node in outputs),
    )
    return workload, refs


def with_formats(module: GraphModule) -> GraphModule:
    """A module made of such a workload, with the memory formats that it names put in."""
    named = {name: layout for layout, name in FORMATS.items()}
    for node in module.graph.nodes:
        if node.kwargs.get(FORMAT) in named:
            node.kwargs = {**node.kwargs, FORMAT: named[node.kwargs[FORMAT]]}
    module.recompile()
    return module


def calls_of(module: GraphModule) -> list[Node]:
    """The FX nodes of a module made of a workload, in the order of the workload's nodes."""
    return [n for n in module.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]


def _call(node: Node, refs: Mapping[Node, Ref]) -> WorkloadNode:
    if not packet_name(node):
        raise Unwritable(f"{node.name} calls {node.target}")
    said = {name: value for name, value in node.kwargs.items() if name not in _UNSAID}
    return WorkloadNode(
        op=op_name(node),
        args=tuple(_argument(a, refs) for a in node.args),
        kwargs=tuple(sorted((name, _argument(value, refs)) for name, value in said.items())),
        outputs=tuple(_spec(value) for value in values(node)),
    )


def _argument(value: Any, refs: Mapping[Node, Ref]) -> Any:
    match value:
        case Node():
            known = value.meta.get("val")
            return _number(known) if not isinstance(known, torch.Tensor | tuple | list) else refs[value]
        case torch.dtype():
            if value not in SHORT_DTYPE:
                raise Unwritable(f"dtype {value}")
            return DtypeArg(SHORT_DTYPE[value])
        case torch.memory_format():
            return FORMATS[value]
        case tuple() | list():
            return tuple(_argument(v, refs) for v in value)
        case None | bool() | int() | float() | str() | torch.SymInt():
            return value if not isinstance(value, torch.SymInt) else hint(value)
    raise Unwritable(f"an argument of type {type(value).__name__}")


def _number(value: Any) -> int | float | bool:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, torch.SymInt) and value.node.hint is not None:
        return hint(value)
    raise Unwritable(f"a number that only the run knows: {value}")


def _spec(value: Any) -> TensorSpec:
    if not isinstance(value, torch.Tensor) or value.dtype not in SHORT_DTYPE:
        raise Unwritable(f"a value of type {type(value).__name__}")
    return TensorSpec(
        dtype=SHORT_DTYPE[value.dtype],
        shape=tuple(hint(size) for size in value.shape),
        strides=tuple(hint(stride) for stride in value.stride()),
    )
