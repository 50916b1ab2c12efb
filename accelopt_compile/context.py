"""What surrounds a region in its graph: the region and what Inductor might fuse with it, as a workload of its own.

A kernel that wins alone can lose in the graph: where it stands Inductor fuses nothing across, so what lies at the region's
rim is stored and read once more. Whether it does shows in a part of the graph: the region, and the computations that feed
it or read it, up to what Inductor never fuses (matrix products, attention, mutations). A part needs no weights, is the same
in every layer and in other models, and compiles in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from accelopt_compile.graph_pass import Choice, choice
from accelopt_compile.kinds import Kind, classify, is_free
from accelopt_compile.literal import Unwritable, written
from accelopt_compile.records import Ref, Workload, bytes_of, canonical_json, refs_of, sha256_text
from accelopt_compile.regions import Region
from accelopt_compile.signature import Signed

MOST_NODES = 256
"""Most nodes of a context: a region and a neighbour, both as large as can be, and some more."""

_UNFUSED = (Kind.WALL, Kind.SDPA, Kind.TOPK, Kind.GEMM)
"""Kinds that Inductor calls as they are."""

_FREE = (Kind.VIEW, Kind.ITEM, Kind.CONST)


@dataclass(frozen=True, kw_only=True)
class Member:
    """A region in a context that a kernel could replace. `nodes` are indices of the context's nodes; `inputs` and `outputs`
    are values of the context in the order of the region's own workload."""

    choice: Choice
    nodes: tuple[int, ...]
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]

    def to_json(self) -> dict[str, Any]:
        digest, binding = self.choice
        return {
            "choice": [digest, dict(binding)],
            "nodes": list(self.nodes),
            "inputs": [str(r) for r in self.inputs],
            "outputs": [str(r) for r in self.outputs],
        }


@dataclass(frozen=True, kw_only=True)
class Context:
    """A part of a graph, written call by call, and the regions in it: larger ones before the parts they were merged of."""

    workload: Workload
    members: tuple[Member, ...]

    def to_json(self) -> dict[str, Any]:
        data = {"workload": self.workload.to_json(), "members": [m.to_json() for m in self.members]}
        return {"digest": sha256_text(canonical_json(data)), **data}


class NotWeighed(Exception):
    """A context was not timed, and why. `late`: there was no time for it; `faulted`: what ran there crashed; `lost`: the process
    that was to say it was killed, which says nothing of the next time."""

    def __init__(self, why: str, *, late: bool = False, faulted: bool = False, lost: bool = False) -> None:
        super().__init__(why)
        self.late, self.faulted, self.lost = late, faulted, lost


def chosen(members: Sequence[Mapping[str, Any]], winners: Iterable[Choice]) -> list[int]:
    """The members, as they are stored, that the pass would replace: those with a winner that lie in none taken before.

    >>> whole, part = {"choice": ["w", {}], "nodes": [0, 1, 2]}, {"choice": ["p", {"s0": 8}], "nodes": [1, 2]}
    >>> chosen([whole, part], [("w", ()), ("p", (("s0", 8),))]), chosen([whole, part], [("p", (("s0", 8),))])
    ([0], [1])
    """
    wanted, taken, found = set(winners), set[int](), list[int]()
    for number, member in enumerate(members):
        if choice(*member["choice"]) in wanted and not taken.issuperset(member["nodes"]):
            taken.update(member["nodes"])
            found.append(number)
    return found


OUTSIDE = -1


@dataclass(frozen=True, kw_only=True)
class Rim:
    """What lies between kernels and the rest of a context: bytes that Inductor might have kept in registers (stored by one
    side and read by the other), bytes read by both, and how many edges cross."""

    stored: int
    shared: int
    edges: int


def rim(workload: Workload, members: Sequence[Iterable[int]]) -> Rim:
    """The rim of `members` (indices of their nodes) in a context. Views and constants outside are free: who reads one reads
    what it shows."""
    home = {node: k for k, nodes in enumerate(members) for node in nodes}
    free = {k for k, node in enumerate(workload.nodes) if k not in home and is_free(node.op)}
    sides: dict[Ref, set[int]] = {}

    def shown(ref: Ref) -> list[Ref]:
        """The values that a read of `ref` reads."""
        if ref.kind == "i" or ref.index not in free:
            return [ref]
        return [base for source in refs_of(workload.nodes[ref.index].args) for base in shown(source)]

    for index, node in enumerate(workload.nodes):
        reads = refs_of((*node.args, *(value for _, value in node.kwargs))) if index not in free else []
        for ref in (base for read in reads for base in shown(read)):
            at_home = set() if ref.kind == "i" else {home.get(ref.index, OUTSIDE)}
            sides.setdefault(ref, at_home).add(home.get(index, OUTSIDE))
    kept = {base for ref in workload.outputs for base in shown(ref)}
    stored = shared = edges = 0
    for ref, across in sides.items():
        size, crossings = bytes_of(workload.spec_of(ref), {}), len(across) - 1
        edges += crossings
        if ref.kind == "i":
            shared += size * crossings
        else:
            stored += size * crossings * (1 if ref in kept else 2)
    return Rim(stored=stored, shared=shared, edges=edges)


