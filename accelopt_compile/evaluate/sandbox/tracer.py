"""The tracer: a process inside a runner's walls that turns somebody's Python function into workloads, and sends nothing else.

The function is called on fake tensors only: it is traced, with the sizes that may vary as symbols, and never computes. What
it does to this process stays here; what it says is checked by whoever asked (`accelopt_compile.exchange.importing`), so that
a hostile function can but lie about what it computes.
"""

from __future__ import annotations

import linecache
import re
import sys
import types
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from accelopt_compile.capture import CapturedGraph, capture
from accelopt_compile.dtypes import DTYPES
from accelopt_compile.kinds import Kind, classify
from accelopt_compile.nodes import op_name
from accelopt_compile.partition import partition
from accelopt_compile.records import evaluate_dim
from accelopt_compile.regions import Region
from accelopt_compile.signature import Signed, SymbolSource, try_sign

ENTRY = "run"
_MODULE = "accelopt_reference"
_ARGUMENT = re.compile(r"L\['args'\]\[(\d+)\]")


class _Captured(Exception):
    """The graph is there; the function need not go on."""


@dataclass(frozen=True, kw_only=True)
class _Trace:
    """A captured function: its graph, the argument behind each placeholder (None for sizes), and the axes' symbols."""

    graph: CapturedGraph
    arguments: tuple[int | None, ...]
    axes: Mapping[Any, int]
    guards: tuple[Any, ...]


def answer(message: Mapping[str, Any]) -> dict[str, Any]:
    """{"op": "trace", "source", "arguments", "sizes", "free", "others"} -> what `traced` returns, or {"refused": why}.

    `arguments` are {"dtype", "shape"} with shapes over axes "s0", "s1", ... (`records.Dim`), or {"value": a number}; `sizes` the
    axes' sizes to trace with; `free` those axes that may become symbols; `others` more sizes, asked about in "holds".
    """
    if message["op"] != "trace":
        return {"error": f"unknown request {message['op']!r}"}
    try:
        trace = _traced(message)
    except Exception as failure:  # the function's own exceptions, and whatever torch says of what it cannot trace
        return {"refused": _first_line(failure)}
    if isinstance(trace, str):
        return {"refused": trace}
    whole = _whole(trace)
    parts = partition(trace.graph.graph)
    signed = [(region, try_sign(region)) for region in parts.regions]
    unsigned = Counter(s for _, s in signed if isinstance(s, str))
    return {
        "whole": whole if isinstance(whole, dict) else None,
        "cut": whole if isinstance(whole, str) else "",
        "regions": [_told(trace, region, s) for region, s in signed if isinstance(s, Signed)],
        "refused": dict(Counter(parts.refused.values()) + unsigned),
        "symbolic": sorted(set(trace.axes.values())),
        "holds": [_holds(trace, message["sizes"], other) for other in message["others"]],
    }


def _traced(message: Mapping[str, Any]) -> _Trace | str:
    """The one graph of the function on fake tensors, or why there is none. Raises whatever the function or torch raises."""
    from torch._dynamo import config, maybe_mark_dynamic
    from torch._subclasses.fake_tensor import FakeTensorMode

    sizes, free = message["sizes"], set(message["free"])
    arguments: list[Any] = []
    with FakeTensorMode():
        for argument in message["arguments"]:
            if "value" in argument:
                arguments.append(argument["value"])
                continue
            shape = [evaluate_dim(dim, sizes) for dim in argument["shape"]]
            arguments.append(torch.empty(shape, dtype=DTYPES[argument["dtype"]]))
            for k, dim in enumerate(argument["shape"]):
                if dim in free:
                    maybe_mark_dynamic(arguments[-1], k)
    found: list[_Trace | str] = []

    def keep(gm: GraphModule, inputs: Sequence[Any]) -> Any:
        found.append(_kept(gm, inputs, message["arguments"]))
        raise _Captured

    function = _function(message["source"])
    with config.patch(specialize_float=True, specialize_int=True, suppress_errors=False):
        try:
            torch.compile(lambda *args: function(*args), backend=keep, fullgraph=True)(*arguments)
        except Exception:
            if not found:
                raise
    return found[0] if found else "it computes nothing that torch can trace"


def _function(source: str) -> Any:
    """`run` of the source, as a module of its own that Dynamo can find again."""
    module = types.ModuleType(_MODULE)
    sys.modules[_MODULE] = module
    linecache.cache[_MODULE] = (len(source), None, source.splitlines(keepends=True), _MODULE)
    exec(compile(source, _MODULE, "exec"), module.__dict__)
    return getattr(module, ENTRY)


