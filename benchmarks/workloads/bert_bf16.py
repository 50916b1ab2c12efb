"""The sentences of `bert` with weights and activations in bfloat16."""

from __future__ import annotations

import torch

from benchmarks.workloads import bert, in_bf16

TRAINING = False


def build() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    return in_bf16(*bert.build())


def small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers at full width, a small vocabulary."""
    return in_bf16(*bert.small())
