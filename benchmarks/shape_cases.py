"""The models of `check_shapes`: those of `workloads/`, narrow enough for many compilations, with sizes that vary.

Weights are random from a fixed seed, dropout is off: eager, Inductor and ours must compute the same thing. Every model
but the one that returns a loss gets a cross-entropy over its last dimension, so that there is a backward to compare.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    StaticCache,
    T5Config,
    ViTConfig,
)

from benchmarks.workloads import bert, cnn, gpt2, llama_decode, llama_prefill, llama_train, t5, vit

Sizes = Mapping[str, int]
VOCAB = 512
LAYERS = 1
"""One of each kind: a second one repeats its regions and doubles the time of several hundred compilations."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """`ranges` are the lowest and highest value of each size that varies; `inputs` are made for one choice of them."""

    make: Callable[[], nn.Module]
    ranges: Mapping[str, tuple[int, int]]
    inputs: Callable[[Sizes, torch.Generator], tuple[Tensor, ...]]
    gives_loss: bool = False
    batch_statistics: bool = False
    """Trains in train mode; other models have nothing that differs there but dropout."""
    autocast_dtypes: tuple[torch.dtype, ...] | None = None
    precisions: tuple[str, ...] = ("fp32", "bf16")
    """Without and with autocast to bfloat16."""

    def model(self, *, training: bool) -> nn.Module:
        """A fresh instance, equal at each call: output, or with `training` (output, loss)."""
        torch.manual_seed(0)
        module = self.make().train(training and self.batch_statistics)
        return WithLoss(module, self.gives_loss) if training else module

    def draw(self, count: int, seed: int = 0) -> list[dict[str, int]]:
        """`count` different choices of sizes."""
        rng = random.Random(seed)
        drawn: list[dict[str, int]] = []
        while len(drawn) < count:
            sizes = {name: rng.randint(low, high) for name, (low, high) in self.ranges.items()}
            if sizes not in drawn:
                drawn.append(sizes)
        return drawn

    def under_autocast(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """What the model is given under autocast to bfloat16, where its own state is kept in other dtypes."""
        return inputs if self.autocast_dtypes is None else tuple(map(Tensor.to, inputs, self.autocast_dtypes))

    def middle(self, share: float) -> dict[str, int]:
        """The sizes at this share of the way from lowest to highest, for the search."""
        return {name: round(low + share * (high - low)) for name, (low, high) in self.ranges.items()}


class WithLoss(nn.Module):
    """(output, loss): the model's own, or its cross-entropy against made-up classes."""

    def __init__(self, model: nn.Module, gives_loss: bool) -> None:
        super().__init__()
        self.model = model
        self.gives_loss = gives_loss

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        output = self.model(*inputs)
        if self.gives_loss:
            return output, output
        logits = output.flatten(0, -2)
        classes = torch.arange(logits.shape[0], device=logits.device) % logits.shape[1]
        return output, nn.functional.cross_entropy(logits, classes)


