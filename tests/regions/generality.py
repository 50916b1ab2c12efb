"""A workload holds for every value of its symbols, not only for those it was found at."""

from __future__ import annotations

import torch

from accelopt_compile.nodes import overload, torch_dtype
from accelopt_compile.records import Binding, DtypeArg, Ref, SymbolArg, TensorSpec, Workload, evaluate_dim
from accelopt_compile.signature import Signed


def assert_holds_at(w: Workload, binding: Binding) -> None:
    """Run the calls on tensors without data: every declared shape must come out."""

    def empty(spec: TensorSpec) -> torch.Tensor:
        shape, strides = w.bound_shape(spec, binding), w.bound_strides(spec, binding)
        return torch.empty_strided(shape, strides, dtype=torch_dtype(spec.dtype), device="meta")

    inputs = [empty(spec) for spec in w.inputs]
    made: list[tuple[torch.Tensor, ...]] = []

    def value(arg: object) -> object:
        match arg:
            case Ref():
                return inputs[arg.index] if arg.kind == "i" else made[arg.index][arg.output]
            case SymbolArg():
                return evaluate_dim(arg.expr, binding)
            case DtypeArg():
                return torch_dtype(arg.dtype)
            case tuple():
                return [value(a) for a in arg]
        return arg

    for node in w.nodes:
        kwargs = {name: value(v) for name, v in node.kwargs}
        if node.op in ("aten.full.default", "prims.iota.default"):
            kwargs["device"] = "meta"
        if node.op == "prims.iota.default":
            kwargs["requires_grad"] = False
        result = overload(node.op)(*(value(a) for a in node.args), **kwargs)
        results = tuple(result) if isinstance(result, tuple | list) else (result,)
        made.append(results)
        for got, spec in zip(results, node.outputs, strict=True):
            assert w.bound_shape(spec, binding) == tuple(got.shape), node
            assert torch_dtype(spec.dtype) == got.dtype, node
    for ref, spec in zip(w.outputs, w.output_specs, strict=True):
        assert w.bound_shape(spec, binding) == w.bound_shape(w.spec_of(ref), binding)


def assert_holds(signed: Signed) -> None:
    """At its own sizes, with all symbols different, all 1, and one of them 0."""
    w = signed.workload
    assert_holds_at(w, signed.binding)
    assert_holds_at(w, {s: 3 + 2 * i for i, s in enumerate(w.symbols)})
    assert_holds_at(w, dict.fromkeys(w.symbols, 1))
    if w.symbols:
        assert_holds_at(w, {s: 0 if i == 0 else 5 for i, s in enumerate(w.symbols)})
