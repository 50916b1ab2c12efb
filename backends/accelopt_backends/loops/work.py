"""What a workload cannot do with less of: the bytes that it must touch, and the products that it must multiply."""

from __future__ import annotations

import math
from collections import Counter

from accelopt_compile.records import Binding, Node, TensorSpec, Workload, bytes_of, evaluate_dim

_TABLES = ("embedding", "index", "gather", "index_select")


def looked_up(workload: Workload) -> set[int]:
    """Inputs of which only some rows are read: tables."""
    return {n.args[0].index for n in workload.nodes if n.op.split(".")[1] in _TABLES and getattr(n.args[0], "kind", "") == "i"}


def bytes_touched(workload: Workload, binding: Binding) -> int:
    """Bytes of all inputs that must be read in full, and of all outputs; tables that are only looked up do not count."""
    tables = looked_up(workload)
    inputs = [s for k, s in enumerate(workload.inputs) if k not in tables]
    return sum(bytes_of(s, binding) for s in [*inputs, *workload.output_specs])


def product_flops(workload: Workload, binding: Binding) -> Counter[str]:
    """Multiplications and additions of matrix products, convolutions and attention, by the dtype of what is multiplied."""
    total: Counter[str] = Counter()
    for node in workload.nodes:
        name = node.op.split(".")[1]
        if name.startswith("_scaled_dot_product"):
            total[workload.spec_of(node.args[0]).dtype] += attention_flops(workload, node, binding)
        elif (first := factor_of(workload, node)) is not None:
            total[first.dtype] += 2 * _elements(node.outputs[0], binding) * evaluate_dim(first.shape[-1], binding)
        elif name == "convolution":
            weight = workload.spec_of(node.args[1])
            each = math.prod(evaluate_dim(d, binding) for d in weight.shape[1:])
            total[weight.dtype] += 2 * _elements(node.outputs[0], binding) * each
    return total


_FIRST_FACTOR = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "_scaled_mm": 0, "_int_mm": 0, "mv": 0, "addmv": 1}
"""Products, with the argument that is their left factor."""


def factor_of(workload: Workload, node: Node) -> TensorSpec | None:
    """The left factor of a matrix product; None for any other operator."""
    place = _FIRST_FACTOR.get(node.op.split(".")[1])
    return None if place is None else workload.spec_of(node.args[place])


_CAUSAL = (("for_cpu_backward", 7), ("backward", 11), ("flash_attention", 4), ("", 6))
"""Where attention's operators take `is_causal`, by a mark of their names; from their schemas."""


def attention_flops(workload: Workload, node: Node, binding: Binding) -> int:
    """4 * batch * heads * queries * keys * dims, half of it when causal, 2.5 times that backward."""
    backward = "backward" in node.op
    query, key = (workload.spec_of(a) for a in node.args[1 if backward else 0 :][:2])
    batch, heads, queries, dims = (evaluate_dim(d, binding) for d in query.shape)
    place = next(place for mark, place in _CAUSAL if mark in node.op)
    causal = bool(node.args[place] if len(node.args) > place else dict(node.kwargs).get("is_causal", False))
    whole = 4 * batch * heads * queries * evaluate_dim(key.shape[2], binding) * dims
    return int(whole * (0.5 if causal else 1.0) * (2.5 if backward else 1.0))


def _elements(spec: TensorSpec, binding: Binding) -> int:
    return math.prod(evaluate_dim(d, binding) for d in spec.shape)
