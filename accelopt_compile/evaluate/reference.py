"""The right answer: a workload turned back into ATen calls, in its own dtypes or with every float widened to float64.

Imports torch on import; only the evaluation child and tests import this module.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule
from torch.fx import Node as FxNode

from accelopt_compile.dtypes import DTYPES
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records import Arg, Binding, DtypeArg, Ref, SymbolArg, Workload, evaluate_dim

FLOATS = ("f64", "f32", "bf16", "f16")

MADE_ON_CPU: dict[str, dict[str, Any]] = {
    "aten.full.default": {"device": torch.device("cpu")},
    "prims.iota.default": {"device": torch.device("cpu"), "requires_grad": False},
}
"""Arguments of operators that make tensors from nothing: a workload does not name a device."""

Tensors = Sequence[torch.Tensor]
Program = Callable[..., tuple[torch.Tensor, ...]]


def operator_of(name: str) -> Any:
    """The overload named "aten.add.Tensor". Raises InvalidRecord when this torch does not have it."""
    namespace, packet, overload = name.split(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError as missing:
        raise InvalidRecord(f"this torch has no operator {name}") from missing


def reference_module(workload: Workload, binding: Binding, *, wide: bool = False, in_place: bool = False) -> GraphModule:
    """The workload at `binding` as an FX module of ATen calls: positional inputs, a tuple of outputs.

    `wide` replaces every float dtype among the arguments by float64: called on float64 inputs it computes the golden
    answer. `in_place` writes outputs that lie over inputs there and does not return them. Raises InvalidRecord.
    """
    graph = Graph()
    inputs = [graph.placeholder(f"i{k}") for k in range(len(workload.inputs))]
    nodes: list[FxNode] = []
    several: dict[tuple[int, int], FxNode] = {}

    def value(ref: Ref) -> FxNode:
        if ref.kind == "i":
            return inputs[ref.index]
        if len(workload.nodes[ref.index].outputs) == 1:
            return nodes[ref.index]
        key = (ref.index, ref.output)
        if key not in several:
            several[key] = graph.call_function(operator.getitem, (nodes[ref.index], ref.output))
        return several[key]

    def argument(arg: Arg) -> Any:
        match arg:
            case Ref():
                return value(arg)
            case SymbolArg():
                return evaluate_dim(arg.expr, binding)
            case DtypeArg():
                return torch.float64 if wide and arg.dtype in FLOATS else DTYPES[arg.dtype]
            case tuple() | list():
                return [argument(a) for a in arg]
        return arg

    for node in workload.nodes:
        args = tuple(argument(a) for a in node.args)
        if node.op == "aten.topk.default":  # an unsorted top-k may come in any order: here always the sorted one
            args = (*args[:4], *(-1, True)[len(args) - 2 :], True)
        kwargs = {name: argument(a) for name, a in node.kwargs} | MADE_ON_CPU.get(node.op, {})
        made = graph.call_function(operator_of(node.op), args, kwargs)
        made.meta["dtype"] = DTYPES[node.outputs[0].dtype] if node.outputs else torch.float32
        nodes.append(made)
    over = dict(workload.aliases) if in_place else {}
    results = [value(ref) for ref in workload.outputs]
    for output, given in over.items():
        graph.call_function(torch.ops.aten.copy_.default, (inputs[given], results[output]))
    graph.output(tuple(result for k, result in enumerate(results) if k not in over))
    return GraphModule(torch.nn.Module(), graph)


def widen(inputs: Tensors) -> list[torch.Tensor]:
    """The inputs in float64 where they are floats, with the strides they had."""
    wide = []
    for x in inputs:
        if not x.is_floating_point():
            wide.append(x)
            continue
        copy = torch.empty_strided(x.shape, x.stride(), dtype=torch.float64)
        if 0 in x.stride():
            copy = x.to(torch.float64)
        else:
            copy.copy_(x)
        wide.append(copy)
    return wide
