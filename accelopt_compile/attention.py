"""Attention operators: every device has its own, a workload has one spelling for them all.

The spelling is the CPU's operator, because the referee runs a workload's reference on a CPU. Without dropout the
operators differ in what they return beside the output: the log-sum-exp in another shape, and the state of a generator
that nothing was drawn from. `settle_seeds` puts zeros in the latter's place, so that a region need not produce it.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from accelopt_compile.sizes import same_size

FORWARD = "aten._scaled_dot_product_flash_attention_for_cpu"
BACKWARD = f"{FORWARD}_backward"

_ON_DEVICES = tuple(f"aten._scaled_dot_product_{kind}_attention" for kind in ("flash", "efficient", "cudnn"))
_SQUARE_IF_CAUSAL = _ON_DEVICES[0]
"""Its causal limit ends at the last query and the last key; the others' starts at the first of both."""

_PADDED = _ON_DEVICES[1]
"""Its log-sum-exp has a multiple of 32 queries."""

FORWARDS = (FORWARD, *_ON_DEVICES)
BACKWARDS = tuple(f"{name}_backward" for name in _ON_DEVICES)
"""Not the CPU's own: no kernel serves it, and Inductor has one."""

ALL = frozenset((*FORWARDS, *BACKWARDS))
_RESULTS = {**dict.fromkeys(FORWARDS, 2), **dict.fromkeys(BACKWARDS, 3)}
"""How many results, from the first, a region may produce."""


def arguments(node: Node) -> dict[str, Any]:
    """The arguments of an attention call by one set of names, defaults filled in."""
    assert isinstance(node.target, torch._ops.OpOverload)
    found: dict[str, Any] = {}
    for i, argument in enumerate(node.target._schema.arguments):
        given = node.kwargs.get(argument.name, argument.default_value)
        found[_NAMES.get(argument.name, argument.name)] = node.args[i] if i < len(node.args) else given
    return found


_NAMES = {"attn_bias": "attn_mask", "grad_out_": "grad_out", "log_sumexp": "logsumexp"}


def operands(node: Node) -> list[Node]:
    """The tensors that decide what the call computes."""
    given = arguments(node)
    names = ("grad_out", "query", "key", "value", "attn_mask", "out", "logsumexp")
    return [value for name in names if isinstance(value := given.get(name), Node)]


def results_read(node: Node) -> set[int]:
    """Which results of the call somebody reads."""
    return {user.args[1] for user in node.users if user.target is operator.getitem}  # type: ignore[misc]


def refusal(node: Node, name: str) -> str:
    """Why an attention call cannot be in a workload; "" when it can."""
    assert isinstance(node.target, torch._ops.OpOverload)
    if node.target._overloadname != "default":
        return f"{name} of quantised operands"
    given = arguments(node)
    if given.get("dropout_p", 0.0) != 0.0:
        return f"{name} draws random numbers"
    if any(index >= _RESULTS[name] for index in results_read(node)):
        return f"{name} has a result in use that no kernel gives"
    if name in (FORWARD, BACKWARD):
        return ""
    q, k, v = (given[n].meta["val"] for n in ("query", "key", "value"))
    if not same_size(q.shape[-1], v.shape[-1]):
        return f"{name} with values of another size than keys"
    if name.removesuffix("_backward") == _SQUARE_IF_CAUSAL and given["is_causal"] and not same_size(q.shape[2], k.shape[2]):
        return f"{name} with a causal limit that ends at the last key"
    if name == _PADDED and 1 in results_read(node) and not same_size(node.meta["val"][1].shape[2], q.shape[2]):
        return f"{name} with a padded log-sum-exp in use"
    return ""


def settle_seeds(graph: Graph) -> int:
    """Replace what a forward call without dropout says of its generator by zeros, and its longest lengths by sizes; how many
    results were replaced. Only a backward call reads them, and without dropout it does not look at them."""
    replaced = 0
    for node in list(graph.nodes):
        if _is_on_device(node) and arguments(node)["dropout_p"] == 0.0:
            for user in list(node.users):
                if user.target is operator.getitem and user.args[1] >= 2 and user.users:
                    replaced += _settle(graph, node, user)
    return replaced


def _is_on_device(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.name.replace("::", ".") in _ON_DEVICES


def _settle(graph: Graph, node: Node, user: Node) -> bool:
    value, index, given = user.meta.get("val"), user.args[1], arguments(node)
    if isinstance(value, int) and not isinstance(value, bool):
        user.replace_all_uses_with(value, propagate_meta=False)  # type: ignore[arg-type]
    elif isinstance(value, torch.SymInt):
        with graph.inserting_after(node):
            size = graph.call_function(torch.ops.aten.sym_size.int, (given["query" if index == 4 else "key"], 2))
        size.meta["val"] = value
        user.replace_all_uses_with(size, propagate_meta=False)
    elif isinstance(value, torch.Tensor) and not value.is_floating_point():
        device = given["query"].meta["val"].device
        options = {"dtype": value.dtype, "layout": torch.strided, "device": device, "pin_memory": False}
        with graph.inserting_after(node):
            zeros = graph.call_function(torch.ops.aten.full.default, (list(value.shape), 0), options)
        zeros.meta["val"] = value.new_zeros(value.shape, device=device)
        user.replace_all_uses_with(zeros, propagate_meta=False)
    else:
        return False
    graph.erase_node(user)
    return True
