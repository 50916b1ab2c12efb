"""Puts a call in the place of a region. The old nodes stay, unused, until `finish` clears, sorts and checks the graph.

Several regions of one graph may be replaced one after another: an input that was itself replaced is followed to what
stands for it now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from accelopt_compile.partition import Region
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
    inside = set(region.nodes)
    for old, new in zip(olds, results, strict=True):
        old.replace_all_uses_with(new, delete_user_cb=lambda user: user not in inside, propagate_meta=False)
        old.meta[_STANDS_FOR] = new
    node = anchor.next
    while node is not end:
        _set_input_values(node)
        node = node.next


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
