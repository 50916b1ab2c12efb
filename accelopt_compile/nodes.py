"""Reading FX nodes: the operator's name, what a call reads and gives, the operator and the dtype behind a name of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx import Node

from accelopt_compile import attention
from accelopt_compile.dtypes import DTYPES
from accelopt_compile.errors import InvalidRecord


def packet_name(node: Node) -> str:
    """ "aten.add" for `aten.add.Tensor`; "" when the target is no ATen or prims overload."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return ""
    namespace, _, name = target._schema.name.partition("::")
    return f"{namespace}.{name}" if namespace in ("aten", "prims") else ""


def op_name(node: Node) -> str:
    """ "aten.add.Tensor", the spelling of a workload's nodes."""
    assert isinstance(node.target, torch._ops.OpOverload)
    return f"{packet_name(node)}.{node.target._overloadname}"


def overload(op: str) -> torch._ops.OpOverload:
    """The operator called "aten.add.Tensor". Raises InvalidRecord for any other namespace or an unknown name."""
    namespace, _, rest = op.partition(".")
    packet, _, name = rest.partition(".")
    if namespace not in ("aten", "prims"):
        raise InvalidRecord(f"{op!r} is not an aten or prims operator")
    found = getattr(getattr(getattr(torch.ops, namespace), packet, None), name, None)
    if not isinstance(found, torch._ops.OpOverload):
        raise InvalidRecord(f"this version of torch has no operator {op!r}")
    return found


def torch_dtype(short: str) -> torch.dtype:
    """The dtype called "f32". Raises InvalidRecord for an unknown name."""
    if short not in DTYPES:
        raise InvalidRecord(f"unknown dtype {short!r}")
    return DTYPES[short]


def values(node: Node) -> tuple[Any, ...]:
    """The node's fake results, one per output (an absent output is None)."""
    value = node.meta.get("val")
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def sources(node: Node) -> list[Node]:
    """The nodes that decide what a call computes: its operands, but for what an attention operator only passes on."""
    return attention.operands(node) if packet_name(node) in attention.ALL else node.all_input_nodes


def results(node: Node) -> tuple[Any, ...]:
    """The fake results of a call, of an attention operator those that are read."""
    if packet_name(node) not in attention.ALL:
        return values(node)
    read = attention.results_read(node)
    return tuple(value for i, value in enumerate(values(node)) if i in read)


def is_sink(user: Node) -> bool:
    """The graph's output, or the write-back of a mutated argument: no computation reads the value there."""
    return user.op == "output" or (user.target is torch.ops.aten.copy_.default and all(u.op == "output" for u in user.users))


def closure(start: Iterable[Node], after: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """The nodes of `start` and all that `after` leads to from them, step by step."""
    found = set(start)
    open_ = list(found)
    while open_:
        new = set(after(open_.pop())) - found
        found |= new
        open_ += new
    return found