def _kept(gm: GraphModule, inputs: Sequence[Any], arguments: Sequence[Mapping[str, Any]]) -> _Trace | str:
    sources = [_ARGUMENT.fullmatch(n.meta["grapharg"].source.name) for n in gm.graph.nodes if n.op == "placeholder"]
    behind = tuple(None if match is None else int(match[1]) for match in sources)
    graphs = capture(gm, inputs)
    if len(graphs) != 1:
        return f"{len(graphs)} graphs were captured; a reference has to be one graph without gradients"
    axes: dict[Any, int] = {}
    guards: tuple[Any, ...] = ()
    for index, node in zip(behind, _placeholders(graphs[0]), strict=True):
        value = node.meta["val"]
        if index is None or not isinstance(value, torch.Tensor):
            continue
        for size, dim in zip(value.shape, arguments[index]["shape"], strict=True):
            if isinstance(size, torch.SymInt) and isinstance(dim, str):
                axes[size.node.expr] = int(dim[1:])
                env = size.node.shape_env
                guards = tuple(env.replace(guard.expr) for guard in env.guards)  # of symbols found equal, one stays
    return _Trace(graph=graphs[0], arguments=behind, axes=axes, guards=guards)


def _placeholders(captured: CapturedGraph) -> list[Node]:
    return [node for node in captured.graph.nodes if node.op == "placeholder"]


def _holds(trace: _Trace, traced: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    """Whether the graph is also the one of `sizes`: every fixed axis the same, every guard true. A symbol stands for sizes
    from 2 on, as torch takes it to."""
    symbolic = {f"s{k}" for k in trace.axes.values()}
    if any(sizes[axis] < 2 if axis in symbolic else sizes[axis] != traced[axis] for axis in traced):
        return False
    values = {symbol: sizes[f"s{k}"] for symbol, k in trace.axes.items()}
    return all(bool(guard.xreplace(values) == True) for guard in trace.guards)  # noqa: E712  a sympy value


def _whole(trace: _Trace) -> dict[str, Any] | str:
    """The graph as a single region, or why it is none."""
    graph = trace.graph.graph
    (end,) = (node for node in graph.nodes if node.op == "output")
    outputs = list(end.args[0])
    if any(not isinstance(o, Node) or o.op != "call_function" for o in outputs):
        return "it returns an argument, a constant or nothing"
    if len(set(outputs)) != len(outputs):
        return "it returns one tensor twice"
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "get_attr":
            return f"it holds a tensor of its own ({node.target})"
        if node.op != "call_function" or isinstance(node.meta.get("val"), torch.SymInt):
            continue
        why = _unholdable(node)
        if why:
            return why
        nodes.append(node)
    inputs = tuple(n for n in _placeholders(trace.graph) if isinstance(n.meta["val"], torch.Tensor) and n.users)
    region = Region(nodes=tuple(nodes), inputs=inputs, outputs=tuple(outputs))
    signed = try_sign(region)
    return signed if isinstance(signed, str) else _told(trace, region, signed)


def _unholdable(node: Node) -> str:
    """Why no region may hold the node, "" where one may. Products are walls for a partition of a model, not here."""
    kind, why = classify(node)
    overload = isinstance(node.target, torch._ops.OpOverload)
    product = overload and op_name(node).split(".")[1] in ("mm", "addmm", "bmm", "baddbmm", "dot", "mv")
    return why if kind is Kind.WALL and not product else ""


def _told(trace: _Trace, region: Region, signed: Signed) -> dict[str, Any]:
    """A region as plain JSON: the workload; the argument behind each of its inputs and the result behind each of its outputs
    (None for what lies inside the function); each symbol as an expression over the axes."""
    given = dict(zip(_placeholders(trace.graph), trace.arguments, strict=True))
    (end,) = (node for node in trace.graph.graph.nodes if node.op == "output")
    results = {node: k for k, node in enumerate(end.args[0]) if isinstance(node, Node)}
    return {
        "workload": signed.workload.to_json(),
        "inputs": [given.get(region.inputs[k]) for k in signed.input_order],
        "outputs": [results.get(region.outputs[k]) for k in signed.output_order],
        "symbols": [_over_axes(trace, source) for source in signed.symbol_exprs],
    }


def _over_axes(trace: _Trace, source: SymbolSource) -> str:
    import sympy  # type: ignore[import-untyped]

    if isinstance(source.size, int):
        return str(source.size)
    return str(source.size.xreplace({symbol: sympy.Symbol(f"s{k}") for symbol, k in trace.axes.items()}))


def _first_line(failure: Exception) -> str:
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    return f"{type(failure).__name__}: {' '.join(lines[:2])}"[:400]
