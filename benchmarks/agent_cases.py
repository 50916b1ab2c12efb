"""Workloads for the agents: functions of real models at sizes that a search gets through, each a MODULE:FACTORY.

    accelopt tune benchmarks.agent_cases:softmax_bf16 --model ... --threads 1

Used by the live runs in `transcripts/` and by `ablate.py`. Shapes and spellings are those of the region suite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.region_cases import cases

CASES = {
    "softmax_bf16": "softmax-1536x128-bf16",
    "add_rms_norm_bf16": "add_rms_norm-512x2048-bf16",
    "gelu_bf16": "gelu_erf-512x5632-bf16",
    "layer_norm_f32": "layer_norm-2048x768-f32",
    "transpose_bf16": "transpose-4096x4096-bf16",
    "decode_bf16": "decode-H9_3-L1024-D64-bf16",
}
"""Factory to the region suite's case."""


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def _made(key: str) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    (problem,) = (case.make() for case in cases() if case.key == key)
    return Function(problem.function), problem.inputs


def softmax_bf16() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """Attention scores of 12 heads, 128 tokens."""
    return _made(CASES["softmax_bf16"])


def add_rms_norm_bf16() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """A residual added, then a Llama's RMSNorm: 512 tokens of 2048."""
    return _made(CASES["add_rms_norm_bf16"])


def gelu_bf16() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """BERT's activation: 512 tokens of 5632."""
    return _made(CASES["gelu_bf16"])


def layer_norm_f32() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """GPT-2's layer norm: 2048 tokens of 768."""
    return _made(CASES["layer_norm_f32"])


def transpose_bf16() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """A matrix turned."""
    return _made(CASES["transpose_bf16"])


def decode_bf16() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """One token of SmolLM-135M against a cache of 1024."""
    return _made(CASES["decode_bf16"])
