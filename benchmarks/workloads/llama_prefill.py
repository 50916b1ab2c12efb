"""SmolLM-135M's shape (a Llama), reading a prompt: one sequence of tokens in, logits of the last position out."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

TRAINING = False


def config(
    *, layers: int = 30, hidden: int = 576, heads: int = 9, kv_heads: int = 3, intermediate: int = 1536, vocab: int = 49152
) -> LlamaConfig:
    """SmolLM-135M unless told otherwise; `hidden` must be a multiple of `heads`."""
    return LlamaConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=intermediate,
        vocab_size=vocab,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )


class Prefill(torch.nn.Module):
    """Token ids [batch, tokens] -> logits of the last position [batch, vocab]."""

    def __init__(self, settings: LlamaConfig) -> None:
        super().__init__()
        self.model = LlamaForCausalLM(settings)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, use_cache=False, logits_to_keep=1).logits[:, -1]


def build(
    *, batch: int = 1, tokens: int = 256, settings: LlamaConfig | None = None
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    chosen = settings or config()
    return Prefill(chosen).eval(), (torch.randint(0, chosen.vocab_size, (batch, tokens)),)


def small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers at full width, a small vocabulary: the same regions, in seconds."""
    return build(tokens=64, settings=config(layers=2, vocab=2048))
