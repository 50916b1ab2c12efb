"""Cuts a graph of functional ATen into regions worth a kernel: maximum fanout-free cones, merged uniformly.

The method is generic, without a list of patterns. Nodes are visited from the outputs back; a computation that no region
owns starts a cone, and a producer joins it when all its users are in the cone (being a graph output, or being written
back by `copy_`, does not count as a use: such values become further outputs of the region). Then a region is merged into
the consumer that it feeds when nothing outside lies between them and no other consumer looks alike, so that residual add
and norm become one, while the cosines of rotary embeddings, which feed every layer, stay on their own.
Where a backend takes matrix products, regions around those come first (products.py); the others are walls. What of a merged
group is kept, and whether it is a region at all, is said in regions.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch.fx import Graph, Node

from accelopt_backends.base import NO_PRODUCTS, Products
from accelopt_compile.kinds import ALONE, UNMERGED, Kind, classify, unit
from accelopt_compile.nodes import is_sink, packet_name
from accelopt_compile.products import product_cones, refused_product
from accelopt_compile.quotient import Quotient
from accelopt_compile.regions import Region, RegionBuilder

NODE_CAP = 96
"""Most FX nodes in a region."""

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


@dataclass(frozen=True, kw_only=True)
class Partition:
    """`regions` in topological order; `refused` says of every call outside them why it is there."""

    regions: tuple[Region, ...]
    refused: Mapping[str, str]


def partition(graph: Graph, *, products: Products = NO_PRODUCTS) -> Partition:
    """Cut `graph`. Every node needs `meta["val"]`. Matrix products that are not among `products` are walls."""
    return _Partitioner(graph, products).run()


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
        self.builder = RegionBuilder(self.nodes, self.position, self.kind, self.refused)
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
            region = self.builder.build([piece for cone in group for piece in self.pieces.get(cone[0], [cone])])
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

    def _grow(self, root: Node) -> None:
        index = len(self.cones)
        cone = unit(root, self.kind)
        members = set(cone)
        queue = list(reversed(root.all_input_nodes))
        while queue:
            node = queue.pop()
            call = node.args[0] if self.kind[node] is Kind.ITEM else node
            assert isinstance(call, Node)
            if call in members or call in self.owner or not self._absorbable(call, self.kind[root]):
                continue
            joining = unit(call, self.kind)
            if len(cone) + len(joining) > NODE_CAP or not self._all_users_in(joining, members):
                continue
            cone.extend(joining)
            members.update(joining)
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
        if kind in (Kind.WALL, Kind.CONST, *ALONE):
            return False  # constants are copied into each region that reads them, see regions.py
        if root not in ALONE or kind is Kind.VIEW:
            return True
        return (
            packet_name(node) in _LIGHT if root is Kind.SDPA else packet_name(node) in _SCALING and len(node.all_input_nodes) == 1
        )

    def _all_users_in(self, joining: list[Node], members: set[Node]) -> bool:
        inside = members.union(joining)
        return all(user in inside or is_sink(user) for node in joining for user in node.users)

    # ------------------------------------------------------------ merging

    def _may_merge(self, producer: list[Node], consumer: list[Node]) -> bool:
        return not any(self.kind[node] in UNMERGED for node in (*producer, *consumer))
