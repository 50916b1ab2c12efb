"""Puts a call in the place of a region. The old nodes stay, unused, until `finish` clears, sorts and checks the graph.

Several regions of one graph may be replaced one after another: an input that was itself replaced is followed to what
stands for it now.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node

from accelopt_compile.nodes import overload, torch_dtype
from accelopt_compile.records import DtypeArg, Ref, SymbolArg
from accelopt_compile.regions import Region
from accelopt_compile.signature import Signed

MakeCall = Callable[[Graph, Sequence[Node], Sequence["int | Node"]], "Node | Sequence[Node]"]
"""(graph, inputs in workload order, symbol values) -> one node per workload output. Nodes are to be made with
`graph.call_function`; where they go is set by the caller."""

_STANDS_FOR = "accelopt_replaced_by"


def replace_region(graph: Graph, region: Region, signed: Signed, make_call: MakeCall) -> None:
    """Let `make_call` insert what computes `region`, and point all outside users to it.

    Sets `val` on the new results (the old ones' fake tensors: same shapes and strides), and `eager_input_vals` on the new
    calls, without which Inductor may hand an operator other strides than the graph says.
    """
    anchor = region.nodes[-1]
    end = anchor.next
    inputs = [current(region.inputs[i]) for i in signed.input_order]
    with graph.inserting_before(end):
        sizes = [_size_node(graph, current(region.inputs[s.input]), s.dim, s.size) for s in signed.symbol_exprs]
        made = make_call(graph, inputs, sizes)
    results = (made,) if isinstance(made, Node) else tuple(made)
    olds = [region.outputs[i] for i in signed.output_order]
    for old, new in zip(olds, results, strict=True):
        _describe(new, old)
    hidden = set(region.nodes) - _seen_outside(region)
    for old, new in zip(olds, results, strict=True):
        old.replace_all_uses_with(new, delete_user_cb=lambda user: user not in hidden, propagate_meta=False)
        old.meta[_STANDS_FOR] = new
    node = anchor.next
    while node is not end:
        _set_input_values(node)
        node = node.next


def _seen_outside(region: Region) -> set[Node]:
    """Nodes of the region that stay, because somebody outside reads them and they are none of its results: what is free, computed
    of the results."""
    inside, results = set(region.nodes), set(region.outputs)
    found: set[Node] = set()
    for node in reversed(region.nodes):
        if node not in results and any(user not in inside or user in found for user in node.users):
            found.add(node)
    return found


def finish(graph: Graph) -> None:
    """Sort, drop what is unused, check, and recompile the owning module. Call once after all replacements."""
    from torch._inductor.pattern_matcher import stable_topological_sort

    stable_topological_sort(graph)
    graph.eliminate_dead_code()
    graph.lint()
    if graph.owning_module is not None:
        graph.owning_module.recompile()


def current(node: Node) -> Node:
    """The node that stands for `node` now."""
    while _STANDS_FOR in node.meta:
        node = node.meta[_STANDS_FOR]
    return node


def _size_node(graph: Graph, source: Node, dim: int, size: Any) -> int | Node:
    if isinstance(size, int):
        return size
    node = graph.call_function(torch.ops.aten.sym_size.int, (source, dim))
    node.meta["val"] = source.meta["val"].shape[dim]
    return node


def _describe(new: Node, old: Node) -> None:
    new.meta.setdefault("val", old.meta["val"])
    for key in ("stack_trace", "nn_module_stack", "original_aten"):
        if key in old.meta:
            new.meta.setdefault(key, old.meta[key])


def _set_input_values(node: Node) -> None:
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return
    if node.target is torch.ops.aten.sym_size.int:
        return
    values = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    node.meta.setdefault("eager_input_vals", values)


def call_reference(signed: Signed) -> MakeCall:
    """A `make_call` that inserts the reference's own operators: what a region is replaced by when nothing is better."""

    def make(graph: Graph, inputs: Sequence[Node], sizes: Sequence[int | Node]) -> list[Node]:
        w = signed.workload
        names = dict(zip(w.symbols, sizes, strict=True))
        example = inputs[0].meta["val"]
        made: list[Node] = []

        def value(arg: Any) -> Any:
            match arg:
                case Ref():
                    return inputs[arg.index] if arg.kind == "i" else _result(graph, made[arg.index], arg.output)
                case SymbolArg():
                    return _evaluated(graph, arg.expr, names)
                case DtypeArg():
                    return torch_dtype(arg.dtype)
                case tuple():
                    return [value(a) for a in arg]
            return arg

        for node in w.nodes:
            kwargs = {name: value(v) for name, v in node.kwargs}
            if node.op in ("aten.full.default", "prims.iota.default"):
                kwargs["device"] = example.device
            if node.op == "prims.iota.default":
                kwargs["requires_grad"] = False
            made.append(_with_value(graph.call_function(overload(node.op), tuple(value(a) for a in node.args), kwargs), example))
        return [_with_value(graph.call_function(torch.ops.aten.clone.default, (value(ref),)), example) for ref in w.outputs]

    return make


def _result(graph: Graph, node: Node, index: int) -> Node:
    if not isinstance(node.meta["val"], tuple | list):
        return node
    item = graph.call_function(operator.getitem, (node, index))
    item.meta["val"] = node.meta["val"][index]
    return item


def _evaluated(graph: Graph, text: str, names: Mapping[str, int | Node]) -> Any:
    """The expression as nodes (or a number when every symbol is one)."""
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    values = {name: torch.fx.Proxy(v, tracer) if isinstance(v, Node) else v for name, v in names.items()}
    result = eval(text, {"__builtins__": {}}, values)  # the text is a checked dimension: arithmetic on symbols
    if not isinstance(result, torch.fx.Proxy):
        return result
    _fill_sizes(result.node)
    return result.node


def _fill_sizes(node: Node) -> None:
    if "val" not in node.meta:
        for source in node.all_input_nodes:
            _fill_sizes(source)
        _with_value(node, None)


def _with_value(node: Node, example: Any) -> Node:
    """Give a new node its fake value, in the fake mode of `example`."""
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    assert callable(node.target)
    with example.fake_mode if isinstance(example, FakeTensor) else contextlib.nullcontext():
        node.meta["val"] = node.target(*args, **kwargs)
    return node
