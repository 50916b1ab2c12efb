"""Memory around a kernel call: tensors between canaries, inputs that must not change, outputs filled with poison; where an
output lies over an input, one memory for both."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from accelopt_compile.evaluate.reference import DTYPES
from accelopt_compile.records import Binding, TensorSpec, Workload

GUARDS = (0x7B, 0xFB)
"""Bytes of the canaries, one per run: huge floats of opposite sign (and wild indices), so that a value read from
outside changes the result between two runs."""

POISONS = (0xFF, 0x77)
"""Bytes an output is filled with before a call, one per run: NaN, then a large number."""

_ALIGN = 64


class Guarded:
    """A tensor of given strides with a canary of at least 64 elements on both sides, on one fresh allocation.

    `shift` moves it that many elements off the 64-byte alignment.
    """

    def __init__(self, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], *, shift: int = 0) -> None:
        size = torch.empty(0, dtype=dtype).element_size()
        span = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        guard = max(256, 64 * size)
        self._raw = torch.empty((guard + span * size + guard + _ALIGN + shift * size + 7) // 8 * 8, dtype=torch.uint8)
        begin = -(-guard // _ALIGN) * _ALIGN + shift * size
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


class Buffers:
    """All inputs and outputs of one workload at one binding; their content is replaced case by case."""

    def __init__(self, workload: Workload, binding: Binding, *, shift: int = 0) -> None:
        def guarded(spec: TensorSpec, shift: int) -> Guarded:
            shape, strides = workload.bound_shape(spec, binding), workload.bound_strides(spec, binding)
            return Guarded(DTYPES[spec.dtype], shape, strides, shift=shift)

        self.inputs = [guarded(spec, shift) for spec in workload.inputs]
        over = dict(workload.aliases)
        self.outputs = [self.inputs[over[k]] if k in over else guarded(spec, 0) for k, spec in enumerate(workload.output_specs)]
        self.overwritten = frozenset(over.values())
        self.sizes = [binding[name] for name in workload.symbols]

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
