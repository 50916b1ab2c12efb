"""Calling a loaded kernel as cheaply as it can be called from here, for timing."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from accelopt_compile.dtypes import DTYPES
from accelopt_compile.launch import huge_pages
from accelopt_compile.records import Binding, Workload

_empty: Callable[..., torch.Tensor] = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", torch.empty_strided)
"""What Inductor's own generated code allocates with."""


def _on_host(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """As an output is when the launcher without C calls a kernel."""
    made = _empty(shape, strides, dtype)
    huge_pages.ask(made)
    return made


def allocating_call(
    kernel: Any,
    workload: Workload,
    binding: Binding,
    inputs: Sequence[torch.Tensor],
    threads: int,
    launcher: ModuleType | None = None,
    empty: Callable[..., torch.Tensor] | None = None,
) -> Callable[[], Any]:
    """A call that allocates the outputs and runs `kernel` into them; it gives the outputs back.

    `empty` allocates on a device, from shape, strides and dtype. Outputs that lie over inputs are these inputs: they hold
    other values after each call.

    A kernel with a `function` (ctypes, of the native calling rule: tensors, sizes, threads) is called by the compiled
    `launcher`, as a program calls it, with torch's number of threads: 0.2 us a call. Through ctypes it was 1 to 2, which hid
    what a norm of one row gains. Without a launcher a program calls kernels as slowly as `_plain_call`.
    """
    sizes = [binding[name] for name in workload.symbols]
    shapes = [
        (workload.bound_shape(s, binding), workload.bound_strides(s, binding), DTYPES[s.dtype]) for s in workload.output_specs
    ]
    large = any(math.prod(shape) * dtype.itemsize >= huge_pages.LEAST_BYTES for shape, _, dtype in shapes)
    over = dict(workload.aliases)
    given = [inputs[over[k]] if k in over else None for k in range(len(shapes))]
    function = getattr(kernel, "function", None)
    by_hand = function is None or launcher is None  # the launcher asks for huge pages itself
    allocates = empty or (_on_host if large and by_hand else _empty)

    def allocate() -> list[torch.Tensor]:
        return [allocates(*shape) if own is None else own for own, shape in zip(given, shapes, strict=True)]

    if function is None or launcher is None:
        return _plain_call(kernel, allocate, inputs, sizes, threads)
    address = ctypes.cast(function, ctypes.c_void_p).value
    native = launcher.Kernel(address, len(inputs), len(sizes), len(shapes), large, _declined, kernel, ())
    launch = functools.partial(native, *inputs, *sizes)
    if len(shapes) > 1 or over:

        def call_many() -> list[torch.Tensor]:
            outputs = allocate()
            launch(*outputs)
            return outputs

        return call_many
    ((shape, strides, dtype),) = shapes

    def call_one() -> list[torch.Tensor]:  # without the loop, which takes longer than the launch
        output = allocates(shape, strides, dtype)
        launch(output)
        return [output]

    return call_one


def _declined(*_: Any) -> None:
    raise RuntimeError("the kernel declined a call of the sizes that it was verified for")


def _plain_call(
    kernel: Any, allocate: Callable[[], list[torch.Tensor]], inputs: Sequence[torch.Tensor], sizes: list[int], threads: int
) -> Callable[[], Any]:
    pointers = [x.data_ptr() for x in inputs]

    def call_plain(_keep: Any = inputs) -> list[torch.Tensor]:  # the addresses alone would not keep them alive
        outputs = allocate()
        if kernel([*pointers, *(o.data_ptr() for o in outputs)], sizes, threads):
            _declined()
        return outputs

    return call_plain
