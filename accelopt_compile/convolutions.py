"""Tensors whose layout Inductor chooses because of a convolution.

For a CPU with oneDNN it lays every convolution out channels last (`GraphLowering.decide_layout_opt`), and what is computed
beside it follows. A kernel wants the strides it was proven on: between two convolutions that is a copy before it and one
after, so that a residual network with five kernels of 1.04x to 1.26x ran at 0.94x (DECISIONS 36).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch.fx import Node

from accelopt_compile.kinds import Kind
from accelopt_compile.nodes import closure
from accelopt_compile.sizes import hint

_CONVOLUTIONS = ("aten.convolution", "aten.convolution_backward", "aten._convolution", "mkldnn._convolution")


def laid_out_by_inductor(nodes: Iterable[Node], kind: Mapping[Node, Kind]) -> set[Node]:
    """The calls whose tensors a convolution reads or makes, or that are computed from or into such without being regrouped,
    as far as they are not channels last already. None where Inductor is told to leave layouts alone."""
    import torch._inductor.config as config

    if not config.layout_optimization:
        return set()

    def beside(node: Node) -> list[Node]:
        # What a graph is given, or gives, has the layout that it has; and many things meet in its output.
        calls = (n for n in (*node.all_input_nodes, *node.users) if n.op == "call_function")
        return [n for n in calls if kind[n] is not Kind.VIEW and _has_layout(n)]

    convolutions = [node for node in nodes if node.op == "call_function" and str(node.target).startswith(_CONVOLUTIONS)]
    seen = closure(convolutions, beside)
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
    if any(isinstance(size, torch.SymInt) and not size.node.has_hint() for size in (*value.shape, *value.stride())):
        return False  # of an unbacked size nothing is known
    _, channels, *places = value.shape
    return hint(channels) > 1 and any(hint(size) > 1 for size in places)
