"""How wrong a compiled model is, against float64, and whether it is more wrong than Inductor.

What counts as a wrong value: an error above FACTOR times Inductor's own on the same tensor of the same call, and above
FLOOR. These numbers were fixed before the first result was seen, from what rounding alone does:

- FACTOR 2 on the relative L2 error. Two right orders of the same sums have errors of one size but independent; of a tensor
  with many elements their norms agree within a few percent, and what remains is a rounding more or less on the way (a
  value that one of the two keeps in float32 where the other stores bfloat16). A wrong element shows: it is off by its own
  size, not by units in the last place.
- FACTOR 4 on the largest error as a share of the largest value: a maximum over few independent errors scatters more.
- FLOOR 16 units of float32 (2e-6), 1 of bfloat16 (2^-8) under autocast, four times these on the largest: where Inductor
  happens to be exact (a loss is a single number) an error that any reordering makes is not a wrong value.

A tensor counts as at least SMALL times the root mean square of all gradients of the call: the gradient of a key's bias is 0
in exact arithmetic, and a share of nothing says nothing. What is left of such a tensor is rounding alone, 2 to 4 times more
or less of it from shape to shape for either compiler, so it is held to Inductor's worst of all shapes. (Added after ViT:
seeds 1.8e-5 of that share at one shape and Inductor 4.9e-6 there, but Inductor 1.8e-5 at another; eager 1e-5.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

FACTOR = {"l2": 2.0, "peak": 4.0}
FLOOR = {"fp32": {"l2": 2e-6, "peak": 8e-6}, "bf16": {"l2": 2.0**-8, "peak": 2.0**-6}}
SMALL = 1e-3


class Exact(TorchFunctionMode):
    """Float64 stays float64: a model's own casts to float32 (in norms, softmax, rotary embeddings) are cast to float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.float:
            func = Tensor.double
        given = {name: torch.float64 if value is torch.float32 else value for name, value in (kwargs or {}).items()}
        return func(*(torch.float64 if a is torch.float32 else a for a in args), **given)


@dataclass(frozen=True, kw_only=True)
class Error:
    """Of one tensor: the norm of the difference as a share of the reference's, the largest one as a share of its largest.
    `vanishes` where the reference is as good as 0."""

    l2: float
    peak: float
    vanishes: bool = False

    def within(self, other: Error, dtype: str) -> bool:
        """Whether this error is no more than rounding explains, given Inductor's."""
        floor = FLOOR[dtype]
        return self.l2 <= max(FACTOR["l2"] * other.l2, floor["l2"]) and self.peak <= max(
            FACTOR["peak"] * other.peak, floor["peak"]
        )


def worst(found: Iterable[Error]) -> Error:
    """The largest of each kind."""
    every = list(found)
    return Error(l2=max(e.l2 for e in every), peak=max(e.peak for e in every))


def errors(found: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> dict[str, Error]:
    """Of every tensor. Infinite where a tensor is missing, has another shape, or is not finite where the reference is."""
    gradients = [t for name, t in reference.items() if name.startswith("grad.")]
    count = sum(t.numel() for t in gradients) or 1
    least = SMALL * math.sqrt(sum(float(t.square().sum()) for t in gradients) / count)
    return {
        name: _error(found.get(name), wanted, least if name.startswith("grad.") else 0.0) for name, wanted in reference.items()
    }


def _error(found: Tensor | None, wanted: Tensor, least: float) -> Error:
    if found is None or found.shape != wanted.shape:
        return Error(l2=math.inf, peak=math.inf)
    difference = found.double() - wanted
    if not bool(torch.isfinite(difference).all()):
        return Error(l2=math.inf, peak=math.inf)
    if not wanted.numel():
        return Error(l2=0.0, peak=0.0)
    norm = max(float(wanted.norm()), least * math.sqrt(wanted.numel())) or 1.0
    largest = max(float(wanted.abs().max()), least) or 1.0
    vanishes = float(wanted.norm()) < 1e-3 * norm
    return Error(l2=float(difference.norm()) / norm, peak=float(difference.abs().max()) / largest, vanishes=vanishes)
