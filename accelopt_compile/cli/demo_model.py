"""The model of `accelopt demo`: a Hugging Face Llama with random weights, SmolLM-135M's width and fewer layers."""

from __future__ import annotations

from typing import Any


def build(*, layers: int = 4, tokens: int = 128, seed: int = 0) -> tuple[Any, tuple[Any, ...]]:
    """(module, inputs): token ids [1, tokens] to the last position's logits [1, 2048]. Needs transformers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    class Prefill(torch.nn.Module):
        def __init__(self, config: LlamaConfig) -> None:
            super().__init__()
            self.model = LlamaForCausalLM(config)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.model(input_ids=input_ids, use_cache=False, logits_to_keep=1).logits
            return logits[:, -1]

    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=576,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        intermediate_size=1536,
        vocab_size=2048,
        max_position_embeddings=max(2048, tokens),
        tie_word_embeddings=True,
    )
    return Prefill(config).eval(), (torch.randint(0, config.vocab_size, (1, tokens)),)
