"""How much do half-ulp errors on the way move the result? As much as the golden answer moves over some noisy probes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule

from accelopt_compile.evaluate.noisy import Noisy, moved
from accelopt_compile.evaluate.reference import widen


@dataclass(frozen=True, kw_only=True)
class Moves:
    """How far one output moved over the probes: rms of each element, and of its sum against 1, g and |g|."""

    elements: torch.Tensor
    along: tuple[float, float, float]
    probes: int


def sensitivity(
    golden: GraphModule,
    inputs: Sequence[torch.Tensor],
    answers: Sequence[torch.Tensor],
    *,
    probes: int,
    low: bool,
    seed: int,
    multiple: float = 1.0,
    equal_terms: bool = False,
) -> list[Moves]:
    """rms over `probes` of noisy golden - answers, per output (zeros for outputs that are no floats).

    Inputs are moved by `multiple` units of float32 (of their own where they are float64), results of nodes by one. `low`
    moves only results in half precision, by one unit of their own: inputs are what they are. A probe says nothing of an
    element that it makes infinite or no number.
    """
    generator = torch.Generator().manual_seed(seed & (2**63 - 1))
    tallies = [_Tally(a) if a.is_floating_point() else None for a in answers]
    wide = widen(inputs)
    for _ in range(probes):
        trial = wide
        if not low:
            units = [multiple * (2.0**-52 if x.dtype == torch.float64 else 2.0**-24) for x in inputs]
            trial = [moved(x, unit, generator) if x.is_floating_point() else x for x, unit in zip(wide, units, strict=True)]
        results = Noisy(golden, generator, low=low, equal_terms=equal_terms).run(*trial)
        for tally, result in zip(tallies, results, strict=True):
            if tally is not None:
                tally.add(result)
    nothing = Moves(elements=torch.zeros(()), along=(0.0, 0.0, 0.0), probes=probes)
    return [nothing if tally is None else tally.moves(probes) for tally in tallies]


class _Tally:
    """Sums of squares over the probes of one output."""

    def __init__(self, answer: torch.Tensor) -> None:
        self._answer = answer
        self._plain = torch.nan_to_num(answer, nan=0.0, posinf=0.0, neginf=0.0).contiguous().view(-1)
        self._size = self._plain.abs()
        self._squares = torch.zeros_like(answer)
        self._lost: torch.Tensor | float = 0.0
        self._along = [0.0, 0.0, 0.0]

    def add(self, result: torch.Tensor) -> None:
        off = result - self._answer
        square = off.square()
        if not math.isfinite(float(square.sum())):
            gone = ~torch.isfinite(square)
            self._lost = self._lost + gone.to(square.dtype)
            off, square = torch.where(gone, 0.0, off), torch.where(gone, 0.0, square)
        self._squares += square
        flat = off.contiguous().view(-1)
        for k, sum_ in enumerate((flat.sum(), flat.dot(self._plain), flat.dot(self._size))):
            self._along[k] += float(sum_) * float(sum_)  # infinite where ** would raise

    def moves(self, probes: int) -> Moves:
        first, second, third = (math.sqrt(square / max(probes, 1)) for square in self._along)
        count = torch.as_tensor(probes - self._lost, dtype=self._squares.dtype).clamp(min=1)
        return Moves(elements=self._squares.div_(count).sqrt_(), along=(first, second, third), probes=probes)
