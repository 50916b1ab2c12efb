"""Cuts a graph of functional ATen into regions worth a kernel: maximum fanout-free cones, merged uniformly.

The method is generic, without a list of patterns. Nodes are visited from the outputs back; a computation that no region
owns starts a cone, and a producer joins it when all its users are in the cone (being a graph output, or being written
back by `copy_`, does not count as a use: such values become further outputs of the region). Then a region is merged into
the consumer that it feeds when nothing outside lies between them and no other consumer looks alike, so that residual add
and norm become one, while the cosines of rotary embeddings, which feed every layer, stay on their own.
Where a backend takes matrix products, regions around those come first (products.py); the others are walls.
Regrouping views at the rim stay outside: they are free, and without them a region's outputs own their storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch.fx import Graph, Node

from accelopt_backends.base import NO_PRODUCTS, Products
from accelopt_compile.convolutions import laid_out_by_inductor
from accelopt_compile.kinds import RESHAPES, Kind, classify
from accelopt_compile.nodes import op_name, packet_name, results, sources
from accelopt_compile.products import product_cones, refused_product
from accelopt_compile.quotient import Quotient
from accelopt_compile.sizes import is_dense, numel
from accelopt_compile.tails import without_tail

NODE_CAP = 96
"""Most FX nodes in a region."""

TINY = 4096
"""A single pointwise call on fewer elements is never worth a kernel of its own."""

_LIGHT = {
    "aten.clone",
    "aten.where",
    "aten.bitwise_and",
    "aten.logical_and",
    "aten.logical_not",
    "aten.le",
    "aten.ge",
    "aten.gt",
    "aten.lt",
}
"""Pointwise calls that an attention region may absorb from its mask and layout producers."""

_SCALING = {"prims.convert_element_type", "aten.mul", "aten.div", "aten.add", "aten.sub", "aten.neg"}
"""Pointwise calls that a top-k may absorb when they take one tensor: they keep or turn the order of the elements."""

_ALONE = (Kind.SDPA, Kind.TOPK)
"""Kinds with kernels of their own: never absorbed, never merged, and choosy about what they absorb."""

_UNMERGED = (*_ALONE, Kind.GEMM)


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


@dataclass(frozen=True, kw_only=True)
class Partition:
    """`regions` in topological order; `refused` says of every call outside them why it is there."""

    regions: tuple[Region, ...]
    refused: Mapping[str, str]


def partition(graph: Graph, *, products: Products = NO_PRODUCTS) -> Partition:
    """Cut `graph`. Every node needs `meta["val"]`. Matrix products that are not among `products` are walls."""
    return _Partitioner(graph, products).run()


def nested(region: Region) -> tuple[Region, ...]:
    """The smaller regions that `region` was merged from; together they are an alternative to it."""
    return region.parts


class _Partitioner:
    def __init__(self, graph: Graph, products: Products) -> None:
        self.nodes = list(graph.nodes)
        self.position = {node: i for i, node in enumerate(self.nodes)}
        self.kind: dict[Node, Kind] = {}
        self.refused: dict[str, str] = {}
        for node in self.nodes:
            kind, why = classify(node)
            if kind is Kind.GEMM and (refusal := refused_product(node, products)):
                kind, why = Kind.WALL, refusal
            self.kind[node] = kind
            if why and node.op == "call_function":
                self.refused[node.name] = why
        self.turned = laid_out_by_inductor(self.nodes, self.kind)
        self.mutations = [i for i, n in enumerate(self.nodes) if _is_mutation(n)]
        self.owner: dict[Node, int] = {}
        self.cones: list[list[Node]] = []
        self.pieces: dict[Node, list[list[Node]]] = {}
        if products.most > 0:
            self._grow_products(products)

    def run(self) -> Partition:
        for node in reversed(self.nodes):
            if node not in self.owner and self.kind[node] not in (Kind.WALL, Kind.VIEW, Kind.CONST, Kind.ITEM):
                self._grow(node)
        groups = Quotient(self.nodes, self.position, self.cones).merge(self._may_merge, NODE_CAP)
        regions = []
        for group in groups:
            region = self._build(group)
            if region is not None:
                regions.append(region)
        regions.sort(key=lambda r: self.position[r.nodes[-1]])
        covered = {node for region in regions for node in region.nodes}
        for node in self.nodes:
            if node.op == "call_function" and node not in covered:
                self.refused.setdefault(node.name, "a view or constant outside every region")
        refused = {name: why for name, why in self.refused.items() if name not in {n.name for n in covered}}
        return Partition(regions=tuple(regions), refused=refused)

    # ------------------------------------------------------------ cones

    def _grow_products(self, products: Products) -> None:
        """The cones of products. Each can be taken apart into its prologue and the rest."""
        for found in product_cones(self.nodes, self.kind, self.position, products):
            cone = sorted((*found.prologue, *found.body), key=self.position.__getitem__)
            self.owner.update(dict.fromkeys(cone, len(self.cones)))
            self.cones.append(cone)
            if found.prologue:
                self.pieces[cone[0]] = [list(found.prologue), list(found.body)]
        for node in self.nodes:
            if self.kind[node] is Kind.GEMM and node not in self.owner:
                self.kind[node] = Kind.WALL
                self.refused[node.name] = f"{packet_name(node)} with nothing to fuse is left to the library"

    def _unit(self, node: Node) -> list[Node]:
        """A call and its `getitem`s, which go together."""
        return [node, *(user for user in node.users if self.kind[user] is Kind.ITEM)]

    def _grow(self, root: Node) -> None:
        index = len(self.cones)
        cone = self._unit(root)
        members = set(cone)
        queue = list(reversed(root.all_input_nodes))
        while queue:
            node = queue.pop()
            call = node.args[0] if self.kind[node] is Kind.ITEM else node
            assert isinstance(call, Node)
            if call in members or call in self.owner or not self._absorbable(call, self.kind[root]):
                continue
            unit = self._unit(call)
            if len(cone) + len(unit) > NODE_CAP or not self._all_users_in(unit, members):
                continue
            cone.extend(unit)
            members.update(unit)
            queue.extend(reversed(call.all_input_nodes))
            # a producer refused earlier may be allowed now that one more of its users is in
            queue.extend(n for n in call.all_input_nodes)
        cone.sort(key=self.position.__getitem__)
        for node in cone:
            self.owner[node] = index
        self.cones.append(cone)

    def _absorbable(self, node: Node, root: Kind) -> bool:
        """Whether a cone with a root of that kind may absorb the node."""
        kind = self.kind[node]
        if kind in (Kind.WALL, Kind.CONST, *_ALONE):
            return False  # constants are copied into each region that reads them, see _build
        if root not in _ALONE or kind is Kind.VIEW:
            return True
        return (
            packet_name(node) in _LIGHT if root is Kind.SDPA else packet_name(node) in _SCALING and len(node.all_input_nodes) == 1
        )

    def _all_users_in(self, unit: list[Node], members: set[Node]) -> bool:
        inside = members.union(unit)
        return all(user in inside or _is_sink(user) for node in unit for user in node.users)

    # ------------------------------------------------------------ merging

    def _may_merge(self, producer: list[Node], consumer: list[Node]) -> bool:
        return not self._unmerged((*producer, *consumer))

    def _unmerged(self, nodes: Iterable[Node]) -> bool:
        return any(self.kind[node] in _UNMERGED for node in nodes)

    # ------------------------------------------------------------ building

    def _build(self, group: tuple[list[Node], ...]) -> Region | None:
        """The region of merged cones; None, with a reason for each node, when it is not worth or not allowed."""
        members = sorted((n for cone in group for n in cone), key=self.position.__getitem__)
        body = members if self._unmerged(members) else without_tail(members, self.kind)
        inside = set(body)
        self.refused.update({n.name: "a reduction of few values, behind a region" for n in members if n not in inside})
        pieces = [piece for cone in group for piece in self.pieces.get(cone[0], [cone])]
        group = tuple(kept for piece in pieces if (kept := [n for n in piece if n in inside]))
        region = self._region(body)
        why = self._region_refusal(region)
        if why:
            if len(group) > 1:
                return None if (part := self._first_part(group)) is None else part
            self.refused.update({node.name: why for node in body})
            return None
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
        return all(user in inside or self.kind[user] not in (Kind.WALL, Kind.VIEW, *_ALONE) for user in node.users)

    def _copies_of(self, kept: list[Node], inside: set[Node]) -> list[Node]:
        """The constants and widened values that the nodes read. They cost nothing, so each region has its own."""
        found: dict[Node, None] = {}
        alone = any(self.kind[node] in _ALONE for node in kept)
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
                inside.difference_update(self._unit(node))
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
        unit = set(self._unit(node))
        return [user for n in unit for user in n.users if user not in unit]

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
        if not self.turned.isdisjoint((*region.inputs, *region.outputs)):
            return "Inductor lays it out channels last, for a convolution"
        for node in region.outputs:
            if not is_dense(node.meta["val"]):
                return f"output {node.name} is not dense"
        return ""


def _is_sink(user: Node) -> bool:
    """The graph's output, or the write-back of a mutated argument: no computation reads the value there."""
    return user.op == "output" or (user.target is torch.ops.aten.copy_.default and all(u.op == "output" for u in user.users))


def _is_mutation(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
