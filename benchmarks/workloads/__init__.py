"""Models as examples and as work to measure. Each module has `build()` and `small()`, both returning (module, inputs).

`module(*inputs)` is one call; weights are random, from a fixed seed, so nothing is downloaded. A module with
`TRAINING = True` returns a loss, and a step is forward, backward and AdamW.
"""

from __future__ import annotations

import torch

NAMES = (
    "llama_prefill",
    "llama_prefill_bf16",
    "llama_decode",
    "llama_decode_bf16",
    "qwen_decode_bf16",
    "gpt2",
    "gpt2_decode_bf16",
    "bert",
    "bert_bf16",
    "vit",
    "t5",
    "cnn",
    "llama_train",
)
"""Every workload, in the order of the tables."""


def in_bf16(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """The same with weights, and so activations, in bfloat16; inputs are ids and masks, and stay."""
    return module.to(torch.bfloat16), inputs
