"""The prompt of `llama_prefill` with weights and activations in bfloat16."""

from __future__ import annotations

import torch

from benchmarks.workloads import in_bf16, llama_prefill

TRAINING = False


def build() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    return in_bf16(*llama_prefill.build())


def small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers at full width, a small vocabulary."""
    return in_bf16(*llama_prefill.small())
