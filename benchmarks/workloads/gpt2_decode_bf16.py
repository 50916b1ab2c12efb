"""GPT-2 small (124M) in bfloat16, writing one token at a given context: products with a bias on weights that lie by inputs."""

from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.workloads.llama_decode import step_of

TRAINING = False


def build(
    *, batch: int = 1, context: int = 512, layers: int = 12, vocab: int = 50257
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    settings = GPT2Config(n_layer=layers, vocab_size=vocab, bos_token_id=0, eos_token_id=0)
    return step_of(GPT2LMHeadModel(settings), batch=batch, context=context, dtype=torch.bfloat16)


def small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers at full width, a small vocabulary."""
    return build(context=64, layers=2, vocab=2048)
