"""A workload's calls on another device than the host: the same ATen calls, and that device's own attention."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from accelopt_compile.attention import BACKWARD, FORWARD
from accelopt_compile.attention_anywhere import timed_backward, timed_forward

ATTENTION = {f"{FORWARD}.default": timed_forward, f"{BACKWARD}.default": timed_backward}


def placed(module: GraphModule, where: str) -> GraphModule:
    """`module` with what it makes from nothing made on `where`. Changes it; the host's own is left as it is."""
    if where == "cpu":
        return module
    for node in module.graph.nodes:
        if isinstance(node.kwargs.get("device"), torch.device):
            node.update_kwarg("device", torch.device(where))
        node.target = ATTENTION.get(str(node.target), node.target)
    module.recompile()
    return module


def lowerable(module: GraphModule, fakes: Sequence[torch.Tensor]) -> GraphModule:
    """A placed module as ATen calls alone, for Inductor: attention becomes the operator that the device picks for `fakes`."""
    if all(node.target not in ATTENTION.values() for node in module.graph.nodes):
        return module
    told = module.graph.output_node().meta
    with fakes[0].fake_mode:  # type: ignore[attr-defined]
        traced: GraphModule = make_fx(module)(*fakes)
    traced.graph.output_node().meta.update(told)
    return traced
