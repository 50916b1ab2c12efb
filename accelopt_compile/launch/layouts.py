"""Shapes, strides and dtypes of a kernel's tensors, as code that runs at its calls.

The expressions are safe to compile: a record admits only arithmetic over symbols (`records.tensors`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from accelopt_compile.records import TensorSpec, Workload

Layouts = Callable[..., tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...]]


@functools.lru_cache(maxsize=4096)
def layouts(specs: tuple[TensorSpec, ...], symbols: tuple[str, ...]) -> Layouts:
    """`(symbol values...) -> ((shape, strides), ...)`. Integers give integers, SymInts give SymInts.

    Compiled, as it runs at every call of some kernels.
    """
    body = "".join(f"({_dims(s.shape)}, {_dims(s.strides)}), " for s in specs)
    made: Layouts = eval(f"lambda {', '.join(symbols)}: ({body})", {"__builtins__": {}})
    return made


def _dims(values: Sequence[Any]) -> str:
    return "(" + "".join(f"{v}, " for v in values) + ")"


def allocating_text(workload: Workload) -> str:
    """`(empty, launched, dtype of each output...) -> (input..., symbol...) -> output or tuple of outputs`, as Python: the call of
    a kernel on the host that allocates its outputs, written out. Loops over the layouts of two outputs cost as much as the
    allocations."""
    outs = [f"o{k}" for k in range(len(workload.output_specs))]
    given = ", ".join([*(f"i{n}" for n in range(len(workload.inputs))), *workload.symbols])
    made = "".join(
        f"{out} := empty({_dims(spec.shape)}, {_dims(spec.strides)}, {out}_dtype), "
        for out, spec in zip(outs, workload.output_specs, strict=True)
    )
    dtypes = ", ".join(f"{out}_dtype" for out in outs)
    taken = "0" if len(outs) == 1 else f":{len(outs)}"
    return f"lambda empty, launched, {dtypes}: lambda {given}: ({made}launched({given}, {', '.join(outs)}))[{taken}]"


def with_declared_strides(workload: Workload, tensors: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """The tensors, copied where their strides are not the ones that the kernel was proven on."""
    wanted = layouts(workload.inputs, workload.symbols)(*sizes)
    return [_restrided(t, *layout) for t, layout in zip(tensors, wanted, strict=True)]


def _restrided(tensor: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    import torch

    same = all(size <= 1 or have == want for size, have, want in zip(tensor.shape, tensor.stride(), strides, strict=True))
    if same:
        return tensor.detach()
    compact = tuple(1 if stride == 0 else size for size, stride in zip(shape, strides, strict=True))
    made = torch.empty_strided(compact, strides, dtype=tensor.dtype, device=tensor.device)
    source = tensor.detach()
    for dim, stride in enumerate(strides):
        if stride == 0 and source.shape[dim] > 1:
            source = source.narrow(dim, 0, 1)
    return made.copy_(source).expand(shape)
