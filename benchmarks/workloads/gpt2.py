"""GPT-2 small (124M) reading a prompt: LayerNorm, tanh-GELU, learned positions."""

from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel

TRAINING = False


class Prefill(torch.nn.Module):
    """Token ids [batch, tokens] -> logits of the last position [batch, vocab]."""

    def __init__(self, settings: GPT2Config) -> None:
        super().__init__()
        self.model = GPT2LMHeadModel(settings)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, use_cache=False, logits_to_keep=1).logits[:, -1]


def build(
    *, batch: int = 1, tokens: int = 256, layers: int = 12, vocab: int = 50257
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    model = Prefill(GPT2Config(n_layer=layers, vocab_size=vocab, bos_token_id=0, eos_token_id=0))
    return model.eval(), (torch.randint(0, vocab, (batch, tokens)),)


def small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers at full width, a small vocabulary."""
    return build(tokens=64, layers=2, vocab=2048)
