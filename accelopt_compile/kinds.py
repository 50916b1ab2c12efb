"""What kind of node an FX node is, from its metadata: something a region may hold, or a wall and why.

An operator in no class is a wall: unknown means left to Inductor.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from enum import Enum
from typing import Any

import torch
from torch.fx import Node

from accelopt_compile import attention
from accelopt_compile.dtypes import SHORT_DTYPE
from accelopt_compile.family import PRODUCTS
from accelopt_compile.nodes import op_name, overload, packet_name, results, sources, values
from accelopt_compile.sizes import is_backed, is_contiguous, same_size


class Kind(Enum):
    """The role of a node in a region. VIEW and CONST never start a region; CONST may be in several."""

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    VIEW = "view"
    CONST = "const"
    GATHER = "gather"
    SCAN = "scan"
    SDPA = "sdpa"
    TOPK = "topk"
    GEMM = "gemm"
    ITEM = "item"
    WALL = "wall"


ALONE = (Kind.SDPA, Kind.TOPK)
"""Kinds with kernels of their own: never absorbed, never merged, and choosy about what they absorb."""

UNMERGED = (*ALONE, Kind.GEMM)

_POINTWISE = {
    "prims.convert_element_type",
    "aten._to_copy",
    "aten.copy",
    "aten.clone",
    "aten.where",
    "aten.addcmul",
    "aten.addcdiv",
    "aten.lerp",
    "aten.masked_fill",
    "prims.fma",
}
_REDUCTION = {
    f"aten.{n}"
    for n in ["sum", "mean", "amax", "amin", "var", "var_mean", "std", "prod", "any", "all", "logsumexp", "aminmax", "max", "min"]
}
_SCAN = {f"aten.{n}" for n in ["cumsum", "cumprod", "argmax", "argmin", "sort"]}
_GATHER = {
    f"aten.{n}"
    for n in ["embedding", "gather", "index", "index_select", "cat", "constant_pad_nd", "flip", "scatter", "slice_scatter"]
}
_VIEW = {
    f"aten.{n}"
    for n in [
        "view",
        "reshape",
        "_unsafe_view",
        "unsqueeze",
        "squeeze",
        "permute",
        "transpose",
        "t",
        "expand",
        "slice",
        "select",
        "split",
        "split_with_sizes",
        "unbind",
        "alias",
        "detach",
        "lift_fresh",
        "as_strided",
    ]
}
_CONST = {"aten.full", "prims.iota", "aten.scalar_tensor", "aten.arange"}
GEMM = {f"aten.{n}" for n in PRODUCTS}
RESHAPES = {"aten.view", "aten.reshape", "aten._unsafe_view", "aten.unsqueeze", "aten.squeeze", "aten.as_strided"}
"""Views that only regroup dimensions."""


def unit(node: Node, kind: Mapping[Node, Kind]) -> list[Node]:
    """A call and its `getitem`s, which go together."""
    return [node, *(user for user in node.users if kind[user] is Kind.ITEM)]


def is_view(node: Node) -> bool:
    """Whether the call only shows its operand in another way."""
    return packet_name(node) in _VIEW


def is_free(op: str) -> bool:
    """Whether a call named as in a workload is a view or a constant."""
    return op.rpartition(".")[0] in _VIEW | _CONST


def is_pointwise(op: str) -> bool:
    """Whether a call named as in a workload computes each element of its result from those at the same place."""
    return op.rpartition(".")[0] in _POINTWISE or torch.Tag.pointwise in overload(op).tags


def classify(node: Node) -> tuple[Kind, str]:
    """The kind of a node; for a wall also why it is one, in words that `explain` shows."""
    if node.op != "call_function":
        return Kind.WALL, f"{node.op} node"
    if node.target is operator.getitem:
        source = node.args[0]
        wall = not isinstance(source, Node) or classify(source)[0] is Kind.WALL
        return (Kind.WALL, "result of a wall") if wall else (Kind.ITEM, "")
    if isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool):
        return Kind.WALL, "computes a size, not a tensor"
    name = packet_name(node)
    if name.startswith("prims.inductor_"):
        return Kind.WALL, f"{name} draws random numbers"
    if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
        return Kind.WALL, f"{name or node.target} writes to an argument"
    kind = _named_kind(node, name)
    if kind is None:
        return Kind.WALL, f"{name or _target_name(node)} is in no class of operators that a region may hold"
    why = _refusal(node, name, kind)
    return (Kind.WALL, why) if why else (kind, "")


def _target_name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _named_kind(node: Node, name: str) -> Kind | None:
    if not name:
        return None
    for kind, names in (
        (Kind.VIEW, _VIEW),
        (Kind.CONST, _CONST),
        (Kind.REDUCTION, _REDUCTION),
        (Kind.SCAN, _SCAN),
        (Kind.GATHER, _GATHER),
        (Kind.SDPA, attention.ALL),
        (Kind.TOPK, {"aten.topk"}),
        (Kind.GEMM, GEMM),
        (Kind.POINTWISE, _POINTWISE),
    ):
        if name in names:
            return _max_or_min_kind(node, name) or kind
    assert isinstance(node.target, torch._ops.OpOverload)
    tags = node.target.tags
    return Kind.POINTWISE if torch.Tag.pointwise in tags else None


def _max_or_min_kind(node: Node, name: str) -> Kind | None:
    if name in ("aten.max", "aten.min"):
        return Kind.SCAN if op_name(node).endswith(".dim") else Kind.REDUCTION
    return None


def _refusal(node: Node, name: str, kind: Kind) -> str:
    """Why a node of a known kind is a wall all the same; "" when it is none."""
    target = node.target
    assert isinstance(target, torch._ops.OpOverload)
    if kind is Kind.SDPA:
        why = attention.refusal(node, name)
        if why:
            return why
    elif kind is Kind.GEMM and not node.meta["val"].is_floating_point():
        return f"{name} of integers"
    elif torch.Tag.nondeterministic_seeded in target.tags:
        return f"{name} draws random numbers"
    if torch.Tag.data_dependent_output in target.tags:
        return f"{name} returns a value to the host"
    if op_name(node) == "aten.view.dtype":
        return "a view of the bits as another type"
    if name == "aten.index":
        return _index_refusal(node)
    if name == "aten.as_strided" and not _regroups(node):
        return "aten.as_strided that does more than regroup dimensions"
    if torch.Tag.dynamic_output_shape in target.tags:
        return f"the output size of {name} depends on data"
    if name == "aten.scatter" and op_name(node) not in ("aten.scatter.value", "aten.scatter.src"):
        return f"{op_name(node)} accumulates"
    if any("val" not in n.meta for n in (node, *sources(node))):
        return f"{name} has operands of which nothing is known"
    for value in (*results(node), *(v for n in sources(node) for v in _operand_values(n))):
        why = value_refusal(value)
        if why:
            return why
    return ""


def _regroups(node: Node) -> bool:
    """Whether an `as_strided` shows all of a contiguous tensor, contiguously (the statistics of a group norm)."""
    source, shown = node.all_input_nodes[0].meta.get("val"), node.meta.get("val")
    if not isinstance(source, torch.Tensor) or not isinstance(shown, torch.Tensor):
        return False
    at = same_size(source.storage_offset(), shown.storage_offset())
    return at and same_size(source.numel(), shown.numel()) and is_contiguous(source) and is_contiguous(shown)


def _operand_values(node: Node) -> tuple[Any, ...]:
    """Operands that must be usable tensors; sizes are held by SymInt nodes and cost nothing."""
    return tuple(v for v in values(node) if not isinstance(v, torch.SymInt | int))


def _index_refusal(node: Node) -> str:
    indices = node.args[1]
    assert isinstance(indices, list | tuple)
    for index in indices:
        if isinstance(index, Node) and index.meta["val"].dtype in (torch.bool, torch.uint8):
            return "the output size of aten.index depends on data (boolean mask)"
    return next(
        (w for v in (*values(node), *(v for n in node.all_input_nodes for v in values(n))) if (w := value_refusal(v))), ""
    )


def value_refusal(value: Any) -> str:
    """Why a value cannot be in a workload; "" when it can."""
    if value is None:
        return ""
    if not isinstance(value, torch.Tensor):
        return f"a value of type {type(value).__name__} where a tensor is needed"
    if value.layout is not torch.strided:
        return f"a {value.layout} tensor"
    if value.dtype not in SHORT_DTYPE:
        return f"dtype {value.dtype}"
    if value.is_quantized or value.is_conj() or value.is_neg():
        return "a quantized, conjugate or negative view"
    for size in (*value.shape, *value.stride()):
        if isinstance(size, torch.SymInt) and not is_backed(size):
            return f"a size that only the run knows ({size.node.expr})"
    return ""
