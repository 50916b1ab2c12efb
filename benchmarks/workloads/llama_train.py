"""SmolLM-135M's shape, one training step: the loss of next-token prediction; a step adds backward and AdamW."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.workloads.llama_prefill import config

TRAINING = True


class NextTokenLoss(torch.nn.Module):
    """Token ids [batch, tokens] -> mean cross-entropy of predicting each from those before it (a scalar)."""

    def __init__(self, settings: LlamaConfig) -> None:
        super().__init__()
        self.model = LlamaForCausalLM(settings)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        logits = self.model(input_ids=input_ids, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), input_ids[:, 1:].flatten())


def build(
    *, batch: int = 1, tokens: int = 128, settings: LlamaConfig | None = None
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    chosen = settings or config()
    return NextTokenLoss(chosen).train(), (torch.randint(0, chosen.vocab_size, (batch, tokens)),)


def small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers at full width, a small vocabulary."""
    return build(tokens=64, settings=config(layers=2, vocab=2048))
