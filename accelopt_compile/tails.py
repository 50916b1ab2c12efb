"""The end of a region that Inductor keeps: a reduction of few values, behind work on many.

A loss is a number for each row of a matrix, and then their mean. The mean takes no time, but a kernel with the mean in it is
a kernel for this many rows (dims.py: what is reduced is no free size), so it would be found again for this batch size only,
and proven on whole matrices where a few rows say as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.fx import Node

from accelopt_compile.kinds import Kind
from accelopt_compile.nodes import closure, results
from accelopt_compile.sizes import numel

MANY = 1 << 20
"""Elements of the largest tensor that is computed with; below, one more call would be felt."""

FEW = 256
"""How many times fewer a tail's tensors have."""


def without_tail(members: Sequence[Node], kind: Mapping[Node, Kind]) -> list[Node]:
    """`members` of a region, in topological order, without the reductions of few values and what is computed from those. A
    reduction whose result the large tensors wait for (a norm's) is no tail."""
    largest = max((_elements(node, kind) for node in members if kind[node] not in (Kind.VIEW, Kind.CONST)), default=0)
    if largest < MANY:
        return list(members)
    inside, tail = set(members), set[Node]()
    for node in members:
        if kind[node] is Kind.REDUCTION and _elements(node, kind) * FEW <= largest:
            behind = closure([node], lambda n: inside.intersection(n.users))
            if all(_elements(n, kind) * FEW <= largest for n in behind):
                tail |= behind
    return [node for node in members if node not in tail]


def _elements(node: Node, kind: Mapping[Node, Kind]) -> int:
    """Elements of the largest tensor that a call makes, or reduces: a table that is only looked up in does not count."""
    tensors = [value for value in results(node) if isinstance(value, torch.Tensor)]
    if kind[node] is Kind.REDUCTION:
        tensors += [source.meta["val"] for source in node.all_input_nodes if isinstance(source.meta.get("val"), torch.Tensor)]
    return max((numel(value) for value in tensors), default=0)
