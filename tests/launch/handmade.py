"""Kernels written by hand, in plain C++, adopted without a store or a search."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from accelopt_compile.launch import kernels, native
from accelopt_compile.records import Node, Ref, TensorSpec, Workload, sha256_text


def spec(*shape: int | str, strides: tuple[int | str, ...] | None = None) -> TensorSpec:
    """A float32 tensor; row-major unless strides are given (row-major needs a symbol in the first dimension only)."""
    if strides is None:
        strides, step = (), 1
        for size in reversed(shape):
            strides = (step, *strides)
            step = step * size if isinstance(size, int) else step
    return TensorSpec(dtype="f32", shape=shape, strides=strides)


def workload(inputs: list[TensorSpec], outputs: list[TensorSpec], symbols: tuple[str, ...] = ()) -> Workload:
    """A workload whose only node is a stand-in: these tests look at layouts and calls, not at the operators."""
    node = Node(op="aten.add.Tensor", args=(Ref("i", 0), Ref("i", 1)), outputs=tuple(outputs))
    return Workload(
        inputs=tuple(inputs),
        nodes=(node,),
        outputs=tuple(Ref("n", 0, i) for i in range(len(outputs))),
        output_specs=tuple(outputs),
        symbols=symbols,
    )


def built(text: str, directory: Path) -> Path:
    """The shared library of a C++ text."""
    source = directory / f"{sha256_text(text)[:12]}.cpp"
    source.write_text(text)
    library = source.with_suffix(".so")
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-fopenmp", str(source), "-o", str(library)], check=True)
    return library


def adopt(
    work: Workload, text: str, reference: Callable[..., tuple[Any, ...]], directory: Path, *, kernel_us: float = 0.0
) -> str:
    """Adopt the kernel of that C++ text; returns its key."""
    key = sha256_text(work.digest + text + str(directory))

    def load() -> kernels.Loaded:
        address, library = native.c_function(str(built(text, directory)))
        return kernels.Loaded(address=address, keep=library)

    kernels.adopt(
        kernels.Adopted(key=key, workload=work, load=load, reference=reference, directory=directory, kernel_us=kernel_us)
    )
    return key


def entry(body: str) -> str:
    """C++ text around the body of a kernel: `t` tensors, `s` sizes, `threads`."""
    return (
        f'#include <cstdint>\nextern "C" int accelopt_kernel(void* const* t, const int64_t* s, int64_t threads) {{\n{body}\n}}\n'
    )


ADD_TWICE = entry(
    "const float *a = (const float*)t[0], *b = (const float*)t[1]; float* y = (float*)t[2];\n"
    "for (int64_t i = 0; i < s[0] * 8; ++i) y[i] = a[i] + 2 * b[i];\nreturn 0;"
)


def add_twice(directory: Path, text: str = ADD_TWICE) -> str:
    """y = a + 2 b on [s0, 8]."""
    rows = spec("s0", 8)
    return adopt(workload([rows, rows], [rows], ("s0",)), text, lambda a, b, s0: (a + 2 * b,), directory)


def sum_and_difference(directory: Path) -> str:
    """(a + b) and (a - b) transposed, on [s0, 4]: two outputs, the second one column-major."""
    rows, columns = spec("s0", 4), spec(4, "s0", strides=(1, 4))
    text = entry(
        "const float *a = (const float*)t[0], *b = (const float*)t[1]; float *p = (float*)t[2], *q = (float*)t[3];\n"
        "for (int64_t i = 0; i < s[0] * 4; ++i) { p[i] = a[i] + b[i]; q[i] = a[i] - b[i]; }\nreturn 0;"
    )
    return adopt(workload([rows, rows], [rows, columns], ("s0",)), text, lambda a, b, s0: (a + b, (a - b).t()), directory)


def call(key: str, *tensors: torch.Tensor, sizes: list[Any], outputs: int = 1) -> Any:
    """The operator, as a pass would have put it into a graph."""
    from accelopt_compile.launch import ops

    return ops.operator(len(tensors), outputs)(*tensors, sizes, key)
