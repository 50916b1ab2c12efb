"""Memory around a kernel call: tensors between canaries, inputs that must not change, outputs filled with poison; where an
output lies over an input, one memory for both. It may be memory that two processes share."""

from __future__ import annotations

import functools
import mmap
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from accelopt_compile.dtypes import DTYPES
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records import Binding, TensorSpec, Workload

GUARDS = (0, 1)
"""Canaries, one kind per run: numbers like any others, then huge ones of either sign (and wild indices), drawn anew in each
process and dealt out anew in each run. A value read from outside changes the result between two runs; a kernel cannot tell by
them where it is."""

_POOL = 1 << 16


@functools.cache
def _numbers() -> torch.Tensor:
    return torch.randn(_POOL, generator=torch.Generator().manual_seed(secrets.randbits(62)))


@functools.cache
def _canaries(kind: int) -> torch.Tensor:
    return (_numbers() * (1.0 if kind == 0 else -1e36)).view(torch.uint8)


def _fill_with_canaries(raw: torch.Tensor, kind: int) -> None:
    pool = _canaries(kind)
    # Not the same one at the same place each time: where it is a small one, a little of it is rounded away in every run.
    first = pool[8 * secrets.randbelow(pool.numel() // 8) :][: raw.numel()]
    raw[: first.numel()].copy_(first)
    raw = raw[first.numel() :]
    whole = raw.numel() // pool.numel() * pool.numel()
    raw[:whole].view(-1, pool.numel()).copy_(pool.expand(whole // pool.numel(), -1))
    raw[whole:].copy_(pool[: raw.numel() - whole])


POISONS = (0xFF, 0x77)
"""Bytes an output is filled with before a call, one per run: NaN, then a large number."""

_ALIGN = 64
PAGE = mmap.PAGESIZE


Fence = Literal["", "begin", "end"]
"""Where a tensor touches memory that a runner can close to the kernel: nowhere, or right before, or right behind it."""


def guard_bytes(size: int) -> int:
    """Bytes of one canary for elements of `size` bytes: 64 elements, at least 256."""
    return max(256, 64 * size)


@dataclass(frozen=True)
class Layout:
    """One tensor between its canaries: `begin` and `span` in bytes, of `total`."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    begin: int
    span: int
    total: int

    @property
    def data_pages(self) -> tuple[int, int]:
        """(first byte, bytes) of the pages that hold the tensor, in a fenced layout."""
        return PAGE, self.total - 2 * PAGE


def layout(dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], *, shift: int = 0, fence: Fence = "") -> Layout:
    """`shift` moves the tensor that many elements off the 64-byte alignment. With a `fence` a whole page is the canary on
    either side, and the tensor lies against one of them."""
    size = dtype.itemsize
    span = size * (0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)))
    if fence:
        data = -(-max(span, 1) // PAGE) * PAGE
        begin, total = PAGE if fence == "begin" else PAGE + data - span, data + 2 * PAGE
    else:
        guard = guard_bytes(size)
        begin = -(-guard // _ALIGN) * _ALIGN + shift * size
        total = (2 * guard + span + shift * size + 2 * _ALIGN) // _ALIGN * _ALIGN
    return Layout(dtype, tuple(shape), tuple(strides), begin, span, total)


class Guarded:
    """A tensor with canaries on both sides, in memory of its own or in `raw` (of `place.total` bytes, aligned to 64)."""

    def __init__(self, place: Layout, raw: torch.Tensor | None = None) -> None:
        self.place = place
        self._raw = torch.empty(place.total, dtype=torch.uint8) if raw is None else raw
        end = place.begin + place.span
        self._before, self._after = self._raw[: place.begin], self._raw[end:]
        self._bytes = self._raw[place.begin : end]
        self.tensor = self._bytes.view(place.dtype).as_strided(place.shape, place.strides)
        self._snapshot: torch.Tensor | None = None
        self._gaps: torch.Tensor | None = None
        if place.span > self.tensor.numel() * place.dtype.itemsize:  # bytes between strides belong to no element
            mask = torch.zeros_like(self._bytes)
            integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[place.dtype.itemsize]
            mask.view(integers).as_strided(place.shape, place.strides).fill_(-1)
            self._gaps = mask == 0

    @property
    def pointer(self) -> int:
        return self._bytes.data_ptr()

    @property
    def start(self) -> int:
        """Address of the first canary."""
        return self._raw.data_ptr()

    def write(self, values: torch.Tensor, guard: int) -> None:
        """Put `values` in, canaries everywhere else (gaps between strides too), and remember every byte."""
        _fill_with_canaries(self._raw, guard)
        _copy_into(self.tensor, values)
        self._snapshot = self._raw.clone()

    def poison(self, guard: int, poison: int) -> None:
        """Fill with poison, the canaries with `guard`."""
        _fill_with_canaries(self._raw, guard)
        self._bytes.fill_(poison)
        self._snapshot = self._raw.clone()

    def unchanged(self) -> bool:
        """Whether no byte differs from what `write` left, canaries included."""
        return self._snapshot is not None and torch.equal(self._raw.view(torch.int64), self._snapshot.view(torch.int64))

    def intact(self) -> bool:
        """Whether both canaries, and what lies between strides, hold what `write` or `poison` put there."""
        if self._snapshot is None:
            return False
        begin, end = self.place.begin, self.place.begin + self.place.span
        if self._gaps is not None and bool(((self._bytes != self._snapshot[begin:end]) & self._gaps).any()):
            return False
        return torch.equal(self._before, self._snapshot[:begin]) and torch.equal(self._after, self._snapshot[end:])

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
    """Bytes that hold the buffers of any of these bindings, fenced, aliased outputs on memory of their own."""

    def needed(binding: Mapping[str, int]) -> int:
        specs = (*workload.inputs, *workload.output_specs)
        return sum(_spec_layout(workload, s, binding, fence="end").total + PAGE for s in specs)

    return max(map(needed, bindings))


def _spec_layout(workload: Workload, spec: TensorSpec, binding: Binding, *, shift: int = 0, fence: Fence = "") -> Layout:
    shape, strides = workload.bound_shape(spec, binding), workload.bound_strides(spec, binding)
    return layout(DTYPES[spec.dtype], shape, strides, shift=shift, fence=fence)


def mapped(descriptor: int) -> torch.Tensor:
    """An arena's bytes; the mapping lives as long as the tensor."""
    size = os.fstat(descriptor).st_size
    return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)


class Buffers:
    """All inputs and outputs of one workload at one binding; their content is replaced case by case. They lie one after
    another in the first `span` bytes of `memory`, their own where none is given. `apart` gives outputs that lie over
    inputs a place of their own."""

    def __init__(
        self,
        workload: Workload,
        binding: Binding,
        *,
        memory: torch.Tensor | None = None,
        shift: int = 0,
        fence: Fence = "",
        apart: bool = False,
    ) -> None:
        memory = torch.empty(arena_bytes(workload, [binding]), dtype=torch.uint8) if memory is None else memory
        used = 0

        def guarded(spec: TensorSpec, shift: int) -> Guarded:
            nonlocal used
            place = _spec_layout(workload, spec, binding, shift=shift, fence=fence)
            begin, used = used, used + place.total
            if used > memory.numel():
                raise InvalidRecord(f"the shared memory of {memory.numel()} bytes is too small for {dict(binding)}")
            return Guarded(place, memory[begin:used])

        self.inputs = [guarded(spec, shift) for spec in workload.inputs]
        over = {} if apart else dict(workload.aliases)
        self.outputs = [
            self.inputs[over[k]] if k in over else guarded(spec, 2 * shift) for k, spec in enumerate(workload.output_specs)
        ]
        self.overwritten = frozenset(over.values())
        self.sizes = [binding[name] for name in workload.symbols]
        self.span = used
        self._fenced = bool(fence)

    def closed(self, memory: torch.Tensor) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """(offset, bytes) of the pages that a kernel must not touch, and of those that it must not write; none without
        a fence."""
        fences, readonly = [], []
        for guarded in {id(g): g for g in (*self.inputs, *self.outputs)}.values() if self._fenced else ():
            start, (first, count) = guarded.start - memory.data_ptr(), guarded.place.data_pages
            fences += [(start, PAGE), (start + first + count, PAGE)]
            if guarded in self.inputs and self.inputs.index(guarded) not in self.overwritten:
                readonly.append((start + first, count))
        return fences, readonly

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

    def offer(self, values: Sequence[torch.Tensor]) -> None:
        """Put `values` into the outputs; the canaries stay."""
        for guarded, value in zip(self.outputs, values, strict=True):
            _copy_into(guarded.tensor, value)

    def results(self) -> list[torch.Tensor]:
        """Contiguous copies of the outputs, byte by byte: copied as booleans, a 2 would become a 1."""
        return [contiguous(g.tensor) for g in self.outputs]


def contiguous(x: torch.Tensor) -> torch.Tensor:
    raw = x.view(torch.uint8) if x.dtype == torch.bool else x
    return raw.clone(memory_format=torch.contiguous_format).view(x.dtype)


def bits_equal(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    """Whether two lists of contiguous tensors hold the same bytes (NaN equals the same NaN)."""
    return all(
        x.numel() == 0 or torch.equal(x.view(-1).view(torch.uint8), y.view(-1).view(torch.uint8))
        for x, y in zip(a, b, strict=True)
    )
