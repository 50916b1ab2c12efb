"""How Inductor compiles a call of our operators: straight to the launcher, no dispatcher.

The generated code reads `extern_kernels.accelopt_<key>(in0, in1, s0, out=buf0)`; `extern_kernels` asks us for names it
does not know. These are private parts of Inductor, so each is probed by name when `install` runs: where one is missing
nothing is installed, and the operators go through the dispatcher, slower and just as right.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from accelopt_compile.launch import kernels, ops

log = logging.getLogger("accelopt_compile.launch")

PREFIX = "accelopt_"


@functools.cache
def install() -> bool:
    """Register the lowerings, once. False (with one INFO line) where this torch lacks a part we need."""
    try:
        from torch._inductor import ir
        from torch._inductor.lowering import fallback_handler, register_lowering
        from torch._inductor.select_algorithm import KernelNamespace
        from torch._inductor.virtualized import V

        parts = (ir.ExternKernelOut, ir.ExternKernelAlloc, ir.MultiOutput, ir.MultiOutputLayout, ir.FixedLayout)
        for needed in (ir.ExternKernel.require_exact_strides, ir.ExternKernel.realize_input, fallback_handler, V, *parts):
            assert needed is not None
        from accelopt_compile.launch import update_ir
    except (ImportError, AttributeError) as missing:
        log.info("kernels go through the dispatcher (about 20 us a call): this torch has no %s", missing)
        return False

    _resolve_lazily(KernelNamespace)

    def lower(name: str) -> None:
        import torch

        overload = getattr(torch.ops.accelopt, name).default
        register_lowering(overload, type_promotion_kind=None)(functools.partial(_lower, overload))

    ops.on_definition(lower)
    update_ir.install()
    return True


def forget() -> None:
    """Drop what `extern_kernels` has resolved (for tests, with `kernels.forget`)."""
    from torch._inductor.select_algorithm import extern_kernels

    for name in [n for n in vars(extern_kernels) if n.startswith(PREFIX)]:
        delattr(extern_kernels, name)


def _resolve_lazily(namespace: Any) -> None:
    """Let `extern_kernels.accelopt_<key>` find its kernel on first use; other names are left to whoever was there."""
    before = getattr(namespace, "__getattr__", None)

    def find(self: Any, name: str) -> Any:
        if name.startswith(PREFIX):
            found = kernels.resolve(name.removeprefix(PREFIX))
            setattr(self, name, found)
            return found
        if before is not None:
            return before(self, name)
        raise AttributeError(name)

    namespace.__getattr__ = find


def _lower(overload: Any, *arguments: Any) -> Any:
    from torch._inductor import ir
    from torch._inductor.lowering import fallback_handler
    from torch._inductor.virtualized import V

    *tensors, sizes, key = arguments
    if V.graph.cpp_wrapper:
        return fallback_handler(overload, add_to_fallback_set=False)(*arguments)  # type: ignore[no-untyped-call]
    node = V.current_node
    values = node.meta["val"]
    inputs = [
        ir.ExternKernel.realize_input(ir.ExternKernel.require_exact_strides(tensor, _exprs(given.meta["val"].stride())))
        for tensor, given in zip(tensors, node.args, strict=False)
    ]
    constants, name = tuple(sizes), f"extern_kernels.{PREFIX}{key}"
    if not isinstance(values, tuple | list):
        made = ir.ExternKernelOut(_layout(values), inputs, constants, python_kernel_name=name)
        return ir.TensorBox.create(made)
    packed = ir.ExternKernelAlloc(ir.MultiOutputLayout(device=values[0].device), inputs, constants, python_kernel_name=name)
    outputs = [ir.MultiOutput(_layout(v), packed, [(tuple, i)]) for i, v in enumerate(values)]
    for out in outputs:
        out.skip_size_stride_alignment_checks = True  # the launcher allocates them as declared; each check costs 0.2 us a call
    packed.outputs = outputs
    return tuple(ir.TensorBox.create(out) for out in outputs)


def _exprs(values: Any) -> list[Any]:
    """SymInts as the sympy expressions that Inductor computes with."""
    return [v.node.expr if hasattr(v, "node") else v for v in values]


def _layout(value: Any) -> Any:
    from torch._inductor import ir

    return ir.FixedLayout(value.device, value.dtype, _exprs(value.shape), _exprs(value.stride()))
