"""Tensors whose layout Inductor chooses because of a convolution.

For a CPU with oneDNN it lays every convolution out channels last (`GraphLowering.decide_layout_opt`), and what is computed
beside it follows. A kernel wants the strides it was proven on: between two convolutions that is a copy before it and one
after, so that a residual network with five kernels of 1.04x to 1.26x ran at 0.94x (DECISIONS 36).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch.fx import Node

from accelopt_compile.nodes import Kind, hint, packet_name

_CONVOLUTIONS = ("aten.convolution", "aten.convolution_backward", "aten._convolution")


def laid_out_by_inductor(nodes: Iterable[Node], kind: Mapping[Node, Kind]) -> set[Node]:
    """The nodes whose tensors a convolution reads or makes, or that are computed from or into such without being regrouped,
    as far as they are not channels last already."""
    queue = [node for node in nodes if packet_name(node) in _CONVOLUTIONS]
    seen = set(queue)
    while queue:
        node = queue.pop()
        for other in (*node.all_input_nodes, *node.users):
            if other not in seen and kind.get(other) is not Kind.VIEW and _has_layout(other):
                seen.add(other)
                queue.append(other)
    return {
        n for n in seen if isinstance(n.meta["val"], torch.Tensor) and _has_layout(n) and hint(n.meta["val"].stride()[1]) != 1
    }


def _has_layout(node: Node) -> bool:
    """Whether channels may lie first or last in it: images or volumes with several channels and places."""
    value = node.meta.get("val")
    if isinstance(value, tuple | list):
        return True  # goes on through the parts
    if not isinstance(value, torch.Tensor) or value.dim() not in (4, 5):
        return False
    _, channels, *places = value.shape
    return hint(channels) > 1 and any(hint(size) > 1 for size in places)
