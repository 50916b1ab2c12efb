"""T5 small, encoder and decoder: RMSNorm without a bias, relative position biases added to the attention scores."""

from __future__ import annotations

import torch
from transformers import T5Config, T5ForConditionalGeneration

TRAINING = False


class Translator(torch.nn.Module):
    """Source ids [batch, tokens] and target ids [batch, target tokens] -> logits [batch, target tokens, vocab]."""

    def __init__(self, settings: T5Config) -> None:
        super().__init__()
        self.model = T5ForConditionalGeneration(settings)

    def forward(self, input_ids: torch.Tensor, decoder_input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, decoder_input_ids=decoder_input_ids, use_cache=False).logits


def build(
    *, batch: int = 2, tokens: int = 128, target: int = 32, layers: int = 6, vocab: int = 32128
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    settings = T5Config(
        d_model=512,
        d_kv=64,
        d_ff=2048,
        num_layers=layers,
        num_decoder_layers=layers,
        num_heads=8,
        vocab_size=vocab,
        decoder_start_token_id=0,
    )
    inputs = (torch.randint(2, vocab, (batch, tokens)), torch.randint(2, vocab, (batch, target)))
    return Translator(settings).eval(), inputs


def small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers each side at full width, a small vocabulary."""
    return build(tokens=32, target=16, layers=2, vocab=2048)
