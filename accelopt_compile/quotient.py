"""The graph of cones: merges a cone into a consumer while the graph of regions stays acyclic.

Keeps a topological order of the contracted graph and repairs only the window between the two ends of a merge, so that a
merge costs what lies between them, not the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch.fx import Node

from accelopt_compile.kinds import is_view
from accelopt_compile.nodes import op_name, packet_name

Cone = list[Node]


@dataclass(eq=False)
class _Vertex:
    """A set of cones (or one other node) in the contracted graph."""

    cones: list[Cone] = field(default_factory=list)
    before: dict[_Vertex, None] = field(default_factory=dict)
    after: dict[_Vertex, None] = field(default_factory=dict)
    rank: int = 0
    look: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(len(cone) for cone in self.cones)


class Quotient:
    """Contracts each cone of a graph to a vertex. The cones must be convex (fanout-free ones are)."""

    def __init__(self, nodes: list[Node], position: dict[Node, int], cones: list[Cone]) -> None:
        self._home: dict[Node, _Vertex] = {}
        for cone in cones:
            vertex = _Vertex(cones=[cone], look=_look(cone))
            self._home.update(dict.fromkeys(cone, vertex))
        for node in nodes:
            self._home.setdefault(node, _Vertex())
        for node in nodes:
            here = self._home[node]
            for source in node.all_input_nodes:
                there = self._home[source]
                if there is not here:
                    here.before.setdefault(there)
                    there.after.setdefault(here)
        self._order = self._sorted(nodes)

    def merge(self, allowed: Callable[[Cone, Cone], bool], cap: int) -> list[tuple[Cone, ...]]:
        """Merge each region into the consumers that it alone feeds of their kind; returns the groups of cones."""
        for vertex in [v for v in self._order if v.cones]:
            current: _Vertex | None = vertex if vertex.cones else None
            while current is not None:
                current = self._merge_once(current, allowed, cap)
        return [tuple(v.cones) for v in self._order if v is not None and v.cones]

    def _merge_once(self, producer: _Vertex, allowed: Callable[[Cone, Cone], bool], cap: int) -> _Vertex | None:
        consumers = sorted((v for v in producer.after if v.cones), key=lambda v: v.rank)
        for consumer in consumers:
            alike = sum(other.look == consumer.look for other in consumers)
            if alike != 1 or producer.size + consumer.size > cap:
                continue
            flat = [[n for cone in v.cones for n in cone] for v in (producer, consumer)]
            if allowed(*flat) and self._contract(producer, consumer):
                return consumer
        return None

    def _contract(self, producer: _Vertex, consumer: _Vertex) -> bool:
        """Merge when no path leads from one to the other through a third vertex; whether it was done."""
        low, high = producer.rank, consumer.rank
        reached: dict[_Vertex, None] = {}
        stack = [v for v in producer.after if v is not consumer and v.rank < high]
        while stack:
            vertex = stack.pop()
            if vertex in reached:
                continue
            if consumer in vertex.after:
                return False
            reached[vertex] = None
            stack.extend(v for v in vertex.after if v.rank < high)
        window = list(self._order[low + 1 : high])
        repaired = [*(v for v in window if v not in reached), consumer, *(v for v in window if v in reached)]
        for offset, vertex in enumerate(repaired):
            self._order[low + 1 + offset] = vertex
            vertex.rank = low + 1 + offset
        self._absorb(producer, consumer)
        return True

    def _absorb(self, producer: _Vertex, consumer: _Vertex) -> None:
        consumer.cones = [*producer.cones, *consumer.cones]
        consumer.look = producer.look + consumer.look
        producer.cones = []
        for source in producer.before:
            source.after.pop(producer)
            source.after.setdefault(consumer)
            consumer.before.setdefault(source)
        for target in producer.after:
            target.before.pop(producer)
            if target is not consumer:
                target.before.setdefault(consumer)
                consumer.after.setdefault(target)
        producer.before.clear()
        producer.after.clear()

    def _sorted(self, nodes: list[Node]) -> list[_Vertex]:
        """Kahn's algorithm over the vertices, in the graph's order."""
        missing = {v: len(v.before) for v in dict.fromkeys(self._home[n] for n in nodes)}
        ready = [v for v, count in reversed(missing.items()) if count == 0]
        order: list[_Vertex] = []
        while ready:
            vertex = ready.pop()
            vertex.rank = len(order)
            order.append(vertex)
            for target in vertex.after:
                missing[target] -= 1
                if missing[target] == 0:
                    ready.append(target)
        assert len(order) == len(missing), "the cones of a graph without cycles have no cycle"
        return order


def _look(cone: Cone) -> tuple[str, ...]:
    """What a cone computes, without sizes and views: rotary embeddings of queries and of fewer keys look alike."""
    return tuple(op_name(n) for n in cone if packet_name(n) and not is_view(n))
