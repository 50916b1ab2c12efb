"""The decode step of `llama_decode` with weights, activations and cache in bfloat16."""

from __future__ import annotations

import torch

from benchmarks.workloads import llama_decode
from benchmarks.workloads.llama_prefill import config

TRAINING = False


def build(*, batch: int = 1, context: int = 512) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    return llama_decode.build(batch=batch, context=context, dtype=torch.bfloat16)


def small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers at full width, a small vocabulary."""
    return llama_decode.build(context=64, settings=config(layers=2, vocab=2048), dtype=torch.bfloat16)
