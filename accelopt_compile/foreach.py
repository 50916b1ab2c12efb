"""`_foreach` calls spelled out tensor by tensor: an optimizer's step is element-wise work, however it was asked for.

On CPUs Inductor lowers a `_foreach` call tensor by tensor, so nothing is lost where no kernel takes over.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

_OVERLOADS = {
    "List": "Tensor",
    "Tensor": "Tensor",
    "Scalar": "Tensor",
    "ScalarList": "Tensor",
    "ScalarAndTensor": "Scalar",
    "default": "default",
}
"""Overload of the element's operator for each overload of the list's (most take a number where they take a tensor)."""

_OTHER_NAMES = {("pow", "List"): "Tensor_Tensor", ("pow", "Scalar"): "Tensor_Scalar", ("pow", "ScalarList"): "Tensor_Scalar"}
_TERNARY = {"addcmul", "addcdiv"}
_EXTREMES = {"maximum", "minimum", "clamp_min", "clamp_max"}
_KNOWN = {
    "add", "sub", "mul", "div", "pow", "neg", "abs", "sqrt", "rsqrt", "reciprocal", "sign", "exp", "log", "lerp",
    *_TERNARY, *_EXTREMES,
}  # fmt: skip


def expand(graph: Graph) -> int:
    """Replace the `_foreach` calls on CPU tensors by calls on their elements; how many were replaced. Values keep their
    metadata. A call that has no spelling here stays."""
    replaced = 0
    for node in list(graph.nodes):
        name = _name(node)
        if name and _expand(graph, node, name):
            replaced += 1
    return replaced


def _name(node: Node) -> str:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.name.startswith("aten::_foreach_"):
        return ""
    return "" if target._schema.is_mutable else target._schema.name.removeprefix("aten::_foreach_")


def _expand(graph: Graph, node: Node, name: str) -> bool:
    values = node.meta.get("val")
    if name not in _KNOWN or not isinstance(values, list | tuple) or not all(_on_cpu(v) for v in values):
        return False
    if any(user.target is not operator.getitem for user in node.users):
        return False
    assert isinstance(node.target, torch._ops.OpOverload)
    target = _element_operator(name, node.target._overloadname)
    if target is None:
        return False
    made: list[Node] = []
    with graph.inserting_before(node):
        for k, value in enumerate(values):
            args, kwargs = _element_arguments(node, name, k)
            call = graph.call_function(target, args, kwargs)
            call.meta.update({key: node.meta[key] for key in ("stack_trace", "original_aten") if key in node.meta}, val=value)
            made.append(call)
    for user in list(node.users):
        index = user.args[1]
        assert isinstance(index, int)
        user.replace_all_uses_with(made[index], propagate_meta=False)
        graph.erase_node(user)
    graph.erase_node(node)
    return True


def _on_cpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _element_operator(name: str, overload: str) -> torch._ops.OpOverload | None:
    if name in _TERNARY:
        wanted = {"Scalar": "default", "ScalarList": "default"}.get(overload)
    elif name in _EXTREMES and overload == "List":
        wanted = "default" if name in ("maximum", "minimum") else "Tensor"
    elif name in _EXTREMES:
        wanted = "default" if name in ("clamp_min", "clamp_max") else None
    elif name == "lerp":
        wanted = {"List": "Tensor", "Scalar": "Scalar"}.get(overload)
    else:
        wanted = _OTHER_NAMES.get((name, overload), _OVERLOADS.get(overload))
    found = getattr(getattr(torch.ops.aten, name), wanted, None) if wanted else None
    return found if isinstance(found, torch._ops.OpOverload) else None


def _element_arguments(node: Node, name: str, k: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of element `k`: lists give their element; the number of an addcmul or addcdiv is passed by name."""
    args = [a[k] if isinstance(a, list | tuple) else a for a in node.args]
    kwargs = {key: a[k] if isinstance(a, list | tuple) else a for key, a in node.kwargs.items()}
    if name in _TERNARY and len(args) == 4:
        kwargs["value"] = args.pop()
    return tuple(args), kwargs
