"""Memory around a kernel call: tensors between canaries, inputs that must not change, outputs filled with poison; where an
output lies over an input, one memory for both. It may be memory that two processes share."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Mapping, Sequence

import torch

from accelopt_compile.evaluate.reference import DTYPES
from accelopt_compile.records import Binding, TensorSpec, Workload

GUARDS = (0x7B, 0xFB)
"""Bytes of the canaries, one per run: huge floats of opposite sign (and wild indices), so that a value read from
outside changes the result between two runs."""

POISONS = (0xFF, 0x77)
"""Bytes an output is filled with before a call, one per run: NaN, then a large number."""

_ALIGN = 64


def guard_bytes(size: int) -> int:
    """Bytes of one canary for elements of `size` bytes: 64 elements, at least 256."""
    return max(256, 64 * size)


def guarded_bytes(dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], shift: int = 0) -> int:
    """Bytes that a `Guarded` of this layout takes."""
    span = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    size = dtype.itemsize
    return (2 * guard_bytes(size) + (span + shift) * size + 2 * _ALIGN) // _ALIGN * _ALIGN


class Guarded:
    """A tensor of given strides with a canary of at least 64 elements on both sides, in memory of its own or in `raw`
    (of `guarded_bytes`, aligned to 64). `shift` moves it that many elements off the 64-byte alignment.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        shape: Sequence[int],
        strides: Sequence[int],
        *,
        shift: int = 0,
        raw: torch.Tensor | None = None,
    ) -> None:
        size = dtype.itemsize
        span = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        self._raw = torch.empty(guarded_bytes(dtype, shape, strides, shift), dtype=torch.uint8) if raw is None else raw
        begin = -(-guard_bytes(size) // _ALIGN) * _ALIGN + shift * size
        self._before, self._after = self._raw[:begin], self._raw[begin + span * size :]
        self._bytes = self._raw[begin : begin + span * size]
        self.tensor = self._bytes.view(dtype).as_strided(tuple(shape), tuple(strides))
        self._snapshot: torch.Tensor | None = None

    @property
    def pointer(self) -> int:
        return self._bytes.data_ptr()

    def write(self, values: torch.Tensor, guard: int) -> None:
        """Put `values` in, the canary byte everywhere else (gaps between strides too), and remember every byte."""
        self._raw.fill_(guard)
        _copy_into(self.tensor, values)
        self._snapshot = self._raw.clone()

    def poison(self, guard: int, poison: int) -> None:
        """Fill with poison, the canaries with `guard`."""
        self._raw.fill_(guard)
        self._bytes.fill_(poison)

    def unchanged(self) -> bool:
        """Whether no byte differs from what `write` left, canaries included."""
        return self._snapshot is not None and torch.equal(self._raw.view(torch.int64), self._snapshot.view(torch.int64))

    def intact(self, guard: int) -> bool:
        """Whether both canaries still hold `guard`."""
        return bool((self._before == guard).all()) and bool((self._after == guard).all())

    def poisoned(self, poison: int) -> int:
        """How many elements still hold only poison bytes."""
        size = self.tensor.element_size()
        return int((self._bytes.view(-1, size) == poison).all(1).sum()) if self._bytes.numel() else 0


def _copy_into(target: torch.Tensor, values: torch.Tensor) -> None:
    """Copy, writing each element of an expanded dimension once."""
    for dim, stride in enumerate(target.stride()):
        if stride == 0 and target.shape[dim] > 1:
            target, values = target.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    target.copy_(values)


def arena_bytes(workload: Workload, bindings: Iterable[Mapping[str, int]]) -> int:
    """Bytes that hold the buffers of any of these bindings, aliased outputs on memory of their own."""

    def needed(binding: Mapping[str, int]) -> int:
        specs = (*workload.inputs, *workload.output_specs)
        layouts = ((DTYPES[s.dtype], workload.bound_shape(s, binding), workload.bound_strides(s, binding)) for s in specs)
        return sum(guarded_bytes(*layout, shift=1) for layout in layouts)

    return max(map(needed, bindings)) + mmap.PAGESIZE


def mapped(descriptor: int) -> torch.Tensor:
    """An arena's bytes; the mapping lives as long as the tensor."""
    size = os.fstat(descriptor).st_size
    return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)


class Buffers:
    """All inputs and outputs of one workload at one binding; their content is replaced case by case. They lie one after
    another in `memory` where it is given. `apart` gives outputs that lie over inputs a place of their own."""

    def __init__(
        self,
        workload: Workload,
        binding: Binding,
        *,
        shift: int = 0,
        memory: torch.Tensor | None = None,
        apart: bool = False,
    ) -> None:
        used = 0

        def guarded(spec: TensorSpec, shift: int) -> Guarded:
            nonlocal used
            layout = DTYPES[spec.dtype], workload.bound_shape(spec, binding), workload.bound_strides(spec, binding)
            if memory is None:
                return Guarded(*layout, shift=shift)
            begin, used = used, used + guarded_bytes(*layout, shift)
            return Guarded(*layout, shift=shift, raw=memory[begin:used])

        self.inputs = [guarded(spec, shift) for spec in workload.inputs]
        over = {} if apart else dict(workload.aliases)
        self.outputs = [self.inputs[over[k]] if k in over else guarded(spec, 0) for k, spec in enumerate(workload.output_specs)]
        self.overwritten = frozenset(over.values())
        self.sizes = [binding[name] for name in workload.symbols]

    def offsets(self, memory: torch.Tensor) -> list[int]:
        """Where the tensors begin in `memory`, in bytes."""
        return [pointer - memory.data_ptr() for pointer in self.pointers()]

    def pointers(self) -> list[int]:
        return [g.pointer for g in (*self.inputs, *self.outputs)]

    def fill(self, values: Sequence[torch.Tensor], run: int) -> None:
        """Put `values` into the inputs, with the canaries of run number `run`."""
        for guarded, value in zip(self.inputs, values, strict=True):
            guarded.write(value, GUARDS[run % 2])

    def poison(self, run: int) -> None:
        """Poison the outputs that have memory of their own, as run number `run` does."""
        for guarded in self.outputs:
            if all(guarded is not given for given in self.inputs):
                guarded.poison(GUARDS[run % 2], POISONS[run % 2])

    def results(self) -> list[torch.Tensor]:
        """Contiguous copies of the outputs."""
        return [g.tensor.clone(memory_format=torch.contiguous_format) for g in self.outputs]


def bits_equal(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    """Whether two lists of contiguous tensors hold the same bytes (NaN equals the same NaN)."""
    return all(
        x.numel() == 0 or torch.equal(x.view(-1).view(torch.uint8), y.view(-1).view(torch.uint8))
        for x, y in zip(a, b, strict=True)
    )
