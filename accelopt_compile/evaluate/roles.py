"""What each input of a workload may hold, by looking at what consumes it: numbers, positions, truth values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from accelopt_compile.evaluate.reference import FLOATS
from accelopt_compile.records import Binding, Node, Ref, Workload

_COMPARES = re.compile(r"aten\.(eq|ne|lt|le|gt|ge)\.Scalar")
_FROM_EITHER_END = ("aten.index.", "aten.index_put.")
"""Operators that take -1 for the last position."""
_SAME_VALUE = re.compile(
    r"aten\.(view|_unsafe_view|reshape|unsqueeze|squeeze|expand|slice|permute|t|transpose|clone|alias|detach|select|_to_copy"
    r"|copy|where|masked_fill|constant_pad_nd|minimum|maximum|clamp)\.|prims\.convert_element_type\."
)


@dataclass(frozen=True, kw_only=True)
class Role:
    """What an input may hold. `bound` is for kinds "index" (values in [0, bound), in one family from -bound on where all that
    it indexes counts `negative` ones from the end) and "int"; `compared` are the numbers that the workload compares an integer
    with, and for an "int" their neighbours: some elements take them."""

    kind: Literal["float", "index", "int", "bool"]
    bound: int = 0
    nonnegative: bool = False
    negative: bool = False
    compared: tuple[int, ...] = ()


def roles(workload: Workload, binding: Binding) -> list[Role]:
    """The role of each input at `binding`, by looking at what consumes it."""
    bounds: dict[int, int] = {}
    from_zero: set[int] = set()
    for node in workload.nodes:
        for ref, bound in _index_uses(node, workload, binding):
            for source in _sources(ref, workload):
                bounds[source] = min(bound, bounds.get(source, bound))
                from_zero |= set() if node.op.startswith(_FROM_EITHER_END) else {source}
    largest = max((n for s in workload.inputs for n in workload.bound_shape(s, binding)), default=1)
    met = _compared(workload)
    found = []
    for index, spec in enumerate(workload.inputs):
        if spec.dtype in FLOATS:
            found.append(Role(kind="float"))
        elif spec.dtype == "b8":
            found.append(Role(kind="bool"))
        elif index in bounds:
            negative = index not in from_zero and index not in met
            found.append(Role(kind="index", bound=bounds[index], negative=negative, compared=met.get(index, ())))
        else:
            near = tuple(sorted({value + step for value in met.get(index, ()) for step in (-1, 0, 1)}))
            found.append(Role(kind="int", bound=min(100, max(8, largest)), compared=near))
    return found


def _index_uses(node: Node, workload: Workload, binding: Binding) -> list[tuple[Ref, int]]:
    """(value used as an index, size of the dimension it indexes) for one node."""

    def size(position: int, dim: Any) -> int:
        shape = workload.bound_shape(workload.spec_of(node.args[position]), binding)
        return shape[int(dim)] if shape else 1

    packet = node.op.rsplit(".", 1)[0]
    match packet:
        case "aten.embedding":
            return [(node.args[1], size(0, 0))]
        case "aten.gather" | "aten.scatter" | "aten.scatter_add" | "aten.scatter_reduce" | "aten.index_select" | "aten.index_add":
            return [(node.args[2], size(0, node.args[1]))]
        case "aten.index" | "aten._unsafe_index" | "aten.index_put" | "aten._unsafe_index_put":
            return [(index, size(0, dim)) for dim, index in enumerate(node.args[1]) if isinstance(index, Ref)]
        case "aten.nll_loss_forward" | "aten.nll_loss2d_forward":
            return [(node.args[1], size(0, 1 if len(workload.spec_of(node.args[0]).shape) > 1 else 0))]
        case "aten.embedding_dense_backward":
            return [(node.args[1], int(node.args[2]))]
    return []


def _sources(ref: Any, workload: Workload) -> set[int]:
    """Inputs whose values reach `ref` through operators that only move or select values."""
    if not isinstance(ref, Ref):
        return set()
    if ref.kind == "i":
        return {ref.index}
    node = workload.nodes[ref.index]
    if not _SAME_VALUE.match(node.op):
        return set()
    return set().union(*(_sources(a, workload) for a in node.args)) if node.args else set()


def _compared(workload: Workload) -> dict[int, tuple[int, ...]]:
    """For each input that is compared with whole numbers: these."""
    found: dict[int, set[int]] = {}
    for node in workload.nodes:
        if _COMPARES.match(node.op) and isinstance(node.args[1], int):
            for source in _sources(node.args[0], workload):
                found.setdefault(source, set()).add(node.args[1])
    return {source: tuple(sorted(values)) for source, values in found.items()}
