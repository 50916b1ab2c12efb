"""How Inductor compiles an in-place update: one line that calls the launcher, and the knowledge of what it overwrites.

The generated code reads `extern_kernels.accelopt_many_<key>((tensors...), (sizes...), large)`. Imported by `lowering`
only where these private parts of Inductor are there.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
from torch._inductor import ir
from torch._inductor.lowering import fallback_handler, register_lowering
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from accelopt_compile.launch import kernels, update


class UpdateCall(ir.ExternKernel):
    """The call in Inductor's IR. It makes no buffer; each tensor it overwrites is a mutation of an existing one."""

    def __init__(self, reads: Sequence[Any], writes: Sequence[Any], sizes: Sequence[Any], large: int, key: str) -> None:
        tensors = self.unwrap_storage([*reads, *writes])
        layout = ir.NoneLayout(device=writes[0].get_device())
        name = f"extern_kernels.accelopt_{kernels.MANY}{key}"
        super().__init__(None, layout, tensors, (*sizes, large), python_kernel_name=name)
        places = list(range(len(tensors)))
        self.arrangement = update.flattened(kernels.adopted(key).workload, places[: len(reads)], places[len(reads) :])
        self.mutation_outputs = [ir.MutationOutput(layout, tensor, self) for tensor in writes]
        V.graph.register_operation(self)

    def codegen(self, wrapper: Any) -> None:
        references = [tensor.codegen_reference() for tensor in self.inputs]  # type: ignore[union-attr]
        *sizes, large = (V.graph.wrapper_code.val_to_arg_str(c) for c in self.constant_args)  # type: ignore[no-untyped-call]
        tensors = ", ".join(references[i] for i in self.arrangement)
        wrapper.writeline(f"{self.get_kernel_name()}(({tensors},), ({', '.join(sizes)},), {large})")

    def get_outputs(self) -> list[ir.Buffer]:
        return list(self.mutation_outputs)

    def should_allocate(self) -> bool:
        return False

    def get_unbacked_symbol_defs(self) -> OrderedSet[sympy.Symbol]:
        return OrderedSet()


def lower(reads: Sequence[Any], writes: Sequence[Any], sizes: Sequence[Any], large: int, key: str) -> None:
    """The lowering of `accelopt::update`."""
    if V.graph.cpp_wrapper:
        fallback_handler(update.operator(), add_to_fallback_set=False)(reads, writes, sizes, large, key)  # type: ignore[no-untyped-call]
        return
    given = V.current_node.args[0]
    kept = [
        ir.ExternKernel.realize_input(ir.ExternKernel.require_exact_strides(tensor, list(node.meta["val"].stride())))
        for tensor, node in zip(reads, given, strict=True)
    ]
    for tensor in writes:
        tensor.realize()
    UpdateCall(kept, writes, sizes, large, key)


@functools.cache
def install() -> None:
    """Register the lowering, once."""
    register_lowering(update.operator(), type_promotion_kind=None)(lower)
