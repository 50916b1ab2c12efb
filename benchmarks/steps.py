"""One workload as something to call over and over: inference, or a training step with backward and AdamW."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

VARIANTS: Mapping[str, dict[str, Any] | None] = {
    "eager": None,
    "inductor": {"backend": "inductor"},
    "accelopt": {"backend": "accelopt", "options": {"mode": "apply"}},
}
"""Variant name to the arguments of `torch.compile`; None is not compiled."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """`call` runs one step and returns what it computed: [logits], or [loss, gradients...] before the update."""

    call: Callable[[], list[torch.Tensor]]
    training: bool


def load(workload: str, *, small: bool) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], bool]:
    """(module, inputs, whether it trains) of benchmarks.workloads.<workload>; equal weights at each call."""
    source = importlib.import_module(f"benchmarks.workloads.{workload}")
    module, inputs = source.small() if small else source.build()
    return module, inputs, source.TRAINING


def make_step(workload: str, compile_arguments: dict[str, Any] | None, *, small: bool) -> Step:
    """A step of its own instance of the model. Nothing is compiled before the first call."""
    module, inputs, training = load(workload, small=small)
    compiled = module if compile_arguments is None else torch.compile(module, **compile_arguments)
    if not training:

        def infer() -> list[torch.Tensor]:
            with torch.no_grad():
                return [compiled(*inputs)]

        return Step(call=infer, training=False)

    # Eager gets PyTorch's fused AdamW, its fastest; a compiler is given the plain one, which it can see through.
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=compile_arguments is None)
    update = optimizer.step if compile_arguments is None else torch.compile(optimizer.step, **compile_arguments)

    def train() -> list[torch.Tensor]:
        loss = compiled(*inputs)
        loss.backward()
        computed = [loss.detach(), *(p.grad.detach() for p in module.parameters() if p.grad is not None)]
        update()
        optimizer.zero_grad()
        return computed

    return Step(call=train, training=True)


def worst_error(ours: list[torch.Tensor], reference: list[torch.Tensor]) -> float:
    """The largest |difference| of any tensor pair as a share of the reference's largest |value|; inf if shapes or NaNs differ."""
    worst = 0.0
    for a, b in zip(ours, reference, strict=True):
        if a.shape != b.shape or not torch.equal(a.isnan(), b.isnan()):
            return float("inf")
        scale = b.abs().nan_to_num().max().item()
        worst = max(worst, (a - b).abs().nan_to_num().max().item() / (scale or 1.0))
    return worst
