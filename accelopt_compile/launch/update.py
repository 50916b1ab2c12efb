"""The operator of in-place updates: one call writes new values over many tensors, with one kernel.

`accelopt::update(Tensor[] reads, Tensor(a!)[] writes, SymInt[] sizes, int large, str key) -> ()`. A kernel's workload has
outputs that all lie over inputs; a call carries any number of instances of it, one after another: `reads` are the inputs
that stay, in the workload's order, `writes` the overwritten ones in the order of the outputs. The first `large` instances
share their elements between threads, the others are shared out whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from accelopt_compile.launch import kernels
from accelopt_compile.records import Workload

LARGE_ELEMENTS = 1 << 16
"""From this many elements on an instance is worth all threads; smaller ones are worth one each."""

_library = torch.library.Library("accelopt", "FRAGMENT")  # type: ignore[no-untyped-call]
T = TypeVar("T")


def flattened(workload: Workload, reads: Sequence[T], writes: Sequence[T]) -> list[T]:
    """The kernel's arguments, instance after instance: inputs, then outputs, in the workload's order."""
    over = {given: out for out, given in workload.aliases}
    outputs = len(workload.output_specs)
    kept = len(workload.inputs) - len(over)
    flat: list[T] = []
    for k in range(len(writes) // outputs):
        mine, rest = writes[k * outputs : (k + 1) * outputs], iter(reads[k * kept : (k + 1) * kept])
        flat += [mine[over[i]] if i in over else next(rest) for i in range(len(workload.inputs))]
        flat += mine
    return flat


def operator() -> torch._ops.OpOverload:
    """The operator's one overload."""
    found: torch._ops.OpOverload = torch.ops.accelopt.update.default
    return found


def _run(reads: Sequence[torch.Tensor], writes: Sequence[torch.Tensor], sizes: Sequence[int], large: int, key: str) -> None:
    """Through the dispatcher, where strides may differ: elements are told by their place in memory, so make them alike."""
    workload = kernels.adopted(key).workload
    flat = flattened(workload, reads, writes)
    count = len(workload.inputs) + len(workload.output_specs)
    for start in range(0, len(flat), count):
        like = max(flat[start + len(workload.inputs) : start + count], key=torch.Tensor.numel)
        for i in range(start, start + len(workload.inputs)):
            if flat[i].shape == like.shape and flat[i].stride() != like.stride():
                flat[i] = torch.empty_like(like, dtype=flat[i].dtype).copy_(flat[i])
    kernels.resolve_many(key)(tuple(flat), tuple(sizes), large)


def _fake(*arguments: Any) -> None:
    return None


def _define() -> None:
    schema = "update(Tensor[] reads, Tensor(a!)[] writes, SymInt[] sizes, int large, str key) -> ()"
    _library.define(schema, tags=(torch.Tag.needs_exact_strides,))  # type: ignore[no-untyped-call]
    _library.impl("update", _run, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake("accelopt::update", _fake, lib=_library)


_define()
Many = Callable[[tuple[Any, ...], tuple[int, ...], int], None]
"""(arguments of all instances, sizes of all instances, how many of the first are large)."""
