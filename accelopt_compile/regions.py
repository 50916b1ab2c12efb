"""Regions, and what a group of cones becomes as one: which of its nodes it keeps, what it reads and yields, or why it is none.

Regrouping views at the rim stay outside: they are free, and without them a region's outputs own their storage. Constants and
widened values cost nothing, so each region that reads them has its own; and who reads such a value, or a view of what a region
yields, from outside, reads it of the region's result: a view stays a view of it.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.fx import Node

from accelopt_compile.convolutions import laid_out_by_inductor
from accelopt_compile.kinds import ALONE, RESHAPES, UNMERGED, Kind, unit
from accelopt_compile.nodes import op_name, packet_name, results, sources
from accelopt_compile.sizes import is_dense, numel
from accelopt_compile.tails import without_tail

TINY = 4096
"""A single pointwise call on fewer elements is never worth a kernel of its own."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """A convex set of nodes, topologically ordered, with the tensors it reads and those it yields.

    `parts` are the unmerged cones it was made of (empty for a cone).
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    parts: tuple[Region, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """Name of its last node, for messages."""
        return self.outputs[-1].name


def nested(region: Region) -> tuple[Region, ...]:
    """The smaller regions that `region` was merged from; together they are an alternative to it."""
    return region.parts


class RegionBuilder:
    """Builds the regions of one graph. Why something is none goes to `refused`, by the name of the node."""

    def __init__(
        self, nodes: Sequence[Node], position: Mapping[Node, int], kind: Mapping[Node, Kind], refused: dict[str, str]
    ) -> None:
        self.position, self.kind, self.refused = position, kind, refused
        self.turned = laid_out_by_inductor(nodes, kind)
        self.mutations = [i for i, n in enumerate(nodes) if _is_mutation(n)]
        self.ordered = [i for i, n in enumerate(nodes) if _keeps_its_order(n)]

    def build(self, cones: Sequence[list[Node]]) -> Region | None:
        """The region of merged cones; None, with a reason for each node, when it is not worth or not allowed."""
        members = sorted((n for cone in cones for n in cone), key=self.position.__getitem__)
        body = members if any(self.kind[node] in UNMERGED for node in members) else without_tail(members, self.kind)
        inside = set(body)
        self.refused.update({n.name: "a reduction of few values, behind a region" for n in members if n not in inside})
        group = tuple(kept for cone in cones if (kept := [n for n in cone if n in inside]))
        region = self._region(body)
        why = self._region_refusal(region)
        if why:
            self.refused.update({node.name: why for node in body})  # what a part keeps all the same is taken out at the end
            return self._first_part(group) if len(group) > 1 else None
        if len(group) == 1:
            return region
        parts = tuple(part for cone in group if not self._region_refusal(part := self._region(cone)))
        return Region(nodes=region.nodes, inputs=region.inputs, outputs=region.outputs, parts=parts)

    def _first_part(self, group: tuple[list[Node], ...]) -> Region | None:
        """A merged region was refused: keep the largest of its cones that is none."""
        for cone in sorted(group, key=len, reverse=True):
            part = self._region(cone)
            if not self._region_refusal(part):
                return part
        return None

    def _region(self, members: list[Node]) -> Region:
        kept = self._without_rim(members)
        kept_set = set(kept)
        constants = self._copies_of(kept, kept_set)
        nodes = sorted((*constants, *kept), key=self.position.__getitem__)
        inside = set(nodes)
        inputs: dict[Node, None] = {}
        for node in nodes:
            for source in sources(node):
                if source not in inside and isinstance(source.meta.get("val"), torch.Tensor):
                    inputs.setdefault(source)
        given = {n for n in kept if self._widens(n) and self._leaves(n, inside) and self._only_computed_with(n, inside)}
        for node in reversed(kept):
            call = node.all_input_nodes[0] if self.kind[node] is Kind.ITEM else node
            shows = self.kind[call] is Kind.VIEW and all(source in inside for source in call.all_input_nodes)
            if shows and (self._leaves(node, inside) or not given.isdisjoint(node.users)):
                given.add(node)
        outputs = [n for n in kept if n not in given and (self._leaves(n, inside) or not given.isdisjoint(n.users))]
        return Region(nodes=tuple(nodes), inputs=tuple(inputs), outputs=tuple(outputs))

    def _leaves(self, node: Node, inside: set[Node]) -> bool:
        return isinstance(node.meta.get("val"), torch.Tensor) and any(user not in inside for user in node.users)

    def _widens(self, node: Node) -> bool:
        """A conversion from 16 bits to 32: free where it is read, twice the traffic where it is stored."""
        if packet_name(node) != "prims.convert_element_type" or self.kind[node] is not Kind.POINTWISE:
            return False
        source = node.all_input_nodes[0].meta["val"]
        return source.dtype in (torch.bfloat16, torch.float16) and node.meta["val"].dtype is torch.float32

    def _only_computed_with(self, node: Node, inside: set[Node]) -> bool:
        """Whether everything outside that reads the node may have its own copy of it."""
        return all(user in inside or self.kind[user] not in (Kind.WALL, Kind.VIEW, *ALONE) for user in node.users)

    def _copies_of(self, kept: list[Node], inside: set[Node]) -> list[Node]:
        """The constants and widened values that the nodes read. They cost nothing, so each region has its own."""
        found: dict[Node, None] = {}
        alone = any(self.kind[node] in ALONE for node in kept)
        for node in kept:
            for source in sources(node):
                free = self.kind[source] is Kind.CONST or (not alone and self._widens(source))
                if free and source not in inside:
                    found.setdefault(source)
        return list(found)

    def _without_rim(self, members: list[Node]) -> list[Node]:
        """Drop trailing views, and leading views that only regroup dimensions or that others see as well."""
        inside = set(members)
        for node in reversed(members):
            if self.kind[node] is Kind.VIEW and not any(user in inside for user in self._users_of_unit(node)):
                inside.difference_update(unit(node, self.kind))
        rim: dict[Node, None] = {}  # views of what the region reads
        for node in members:
            if node in inside and self.kind[node] in (Kind.VIEW, Kind.ITEM):
                sources = node.all_input_nodes
                if all((s in rim or s not in inside) and self.kind[s] is not Kind.CONST for s in sources):
                    rim[node] = None
        for node in reversed(rim):
            bare = self._regroups(node) and not any(s in inside for s in node.all_input_nodes)
            if bare or any(user not in inside for user in node.users):
                inside.discard(node)
        for node in rim:  # what is bare now
            movable = self._regroups(node) or self.kind[node] is Kind.ITEM
            if node in inside and movable and not any(s in inside for s in node.all_input_nodes):
                inside.discard(node)
        return [node for node in members if node in inside]

    def _regroups(self, node: Node) -> bool:
        """Whether a leading view may stay outside: one that only regroups, but for a product's rows (see products.py)."""
        return packet_name(node) in RESHAPES and not any(self.kind[user] is Kind.GEMM for user in node.users)

    def _users_of_unit(self, node: Node) -> list[Node]:
        together = set(unit(node, self.kind))
        return [user for n in together for user in n.users if user not in together]

    def _read_early(self, region: Region, last: int) -> bool:
        """Whether somebody outside reads a result before the last node, behind which the region's one call will stand."""
        inside = set(region.nodes)
        return any(self.position.get(u, last) < last for node in region.outputs for u in node.users if u not in inside)

    def _region_refusal(self, region: Region) -> str:
        computing = [n for n in region.nodes if self.kind[n] not in (Kind.VIEW, Kind.CONST, Kind.ITEM)]
        if not computing or not region.outputs:
            return "only views and constants"
        if not region.inputs:
            return "reads no tensor"
        largest = max(numel(n.meta["val"]) for n in (*region.inputs, *region.outputs))
        if len(computing) == 1 and self.kind[computing[0]] is Kind.POINTWISE and largest < TINY:
            return f"one {op_name(computing[0])} on {largest} elements is not worth a kernel"
        devices = {v.device for n in (*region.inputs, *region.nodes) for v in results(n) if isinstance(v, torch.Tensor)}
        if len(devices) > 1:
            return "tensors on several devices"
        first, last = self.position[region.nodes[0]], self.position[region.nodes[-1]]
        if any(first < i < last for i in self.mutations):
            return "a mutation lies between its nodes"
        if any(first < i < last for i in self.ordered) and self._read_early(region, last):
            return (
                "a random draw, a collective or a custom operator lies between its nodes, and a reader of it would move past that"
            )
        if not self.turned.isdisjoint((*region.inputs, *region.outputs)):
            return "Inductor lays it out channels last, for a convolution"
        for node in region.outputs:
            if not is_dense(node.meta["val"]):
                return f"output {node.name} is not dense"
        return ""


def _is_mutation(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _keeps_its_order(node: Node) -> bool:
    """Whether a call has to stay before or behind others that it shares no tensor with: it draws from the generator of all, or is
    a collective (which all processes must begin in one order), or something that nobody here knows."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return isinstance(node.target, torch._ops.HigherOrderOperator)
    return torch.Tag.nondeterministic_seeded in node.target.tags or node.target.namespace not in ("aten", "prims")