# ---------------------------------------------------------------- cutting it out of a graph


class Surroundings:
    """A partitioned graph, from which contexts are cut. `signed` are its regions with their signatures, parts too."""

    def __init__(self, graph: Graph, regions: Sequence[Region]) -> None:
        self._nodes = list(graph.nodes)
        self._position = {node: k for k, node in enumerate(self._nodes)}
        self._kind = {node: classify(node)[0] for node in self._nodes}
        self._home: dict[Node, Region] = {}
        for region in regions:
            for node in region.nodes:
                if self._kind[node] not in _FREE:
                    self._home.setdefault(node, region)

    def of(self, region: Region, signatures: Mapping[Region, Signed]) -> Context | None:
        """The context of a region, with every region of `signatures` that lies in it; None where Inductor can fuse nothing
        with it, or where it cannot be written down."""
        if any(self._kind[node] in _UNFUSED for node in region.nodes):
            return None
        members = self._grown(region)
        if len(members) == len(region.nodes) and not region.parts:
            return None
        nodes = sorted(members, key=self._position.__getitem__)
        reads = dict.fromkeys(s for n in nodes for s in n.all_input_nodes if s not in members and _is_tensor(s))
        yields = [n for n in nodes if _is_tensor(n) and any(user not in members for user in n.users)]
        try:
            workload, refs = written(nodes, list(reads), yields)
        except (Unwritable, KeyError):
            return None
        inside = [r for r in signatures if members.issuperset(r.nodes)]
        inside.sort(key=lambda r: (-len(r.nodes), self._position[r.nodes[0]]))
        return Context(workload=workload, members=tuple(_member(r, signatures[r], refs) for r in inside))

    def _grown(self, region: Region) -> set[Node]:
        """The region and its neighbours, as long as nothing outside lies between them."""
        members = set(region.nodes)
        for unit in self._neighbours(region):
            closed = self._closed(members | unit)
            if closed is not None and len(closed) <= MOST_NODES:
                members = closed
        return self._with_constants(members)

    def _neighbours(self, region: Region) -> list[set[Node]]:
        """What feeds or reads the region, through views: whole regions, or calls that no region holds. The views on the way
        come with them."""
        found: list[set[Node]] = []
        seen = set(region.nodes)
        for towards in ("all_input_nodes", "users"):
            queue = [(near, frozenset[Node]()) for node in region.nodes for near in getattr(node, towards)]
            for node, way in queue:  # grows while it is walked
                if node in seen or self._kind[node] in _UNFUSED:
                    continue
                seen.add(node)
                if self._kind[node] in _FREE:
                    queue += [(far, way | {node}) for far in getattr(node, towards)]
                    continue
                home = self._home.get(node)
                unit = {node} if home is None else set(home.nodes)
                seen |= unit
                if not any(self._kind[n] in _UNFUSED for n in unit):
                    found.append(unit | way)
        return found

    def _closed(self, members: set[Node]) -> set[Node] | None:
        """`members` with all that lies on a way from one of them to another; None where a wall does."""
        first, last = (f(self._position[n] for n in members) for f in (min, max))
        after: set[Node] = set()
        for node in self._nodes[first : last + 1]:
            if node not in members and any(s in members or s in after for s in node.all_input_nodes):
                after.add(node)
        before: set[Node] = set()
        for node in reversed(self._nodes[first : last + 1]):
            if node in after and any(user in members or user in before for user in node.users):
                before.add(node)
        return None if any(self._kind[n] in _UNFUSED for n in before) else members | before

    def _with_constants(self, members: set[Node]) -> set[Node]:
        constants = {s for n in members for s in n.all_input_nodes if self._kind[s] is Kind.CONST}
        return members | constants


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _member(region: Region, signed: Signed, refs: Mapping[Node, Ref]) -> Member:
    return Member(
        choice=choice(signed.workload.digest, signed.binding),
        nodes=tuple(sorted({refs[n].index for n in region.nodes})),
        inputs=tuple(refs[region.inputs[i]] for i in signed.input_order),
        outputs=tuple(refs[region.outputs[i]] for i in signed.output_order),
    )
