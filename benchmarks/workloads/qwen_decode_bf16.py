"""Qwen2.5-0.5B's shape in bfloat16, writing one token at a given context: biases, two heads of keys for fourteen of queries."""

from __future__ import annotations

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.workloads.llama_decode import step_of

TRAINING = False


def build(
    *, batch: int = 1, context: int = 512, layers: int = 24, vocab: int = 151936
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    settings = Qwen2Config(
        hidden_size=896,
        num_hidden_layers=layers,
        num_attention_heads=14,
        num_key_value_heads=2,
        intermediate_size=4864,
        vocab_size=vocab,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    return step_of(Qwen2ForCausalLM(settings), batch=batch, context=context, dtype=torch.bfloat16)


def small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers at full width, a small vocabulary."""
    return build(context=64, layers=2, vocab=2048)
