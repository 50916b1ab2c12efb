"""A short name for what a workload is, from its structure: memory is looked up by it and people read it.

It decides nothing about correctness.
"""

from __future__ import annotations

from collections.abc import Callable

from accelopt_compile.records import Ref, Workload

PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm"))
"""Matrix products of two operands, the right one last."""

_REDUCTIONS = {"sum", "mean", "amax", "amin", "var", "var_mean", "prod", "any", "all", "max", "min", "std", "logsumexp"}
_CURVES = {"exp", "tanh", "erf", "sigmoid", "log", "log1p", "expm1", "softplus", "silu", "gelu"}
_MOVES = {
    "reshape",
    "permute",
    "expand",
    "slice",
    "select",
    "clone",
    "convert_element_type",
    "cat",
    "constant_pad_nd",
    "flip",
    "full",
}


def family_of(workload: Workload) -> str:
    """One of: attention, matmul, softmax, cross_entropy, norm, norm_backward, reduction, scan, sort, argmax, embedding, rotary,
    activation, optimizer, copy, pointwise."""
    ops = [node.op.split(".")[1] for node in workload.nodes]
    for name, holds in _RULES:
        if holds(workload, ops):
            return name
    return "pointwise"


def kind_of(workload: Workload) -> str:
    """What experiences are remembered under: the family, and the narrow float type where one is read or written, which
    decides what is worth keeping and converting. "norm", "norm bf16"."""
    types = {spec.dtype for spec in (*workload.inputs, *workload.output_specs)}
    return " ".join([family_of(workload), *sorted(types & {"bf16", "f16"})])


def _attention(w: Workload, ops: list[str]) -> bool:
    return any(op.startswith("_scaled_dot_product") for op in ops)


def _cross_entropy(w: Workload, ops: list[str]) -> bool:
    picks = "gather" in ops or ({"iota", "eq", "where"} <= set(ops)) or "scatter" in ops
    return picks and ("log" in ops or "exp" in ops)


def _softmax(w: Workload, ops: list[str]) -> bool:
    return "exp" in ops and "sum" in ops and ("amax" in ops or "div" in ops or "log" in ops)


def _norm(w: Workload, ops: list[str]) -> bool:
    return bool(_REDUCTIONS & set(ops)) and "rsqrt" in ops


def _norm_backward(w: Workload, ops: list[str]) -> bool:
    """Row sums of products that come back into products of full rows."""
    sums = {
        i for i, node in enumerate(w.nodes) if node.op.split(".")[1] in ("sum", "mean") and node.outputs[0].shape[-1:] == (1,)
    }
    back = any(
        isinstance(arg, Ref) and arg.kind == "n" and arg.index in sums and node.op.split(".")[1] not in _REDUCTIONS
        for node in w.nodes
        for arg in node.args
    )
    return back and ops.count("mul") >= 3


def _rotary(w: Workload, ops: list[str]) -> bool:
    return {"neg", "mul", "add"} <= set(ops) and ("slice" in ops) and ("cat" in ops or "constant_pad_nd" in ops)


def _optimizer(w: Workload, ops: list[str]) -> bool:
    return "sqrt" in ops and len(w.outputs) >= 2 and not _REDUCTIONS & set(ops)


_RULES: tuple[tuple[str, Callable[[Workload, list[str]], bool]], ...] = (
    ("attention", _attention),
    ("matmul", lambda w, ops: not PRODUCTS.isdisjoint(ops)),
    ("cross_entropy", _cross_entropy),
    ("softmax", _softmax),
    ("norm", _norm),
    ("norm_backward", _norm_backward),
    ("sort", lambda w, ops: bool({"sort", "topk"} & set(ops))),
    ("argmax", lambda w, ops: bool({"argmax", "argmin"} & set(ops))),
    ("scan", lambda w, ops: bool({"cumsum", "cumprod"} & set(ops))),
    ("rotary", _rotary),
    ("optimizer", _optimizer),
    ("reduction", lambda w, ops: bool(_REDUCTIONS & set(ops))),
    ("embedding", lambda w, ops: bool({"embedding", "index", "gather", "index_select"} & set(ops))),
    ("activation", lambda w, ops: bool(_CURVES & set(ops))),
    ("copy", lambda w, ops: set(ops) <= _MOVES),
)
