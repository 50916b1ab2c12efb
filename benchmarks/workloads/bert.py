"""BERT base encoding a batch of sentences with a padding mask: post-norm LayerNorm, exact GELU."""

from __future__ import annotations

import torch
from transformers import BertConfig, BertModel

TRAINING = False


class Encoder(torch.nn.Module):
    """Token ids and mask, both [batch, tokens] -> hidden states [batch, tokens, hidden]."""

    def __init__(self, settings: BertConfig) -> None:
        super().__init__()
        self.model = BertModel(settings, add_pooling_layer=False)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def build(
    *, batch: int = 4, tokens: int = 128, layers: int = 12, vocab: int = 30522
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    mask = torch.ones(batch, tokens, dtype=torch.int64)
    mask[0, tokens // 2 :] = 0
    model = Encoder(BertConfig(num_hidden_layers=layers, vocab_size=vocab))
    return model.eval(), (torch.randint(1, vocab, (batch, tokens)), mask)


def small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers at full width, a small vocabulary."""
    return build(batch=2, tokens=32, layers=2, vocab=2048)
