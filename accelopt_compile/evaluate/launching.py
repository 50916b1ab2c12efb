"""Calling a loaded kernel as cheaply as it can be called from here, for timing."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from accelopt_compile.dtypes import DTYPES
from accelopt_compile.launch import huge_pages
from accelopt_compile.records import Binding, Workload

_empty: Callable[..., torch.Tensor] = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", torch.empty_strided)
"""What Inductor's own generated code allocates with."""


def _on_host(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """As an output is when the launcher calls a kernel."""
    made = _empty(shape, strides, dtype)
    huge_pages.ask(made)
    return made


def allocating_call(
    kernel: Any,
    workload: Workload,
    binding: Binding,
    inputs: Sequence[torch.Tensor],
    threads: int,
    empty: Callable[..., torch.Tensor] | None = None,
) -> Callable[[], Any]:
    """A call that allocates the outputs and runs `kernel` into them; it gives the outputs back.

    `empty` allocates on a device, from shape, strides and dtype. Outputs that lie over inputs are these inputs: they hold
    other values after each call.

    A kernel with a `function` (ctypes, of the native calling rule: tensors, sizes, threads) is called straight through it
    with arrays made here once: 1 to 2 us a call, where production needs 0.2. Others are called as they are.
    """
    sizes = [binding[name] for name in workload.symbols]
    shapes = [
        (workload.bound_shape(s, binding), workload.bound_strides(s, binding), DTYPES[s.dtype]) for s in workload.output_specs
    ]
    if empty is None:
        large = any(math.prod(shape) * dtype.itemsize >= huge_pages.LEAST_BYTES for shape, _, dtype in shapes)
        empty = _on_host if large else _empty
    over = dict(workload.aliases)
    given = [inputs[over[k]] if k in over else None for k in range(len(shapes))]

    def allocate() -> list[torch.Tensor]:
        return [empty(*shape) if own is None else own for own, shape in zip(given, shapes, strict=True)]

    function = getattr(kernel, "function", None)
    if function is None:
        return _plain_call(kernel, allocate, inputs, sizes, threads)
    slots, values, arguments = _native_arguments(inputs, len(shapes), sizes, threads)
    at = len(inputs)
    if len(shapes) == 1 and not over:
        (shape,) = shapes

        def call_one(_keep: Any = (slots, values, inputs)) -> list[torch.Tensor]:
            output = empty(*shape)
            slots[at] = output.data_ptr()
            function(*arguments)
            return [output]

        return call_one

    def call_many(_keep: Any = (slots, values, inputs)) -> list[torch.Tensor]:
        outputs = allocate()
        for k, output in enumerate(outputs, at):
            slots[k] = output.data_ptr()
        function(*arguments)
        return outputs

    return call_many


def _plain_call(
    kernel: Any, allocate: Callable[[], list[torch.Tensor]], inputs: Sequence[torch.Tensor], sizes: list[int], threads: int
) -> Callable[[], Any]:
    pointers = [x.data_ptr() for x in inputs]

    def call_plain(_keep: Any = inputs) -> list[torch.Tensor]:  # the addresses alone would not keep them alive
        outputs = allocate()
        kernel([*pointers, *(o.data_ptr() for o in outputs)], sizes, threads)
        return outputs

    return call_plain


def _native_arguments(
    inputs: Sequence[torch.Tensor], outputs: int, sizes: list[int], threads: int
) -> tuple[Any, Any, tuple[int, int, int]]:
    """The arrays of tensors and of sizes, and the arguments that hold their addresses. Outputs have no address yet."""
    slots = (ctypes.c_void_p * (len(inputs) + outputs))(*(x.data_ptr() for x in inputs))
    values = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
    return slots, values, (ctypes.addressof(slots), ctypes.addressof(values), threads)
