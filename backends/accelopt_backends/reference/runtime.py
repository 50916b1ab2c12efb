"""What a reference kernel's text finds in scope. Imports torch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from accelopt_backends.base import Kernel
from accelopt_compile.records import Dim, evaluate_dim

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "b8": torch.bool,
}

Spec = tuple[str, tuple[Dim, ...], tuple[Dim, ...]]


def operator_of(name: str) -> Any:
    """The overload named "aten.add.Tensor", or None when this torch does not have it."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def tensors(pointers: Sequence[int], specs: Sequence[Spec], symbols: Sequence[str], sizes: Sequence[int]) -> list[torch.Tensor]:
    """Tensors over the caller's memory, of the given specs at the given sizes."""
    binding = dict(zip(symbols, sizes, strict=True))
    made = []
    for pointer, (name, shape, strides) in zip(pointers, specs, strict=True):
        sizes_of = [evaluate_dim(d, binding) for d in shape]
        strides_of = [evaluate_dim(d, binding) for d in strides]
        dtype = DTYPES[name]
        if 0 in sizes_of:
            made.append(torch.empty_strided(sizes_of, strides_of, dtype=dtype))
            continue
        span = 1 + sum((n - 1) * s for n, s in zip(sizes_of, strides_of, strict=True))
        memory = (ctypes.c_char * (span * dtype.itemsize)).from_address(pointer)
        made.append(torch.frombuffer(memory, dtype=dtype, count=span).as_strided(sizes_of, strides_of))
    return made


def load_text(text: str) -> Kernel:
    """The `kernel` that `text` defines, run under no_grad. Raises OSError when it defines none."""
    builtins = {"range": range, "zip": zip, "len": len, "float": float, "int": int, "min": min, "max": max}
    scope: dict[str, Any] = {
        "__builtins__": builtins,
        "aten": torch.ops.aten,
        "prims": torch.ops.prims,
        "tensors": tensors,
        "dtype": DTYPES.__getitem__,
    }
    exec(text, scope)
    kernel = scope.get("kernel")
    if kernel is None:
        raise OSError("the text defines no kernel(pointers, sizes, threads)")

    def run(pointers: Sequence[int], sizes: Sequence[int], threads: int) -> int:
        with torch.no_grad():
            return int(kernel(pointers, sizes, threads))

    return run
