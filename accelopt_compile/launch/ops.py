"""The operators that stand for an adopted kernel in a graph: one per arity, the kernel named by a string argument.

`accelopt::c2_1(Tensor a0, Tensor a1, SymInt[] sizes, str key) -> Tensor`. A fixed family, registered when this module
is imported, because a graph loaded from Inductor's cache in a fresh process has to find its operators: nothing that a
warm process needs may be created while compiling. Arities beyond the registered range are defined on first use, by name.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from accelopt_compile.dtypes import DTYPES
from accelopt_compile.launch import kernels
from accelopt_compile.launch.layouts import layouts, with_declared_strides

MAX_INPUTS = 16
MAX_OUTPUTS = 6
MAX_ARGUMENTS = 96
"""Inputs, sizes and outputs of one call together; larger regions are refused (the launcher's limit)."""

_library = torch.library.Library("accelopt", "FRAGMENT")  # type: ignore[no-untyped-call]
_defined: set[str] = set()
_NAME = re.compile(r"c(\d{1,2})_(\d{1,2})")


def operator(inputs: int, outputs: int) -> torch._ops.OpOverload:
    """The operator for a region with that many tensor inputs and outputs."""
    name = _define(inputs, outputs)
    found: torch._ops.OpOverload = getattr(torch.ops.accelopt, name).default
    return found


def is_operator(target: Any) -> bool:
    """Whether a node's target is one of ours."""
    return isinstance(target, torch._ops.OpOverload) and target.namespace == "accelopt"


def _define(inputs: int, outputs: int) -> str:
    name = f"c{inputs}_{outputs}"
    if name in _defined:
        return name
    _defined.add(name)  # first, because torch looks the name up while defining it, and that lookup ends here
    tensors = "".join(f"Tensor a{i}, " for i in range(inputs))
    result = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
    _library.define(f"{name}({tensors}SymInt[] sizes, str key) -> {result}", tags=(torch.Tag.needs_exact_strides,))  # type: ignore[no-untyped-call]
    _library.impl(name, _run, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"accelopt::{name}", _fake, lib=_library)
    for notify in _observers:
        notify(name)
    return name


_observers: list[Any] = []


def on_definition(notify: Any) -> None:
    """Call `notify(name)` for every operator, those already there first (the lowering registers itself this way)."""
    _observers.append(notify)
    for name in sorted(_defined):
        notify(name)


def _run(*arguments: Any) -> Any:
    """Through the dispatcher: strides may not be the declared ones, so check them, and allocate the outputs."""
    *tensors, sizes, key = arguments
    adopted = kernels.adopted(key)
    laid_out = with_declared_strides(adopted.workload, tensors, sizes)
    return kernels.resolve_allocating(key)(*laid_out, *sizes)


def _fake(*arguments: Any) -> Any:
    """Shapes and strides of the outputs; sizes stay symbolic."""
    *tensors, sizes, key = arguments
    adopted = kernels.adopted(key)
    workload = adopted.workload
    device = tensors[0].device if tensors else torch.device(adopted.device)
    wanted = layouts(workload.output_specs, workload.symbols)(*sizes)
    made = tuple(
        torch.empty_strided(shape, strides, dtype=DTYPES[spec.dtype], device=device)
        for (shape, strides), spec in zip(wanted, workload.output_specs, strict=True)
    )
    return made[0] if len(made) == 1 else made


class _Namespace(torch._ops._OpNamespace):
    """`torch.ops.accelopt`, which defines an arity beyond the registered range when it is asked for by name."""

    def __getattr__(self, name: str) -> Any:
        match = _NAME.fullmatch(name)
        if match and name not in _defined:
            _define(int(match[1]), int(match[2]))
        return super().__getattr__(name)


# Inductor prints the namespace object's module into generated code.
_Namespace.__module__ = "torch._ops"


def _register_family() -> None:
    for inputs in range(MAX_INPUTS + 1):
        for outputs in range(1, MAX_OUTPUTS + 1):
            _define(inputs, outputs)
    torch.ops.accelopt = _Namespace("accelopt")  # type: ignore[attr-defined]


_register_family()
