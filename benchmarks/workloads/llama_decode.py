"""SmolLM-135M's shape, writing one token at a given context: the step that generation repeats.

The key-value cache is Hugging Face's StaticCache, filled with random keys and values. Every call writes at the same
position, so that calls are equal and may be compared and timed in any order.
"""

from __future__ import annotations

import inspect

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, StaticCache

from benchmarks.workloads.llama_prefill import config

TRAINING = False


class Decode(torch.nn.Module):
    """Token ids [batch, 1] -> logits [batch, vocab], attending to `context` cached positions and itself."""

    def __init__(self, model: PreTrainedModel, *, batch: int, context: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model.to(dtype)
        self.context = context
        settings = model.config
        self.cache = StaticCache(config=settings, max_cache_len=context + 1)
        heads = settings.num_attention_heads
        shared = getattr(settings, "num_key_value_heads", heads)
        self.cache.early_initialization(batch, shared, settings.hidden_size // heads, dtype, torch.device("cpu"))
        for layer in self.cache.layers:
            layer.keys.normal_()
            layer.values.normal_()
        self.cache_argument = cache_argument(model)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(self.context)
        return self.model(input_ids=input_ids, use_cache=True, **{self.cache_argument: self.cache}).logits[:, -1]


def cache_argument(model: PreTrainedModel) -> str:
    """Renamed in transformers 5: the old name still works there, through a wrapper that breaks the graph."""
    return "cache" if "cache" in inspect.signature(type(model).forward).parameters else "past_key_values"


def step_of(
    model: PreTrainedModel, *, batch: int, context: int, dtype: torch.dtype
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """The decode step of any causal language model, and a token for each sequence."""
    step = Decode(model, batch=batch, context=context, dtype=dtype)
    return step.eval(), (torch.randint(0, model.config.vocab_size, (batch, 1)),)


def build(
    *, batch: int = 1, context: int = 512, settings: LlamaConfig | None = None, dtype: torch.dtype = torch.float32
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    chosen = settings or config()
    return step_of(LlamaForCausalLM(chosen), batch=batch, context=context, dtype=dtype)


def small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers at full width, a small vocabulary."""
    return build(context=64, settings=config(layers=2, vocab=2048))
