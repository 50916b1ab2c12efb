"""Regions that update graph inputs element by element, as an optimizer's step does.

AOTAutograd ends such a graph with `copy_(parameter, new value)`. Inductor computes an element-wise value right into its
parameter, but the result of an opaque call it has to copy: two more passes over every tensor. So a region that only
computes new values of what it reads is signed as a workload whose outputs lie over these inputs, and is called once for
all tensors that share the workload. Since only elements matter, the workload has one dimension, s0, for tensors of any
shape.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node

from accelopt_compile.kinds import is_pointwise, is_view
from accelopt_compile.launch.update import LARGE_ELEMENTS, operator
from accelopt_compile.nodes import closure, overload, torch_dtype
from accelopt_compile.records import DtypeArg, Ref, SymbolArg, TensorSpec, Workload
from accelopt_compile.records import Node as WorkloadNode
from accelopt_compile.regions import Region
from accelopt_compile.replace import current
from accelopt_compile.signature import Signed, SymbolSource, try_sign
from accelopt_compile.sizes import is_dense

MOST_MEASURED = 1 << 22
"""Elements at which larger updates are measured: beyond every cache, and time goes linearly from there."""

ELEMENTS = 4099
"""A number of elements that is no other number in a workload."""

_COPY = torch.ops.aten.copy_.default


@dataclass(frozen=True, kw_only=True)
class Update:
    """An in-place region: `signed` is its flat workload; output k of the workload goes to `targets[k]` by `copies[k]`, which
    a call of the kernel makes superfluous."""

    region: Region
    signed: Signed
    targets: tuple[Node, ...]
    copies: tuple[Node, ...]

    @property
    def elements(self) -> int:
        return self.signed.binding["s0"]


def update_of(region: Region, signed: Signed) -> Update | None:
    """`region` as an in-place update, or None where it is none: every result must go to a graph input that the region
    reads and nobody else does, element by element."""
    copies = [_write_back(region, region.outputs[k]) for k in signed.output_order]
    if not copies or any(c is None for c in copies):
        return None
    writes = tuple(c for c in copies if c is not None)
    targets = tuple(c.args[0] for c in writes if isinstance(c.args[0], Node))
    if len(set(targets)) != len(targets):
        return None
    inputs = [region.inputs[i] for i in signed.input_order]
    if not all(t in inputs for t in targets) or any(_written_by_others(x, writes) for x in inputs):
        return None
    flat = _flat(signed, inputs, [inputs.index(t) for t in targets])
    if flat is None:
        return None
    order = [signed.output_order.index(k) for k in flat.output_order]
    return Update(region=region, signed=flat, targets=tuple(targets[k] for k in order), copies=tuple(writes[k] for k in order))


def updates_of(regions: Iterable[tuple[Region, Signed | str]]) -> dict[Region, Update]:
    """The in-place updates among signed regions."""
    found = ((region, update_of(region, signed)) for region, signed in regions if isinstance(signed, Signed))
    return {region: update for region, update in found if update is not None}


def pooled(updates: Iterable[Update]) -> dict[str, dict[str, int]]:
    """The binding at which each workload of these updates is measured, by digest: the elements of all its tensors."""
    totals: dict[str, int] = {}
    for update in updates:
        digest = update.signed.workload.digest
        totals[digest] = totals.get(digest, 0) + update.elements
    return {digest: {"s0": min(total, MOST_MEASURED)} for digest, total in totals.items()}


def call_update(graph: Graph, updates: Sequence[Update], key: str) -> None:
    """One call at the end of the graph that runs the kernel `key` on all `updates`, in place of their regions."""
    ordered = sorted(updates, key=lambda u: -u.elements)
    reads = [current(u.region.inputs[i]) for u in ordered for i in u.signed.input_order if u.region.inputs[i] not in u.targets]
    writes = [target for u in ordered for target in u.targets]
    sizes = [u.elements for u in ordered]
    large = sum(size >= LARGE_ELEMENTS for size in sizes)
    end = next(node for node in reversed(graph.nodes) if node.op == "output")
    with graph.inserting_before(end):
        call = graph.call_function(operator(), (reads, writes, sizes, large, key))
    call.meta["val"] = None
    call.meta["eager_input_vals"] = torch.fx.map_arg((call.args, call.kwargs), lambda n: n.meta.get("val"))
    for update in ordered:
        for copy in update.copies:
            graph.erase_node(copy)


def _write_back(region: Region, output: Node) -> Node | None:
    """The `copy_` of an output into a graph input, when that is its only use outside the region and nothing else reads
    the input."""
    outside = [user for user in output.users if user not in region.nodes]
    if len(outside) != 1 or outside[0].target is not _COPY or outside[0].args[1] is not output or outside[0].users:
        return None
    copy, target = outside[0], outside[0].args[0]
    if not isinstance(target, Node) or target.op != "placeholder":
        return None
    if any(user is not copy and _read_outside(user, region) for user in target.users):
        return None
    new, old = output.meta["val"], target.meta["val"]
    alike = new.dtype == old.dtype and new.shape == old.shape and new.stride() == old.stride() and new.device == old.device
    return copy if alike else None


def _read_outside(node: Node, region: Region) -> bool:
    """Whether somebody outside reads what `node` reads, himself or through a value that the region has its own copy of (a widened
    tensor, a view): he would read it after the update."""
    own = set(region.nodes).difference(region.outputs)
    return not closure([node], lambda reader: reader.users if reader in own else ()).issubset(region.nodes)


def _written_by_others(node: Node, writes: Sequence[Node]) -> bool:
    """Whether what a region reads, itself or what it is a view of, is written to in the graph by others than `writes`: the update
    comes after that, at the end of the graph, and would read the new values."""
    behind = closure([node], lambda n: n.all_input_nodes if is_view(n) or n.target is getitem else ())
    users = {user for n in behind for user in n.users if user.op == "call_function"}
    return not all(_is_pure(user) for user in users.difference(writes))


def _is_pure(node: Node) -> bool:
    """Whether a call certainly writes to none of its arguments."""
    if isinstance(node.target, torch._ops.OpOverload):
        return not node.target._schema.is_mutable
    return node.target is getitem


def _flat(signed: Signed, inputs: Sequence[Node], over: Sequence[int]) -> Signed | None:
    """The workload with one dimension for its elements; None where a value depends on other elements than its own."""
    values = [node.meta["val"] for node in inputs]
    if any(isinstance(n, torch.SymInt) for v in values for n in (*v.shape, *v.stride())):
        return None
    shapes = {(tuple(v.shape), tuple(v.stride())) for v in values if v.numel() != 1}
    if len(shapes) > 1 or not all(is_dense(v) for v in values):
        return None
    w, one = signed.workload, {(1,) * len(v.shape) for v in values} | {()}
    full = next(iter(shapes))[0] if shapes else ()

    def spec(given: TensorSpec) -> TensorSpec | None:
        shape = w.bound_shape(given, signed.binding)
        if shape == full and shapes:
            return TensorSpec(dtype=given.dtype, shape=("s0",), strides=(1,))
        return TensorSpec(dtype=given.dtype, shape=(), strides=()) if shape in one else None

    def specs(given: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        return tuple(s for g in given if (s := spec(g)) is not None)

    nodes = [_flat_node(node, specs(node.outputs)) for node in w.nodes]
    flat_inputs, flat_outputs = specs(w.inputs), specs(w.output_specs)
    if not shapes or any(n is None for n in nodes) or len(flat_inputs) + len(flat_outputs) != len(w.inputs) + len(w.output_specs):
        return None
    kept = tuple(n for n in nodes if n is not None)
    made = Workload(
        inputs=flat_inputs, nodes=kept, outputs=w.outputs, output_specs=flat_outputs, symbols=("s0",), numerics=w.numerics
    )  # fmt: skip
    canonical = _canonical(made.to_text())
    if canonical is None:
        return None
    elements = next(v.numel() for v in values if v.numel() != 1)
    inputs_now = tuple(signed.input_order[i] for i in canonical.input_order)
    outputs_now = tuple(signed.output_order[k] for k in canonical.output_order)
    aliases = tuple((k, canonical.input_order.index(over[old])) for k, old in enumerate(canonical.output_order))
    return Signed(
        workload=dataclasses.replace(canonical.workload, aliases=aliases),
        binding={"s0": elements},
        input_order=inputs_now,
        output_order=outputs_now,
        symbol_exprs=(SymbolSource(size=elements, input=inputs_now[0], dim=0),),
    )


@functools.lru_cache(maxsize=256)
def _canonical(text: str) -> Signed | None:
    """A flat workload signed anew, so that the order of its inputs and calls does not depend on the shape that tensors had. By
    its text: as objects those that divide by 0.0 and by -0.0 are equal."""
    flat, graph = Workload.from_json(json.loads(text)), Graph()
    inputs = [_described(graph.placeholder(f"i{k}"), _example(spec)) for k, spec in enumerate(flat.inputs)]
    nodes: list[Node] = []

    def value(arg: Any) -> Any:
        match arg:
            case Ref():
                return inputs[arg.index] if arg.kind == "i" else nodes[arg.index]
            case SymbolArg():
                return ELEMENTS
            case DtypeArg():
                return torch_dtype(arg.dtype)
            case tuple():
                return [value(a) for a in arg]
        return arg

    for node in flat.nodes:
        kwargs = {name: value(v) for name, v in node.kwargs}
        made = graph.call_function(overload(node.op), tuple(value(a) for a in node.args), kwargs)
        nodes.append(_described(made, _example(node.outputs[0])))
    outputs = [value(ref) for ref in flat.outputs]
    graph.output(tuple(outputs))
    signed = try_sign(Region(nodes=tuple(nodes), inputs=tuple(inputs), outputs=tuple(outputs)), numerics=dict(flat.numerics))
    if isinstance(signed, str) or signed.workload.symbols or len(signed.input_order) != len(inputs):
        return None
    return dataclasses.replace(signed, workload=_generic(signed.workload))


def _generic(pinned: Workload) -> Workload:
    """A workload of 1-D tensors of `ELEMENTS` elements as one of s0 elements."""

    def specs(given: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        return tuple(dataclasses.replace(s, shape=("s0",)) if s.shape == (ELEMENTS,) else s for s in given)

    def arguments(node: WorkloadNode) -> tuple[Any, ...]:
        return tuple((SymbolArg("s0"),) if a == (ELEMENTS,) else a for a in node.args)

    nodes = tuple(dataclasses.replace(n, outputs=specs(n.outputs), args=arguments(n)) for n in pinned.nodes)
    return dataclasses.replace(
        pinned, inputs=specs(pinned.inputs), nodes=nodes, output_specs=specs(pinned.output_specs), symbols=("s0",)
    )  # fmt: skip


def _example(spec: TensorSpec) -> torch.Tensor:
    return torch.empty((ELEMENTS,) * len(spec.shape), dtype=torch_dtype(spec.dtype), device="meta")


def _described(node: Node, value: torch.Tensor) -> Node:
    node.meta["val"] = value
    return node


def _flat_node(node: WorkloadNode, outputs: tuple[TensorSpec, ...]) -> WorkloadNode | None:
    if len(outputs) != len(node.outputs):
        return None
    if node.op == "aten.full.default":
        sizes = tuple(SymbolArg(d) if isinstance(d, str) else d for d in outputs[0].shape)
        return dataclasses.replace(node, args=(sizes, *node.args[1:]), outputs=outputs)
    return dataclasses.replace(node, outputs=outputs) if is_pointwise(node.op) else None
