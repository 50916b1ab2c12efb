"""Regions around matrix products: the products, what is done to their result at once, and what feeds only them.

A cone of products is grown before all others (partition.py). Forwards, its epilogue: the longest run of element-wise calls
and views, on all of the product's elements or on parts of them side by side, that ends in one value. Two products of one
left operand share a cone where that run joins them (the gate and the other half of a gated unit); projections that nothing
joins stay apart. Then backwards, its prologue: what feeds nothing but the product, as long as it does not make the
product read much more (a norm, a weight that is stored in few bits). A product with neither is left to the library, unless
it has so few rows that its time is that of reading the right operand (`Products.rows`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from accelopt_backends.base import Products
from accelopt_compile.kinds import RESHAPES, Kind
from accelopt_compile.nodes import is_sink, packet_name, values
from accelopt_compile.sizes import hint, numel

MOST_EPILOGUE = 48
"""Nodes of an epilogue at most, views included."""

_OPERANDS = {"aten.mm": (0, 1), "aten.bmm": (0, 1), "aten.addmm": (1, 2), "aten.baddbmm": (1, 2)}
"""Where a product's left and right operand stand among its arguments."""

_REGROUPS = {*RESHAPES, "aten.permute", "aten.transpose", "aten.t", "aten.clone", "aten.alias"}
_PARTS = {f"aten.{n}" for n in ["slice", "split", "split_with_sizes", "select", "unbind"]}
_NARROW = (torch.int8, torch.uint8)


@dataclass(frozen=True, kw_only=True)
class ProductCone:
    """`body` holds the products and their epilogue, `prologue` what feeds only them; each in the graph's order."""

    body: tuple[Node, ...]
    prologue: tuple[Node, ...]


def refused_product(node: Node, limits: Products) -> str:
    """Why no region may hold this product, or ""."""
    if limits.most == 0:
        return f"{packet_name(node)} is in no class of operators that a region may hold"
    dtype = node.meta["val"].dtype
    if dtype.itemsize > limits.widest:
        return f"{packet_name(node)} in {str(dtype).removeprefix('torch.')} is left to the library"
    left = node.args[_OPERANDS[packet_name(node)][0]]
    assert isinstance(left, Node)
    rows = left.meta["val"].shape[-2]
    if limits.rows is not None and not (isinstance(rows, int) and rows <= limits.rows):
        return f"{packet_name(node)} of more than {limits.rows} rows, or nobody knows how many, is left to the library"
    return ""


def product_cones(
    nodes: list[Node], kind: Mapping[Node, Kind], position: Mapping[Node, int], limits: Products
) -> list[ProductCone]:
    """Disjoint cones of the products. A product in none has nothing to be fused with."""
    taken: set[Node] = set()
    bodies: list[set[Node]] = []
    products = [node for node in nodes if kind[node] is Kind.GEMM]
    for node in products:
        if node in taken:
            continue
        groups = _groups(node, products, taken, limits.most) if limits.rows is None else ()
        body = next((found for group in groups if (found := _joined(group, kind, taken))), None)
        bodies.append({node} if body is None else body)
        taken |= bodies[-1]
    cones = []
    for body in bodies:
        prologue = _prologue(body, kind, taken, left=limits.rows is None)
        taken |= prologue
        if len(body) > 1 or prologue or limits.rows is not None:
            body |= _regrouped(body | prologue, kind, taken)
            taken |= body
            cones.append(ProductCone(body=_in_order(body, position), prologue=_in_order(prologue, position)))
    return cones


def _in_order(members: set[Node], position: Mapping[Node, int]) -> tuple[Node, ...]:
    return tuple(sorted(members, key=position.__getitem__))


# ---------------------------------------------------------------- forwards


def _groups(node: Node, products: list[Node], taken: set[Node], budget: int) -> Iterator[tuple[Node, ...]]:
    """The products that `node` may share a cone with, the largest groups first, then it alone."""
    left = _left(node)
    alike = [
        other
        for other in products
        if other not in taken and other is not node and _left(other) is left and _same_result(node, other)
    ]
    for size in range(min(budget, len(alike) + 1), 1, -1):
        for others in itertools.combinations(alike[:4], size - 1):
            yield (node, *others)
    yield (node,)


def _left(product: Node) -> Node:
    """The left operand, without the views that regroup it: every linear layer has one of its own."""
    node = product.args[_OPERANDS[packet_name(product)][0]]
    assert isinstance(node, Node)
    while packet_name(node) in RESHAPES:
        node = node.all_input_nodes[0]
    return node


def _same_result(a: Node, b: Node) -> bool:
    left, right = a.meta["val"], b.meta["val"]
    return left.dtype == right.dtype and [hint(s) for s in left.shape] == [hint(s) for s in right.shape]


def _joined(group: tuple[Node, ...], kind: Mapping[Node, Kind], taken: set[Node]) -> set[Node] | None:
    """The products with the longest epilogue that leaves one value; None where there is none that joins them all."""
    reach = _reach(group, kind, taken)
    for end in reversed(reach):
        if kind[end] is not Kind.POINTWISE:
            continue
        body = _between(group, end, reach)
        if set(group) <= body and all(user in body or is_sink(user) for n in body if n is not end for user in n.users):
            return body
    return None