class DecodeAt(nn.Module):
    """A decode step with the cache as an argument: (ids [batch, 1], position, keys and values of each layer) -> logits."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.cache_argument = llama_decode.cache_argument(model)

    def forward(self, input_ids: Tensor, position: Tensor, *keys_values: Tensor) -> Tensor:
        cache: Any = StaticCache(config=self.model.config, max_cache_len=keys_values[0].shape[2])
        for i, layer in enumerate(cache.layers):
            # The step writes into its cache. With gradients into a copy: an argument is no place for a graph.
            layer.keys, layer.values = (t.clone() if torch.is_grad_enabled() else t for t in keys_values[2 * i : 2 * i + 2])
            layer.cumulative_length, layer.is_initialized = position.clone(), True
            layer.device = input_ids.device
        output: Tensor = self.model(input_ids=input_ids, use_cache=True, **{self.cache_argument: cache}).logits[:, -1]
        return output


def _llama() -> Any:
    return llama_prefill.config(layers=LAYERS, hidden=192, heads=6, kv_heads=2, intermediate=320, vocab=VOCAB)


def _ids(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(2, VOCAB, shape, generator=generator)


def _text(sizes: Sizes, generator: torch.Generator) -> tuple[Tensor, ...]:
    return (_ids((sizes["batch"], sizes["tokens"]), generator),)


def _padded(sizes: Sizes, generator: torch.Generator) -> tuple[Tensor, ...]:
    (ids,) = _text(sizes, generator)
    lengths = torch.randint(1, sizes["tokens"] + 1, (sizes["batch"], 1), generator=generator)
    return ids, (torch.arange(sizes["tokens"]) < lengths).long()


def _pair(sizes: Sizes, generator: torch.Generator) -> tuple[Tensor, ...]:
    return tuple(_ids((sizes["batch"], sizes[name]), generator) for name in ("tokens", "target"))


def _images(sizes: Sizes, generator: torch.Generator) -> tuple[Tensor, ...]:
    size = sizes.get("size", 48)
    return (torch.randn(sizes["batch"], 3, size, size, generator=generator),)


def _cached(heads: int, width: int) -> Callable[[Sizes, torch.Generator], tuple[Tensor, ...]]:
    def inputs(sizes: Sizes, generator: torch.Generator) -> tuple[Tensor, ...]:
        shape = (sizes["batch"], heads, sizes["cache"], width)
        cache = [torch.randn(shape, generator=generator) for _ in range(2 * LAYERS)]
        return _ids((sizes["batch"], 1), generator), torch.tensor(sizes["cache"] * 2 // 3), *cache

    return inputs


def _decode_bf16(model: Callable[[], Any], heads: int, width: int) -> Case:
    return Case(
        make=lambda: DecodeAt(model()).to(torch.bfloat16),
        ranges=STEP,
        inputs=_cached(heads, width),
        autocast_dtypes=(torch.int64, torch.int64, *(LAYERS * (torch.bfloat16, torch.bfloat16))),
        precisions=("bf16",),
    )


def _qwen() -> Any:
    sizes: dict[str, Any] = {"hidden_size": 192, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 320}
    return Qwen2ForCausalLM(Qwen2Config(**sizes, num_hidden_layers=LAYERS, vocab_size=VOCAB))


def _bert() -> nn.Module:
    sizes: dict[str, Any] = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 320, "num_hidden_layers": LAYERS}
    return bert.Encoder(BertConfig(**sizes, vocab_size=VOCAB, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


def _gpt2() -> GPT2Config:
    ids: dict[str, Any] = {"vocab_size": VOCAB, "bos_token_id": 0, "eos_token_id": 0}
    dropout: dict[str, Any] = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return GPT2Config(n_layer=LAYERS, n_embd=128, n_head=4, **ids, **dropout)


def _t5() -> nn.Module:
    sizes: dict[str, Any] = {"decoder_start_token_id": 0, "num_layers": LAYERS, "num_decoder_layers": LAYERS, "num_heads": 4}
    return t5.Translator(T5Config(d_model=128, d_kv=32, d_ff=320, **sizes, vocab_size=VOCAB, dropout_rate=0.0))


def _vit() -> nn.Module:
    sizes: dict[str, Any] = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 320, "num_hidden_layers": LAYERS}
    sizes["num_labels"] = 100
    return vit.Classifier(ViTConfig(**sizes, image_size=48))


BATCH, TOKENS = (1, 6), (2, 72)
TEXT = {"batch": BATCH, "tokens": TOKENS}
STEP = {"batch": (1, 24), "cache": (2, 96)}
CASES: Mapping[str, Case] = {
    "llama_prefill": Case(make=lambda: llama_prefill.Prefill(_llama()), ranges=TEXT, inputs=_text),
    "llama_prefill_bf16": Case(
        make=lambda: llama_prefill.Prefill(_llama()).to(torch.bfloat16), ranges=TEXT, inputs=_text, precisions=("bf16",)
    ),
    "llama_decode": Case(
        make=lambda: DecodeAt(LlamaForCausalLM(_llama())),
        ranges=STEP,
        inputs=_cached(2, 32),
        # Rotary embedding makes keys float32 again; values stay as their matrix product gave them.
        autocast_dtypes=(torch.int64, torch.int64, *(LAYERS * (torch.float32, torch.bfloat16))),
    ),
    "llama_decode_bf16": _decode_bf16(lambda: LlamaForCausalLM(_llama()), 2, 32),
    "qwen_decode_bf16": _decode_bf16(_qwen, 2, 32),
    "gpt2_decode_bf16": _decode_bf16(lambda: GPT2LMHeadModel(_gpt2()), 4, 32),
    "gpt2": Case(make=lambda: gpt2.Prefill(_gpt2()), ranges=TEXT, inputs=_text),
    "bert": Case(make=_bert, ranges=TEXT, inputs=_padded),
    "bert_bf16": Case(make=lambda: _bert().to(torch.bfloat16), ranges=TEXT, inputs=_padded, precisions=("bf16",)),
    "vit": Case(make=_vit, ranges={"batch": (1, 40)}, inputs=_images),
    "t5": Case(make=_t5, ranges={**TEXT, "target": (2, 40)}, inputs=_pair),
    "cnn": Case(
        make=lambda: cnn.ResidualNet((16, 32), 1, classes=100),
        ranges={"batch": (1, 8), "size": (16, 72)},
        inputs=_images,
        batch_statistics=True,
    ),
    "llama_train": Case(make=lambda: llama_train.NextTokenLoss(_llama()), ranges=TEXT, inputs=_text, gives_loss=True),
}
"""By the names of `workloads`; ViT's image size is part of its weights, so only its batch varies."""
