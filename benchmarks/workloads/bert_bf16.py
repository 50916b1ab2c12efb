"""The sentences of `bert` with weights and activations in bfloat16."""

from __future__ import annotations

import torch

from benchmarks.workloads import bert

TRAINING = False


def build() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    model, inputs = bert.build()
    return model.to(torch.bfloat16), inputs


def small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers at full width, a small vocabulary."""
    model, inputs = bert.small()
    return model.to(torch.bfloat16), inputs