def _reach(group: tuple[Node, ...], kind: Mapping[Node, Kind], taken: set[Node]) -> list[Node]:
    """What may be done to the products' results in one pass over them, producers first."""
    elements = {numel(group[0].meta["val"])}
    found: dict[Node, None] = dict.fromkeys(group)
    queue = [user for node in group for user in node.users]
    while queue and len(found) <= MOST_EPILOGUE:
        node = queue.pop(0)
        if node in found or node in taken or not _follows(node, kind, elements):
            continue
        found[node] = None
        if packet_name(node) in _PARTS:
            elements.update(numel(part) for part in values(node))
        queue.extend(node.users)
    order = {node: place for place, node in enumerate(group[0].graph.nodes)} if len(found) > len(group) else {}
    return sorted((n for n in found if n not in group), key=order.__getitem__)


def _follows(node: Node, kind: Mapping[Node, Kind], elements: set[int]) -> bool:
    """Whether a call may be part of an epilogue; `elements` are the sizes of the result and of its parts so far."""
    if node.op != "call_function" or kind[node] is Kind.WALL:
        return False
    if kind[node] is Kind.ITEM or packet_name(node) in _PARTS:
        return kind[node] is not Kind.ITEM or packet_name(node.all_input_nodes[0]) in _PARTS
    regroups = kind[node] is Kind.VIEW and packet_name(node) in _REGROUPS
    return (regroups or kind[node] is Kind.POINTWISE) and numel(node.meta["val"]) in elements


def _between(group: tuple[Node, ...], end: Node, reach: list[Node]) -> set[Node]:
    """The products that `end` is computed from, and all that lies between."""
    inside, wanted = {*reach, *group}, {end}
    stack = [end]
    while stack:
        for source in stack.pop().all_input_nodes:
            if source in inside and source not in wanted:
                wanted.add(source)
                stack.extend([source] if source not in group else [])
    return wanted


# ---------------------------------------------------------------- backwards


def _prologue(body: set[Node], kind: Mapping[Node, Kind], taken: set[Node], *, left: bool) -> set[Node]:
    """What feeds only these products and is cheap to do again for every tile; behind the left operand only with `left`."""
    operands: list[list[Any]] = [[n.args[place] for place in _OPERANDS[packet_name(n)]] for n in body if kind[n] is Kind.GEMM]
    found: set[Node] = set()
    behind_left = [([first for first, _ in operands], _LEFT)] if left else []
    for roots, allowed in (*behind_left, *(([second], _RIGHT) for _, second in operands)):
        grown = _fed(roots, body | found, kind, taken, allowed)
        if any(kind[n] not in (Kind.VIEW, Kind.ITEM) for n in grown) and _reads_little(roots[0], grown):
            found |= grown
    return found


def _regrouped(members: set[Node], kind: Mapping[Node, Kind], taken: set[Node]) -> set[Node]:
    """Views that only regroup a left operand's rows and that nobody else reads: with them inside, the region's inputs show
    how its rows are made up (batch and time), and the sizes stay free."""
    lefts = {n.args[_OPERANDS[packet_name(n)][0]] for n in members if kind[n] is Kind.GEMM}
    return {
        n
        for n in lefts
        if isinstance(n, Node)
        and n not in taken
        and n not in members
        and packet_name(n) in RESHAPES
        and all(user in members for user in n.users)
    }


_LEFT = (Kind.POINTWISE, Kind.REDUCTION, Kind.VIEW, Kind.ITEM)
_RIGHT = (Kind.POINTWISE, Kind.VIEW)


def _fed(
    roots: list[Node], members: set[Node], kind: Mapping[Node, Kind], taken: set[Node], allowed: tuple[Kind, ...]
) -> set[Node]:
    """The nodes behind `roots` of which nothing outside sees anything."""
    grown: set[Node] = set()
    queue = list(roots)
    while queue:
        node = queue.pop(0)
        call = node.args[0] if kind[node] is Kind.ITEM else node
        assert isinstance(call, Node)
        if call in grown or call in taken or not _may_feed(call, kind, allowed):
            continue
        unit = {call, *(user for user in call.users if kind[user] is Kind.ITEM)}
        inside = members | grown | unit
        if any(user not in inside for n in unit for user in n.users):
            continue
        grown |= unit
        queue.extend(call.all_input_nodes)
    return grown


def _may_feed(node: Node, kind: Mapping[Node, Kind], allowed: tuple[Kind, ...]) -> bool:
    """Low and high halves of bytes that are put side by side are a cat; other gathers stay outside."""
    return kind[node] in allowed or (
        Kind.REDUCTION not in allowed and packet_name(node) == "aten.cat" and node.meta["val"].dtype in _NARROW
    )


def _reads_little(operand: Node, grown: set[Node]) -> bool:
    """Whether the tensors behind the prologue that are about as large as its result are one, or no more bytes than it."""
    result = operand.meta["val"]
    sources = {source for n in grown for source in n.all_input_nodes if source not in grown}
    large = [v for s in sources for v in values(s) if isinstance(v, torch.Tensor) and 8 * numel(v) > numel(result)]
    return len(large) <= 1 or sum(numel(v) * v.itemsize for v in large) <= numel(result) * result.itemsize


__all__ = ["ProductCone", "product_cones"]
