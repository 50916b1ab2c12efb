"""Small models of the common kinds, and the graphs that torch.compile makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from accelopt_compile.capture import CapturedGraph, capture

SIZES: dict[str, Any] = {"vocab_size": 128}


def llama(layers: int = 2) -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        use_cache=False,
        **SIZES,
    )
    return LlamaForCausalLM(config), _language((2, 12))


def gpt2(layers: int = 2) -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=64, n_layer=layers, n_head=4, n_positions=64, use_cache=False, **SIZES, **_no_dropout("gpt2"))
    return GPT2LMHeadModel(config), _language((2, 12))


def bert(layers: int = 2) -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        hidden_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **SIZES,
    )
    return BertForMaskedLM(config), _language((2, 12))


def vit(layers: int = 2) -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=96,
        image_size=16,
        patch_size=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randn(2, 3, 16, 16, generator=generator)
    return ViTForImageClassification(config), {"pixel_values": pixels, "labels": torch.tensor([0, 1])}


def t5(layers: int = 2) -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=64, d_kv=16, d_ff=96, num_layers=layers, num_heads=4, dropout_rate=0.0, use_cache=False, **SIZES)
    config.decoder_start_token_id = 0
    return T5ForConditionalGeneration(config), _language((2, 12))


MODELS = {"llama": llama, "gpt2": gpt2, "bert": bert, "vit": vit, "t5": t5}


def _no_dropout(kind: str) -> dict[str, float]:
    return dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)


def _language(shape: tuple[int, int]) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 128, shape, generator=generator)
    return {"input_ids": ids, "labels": ids}


def build(name: str, layers: int = 2) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The model with fixed random weights, and its arguments."""
    torch.manual_seed(0)
    model, inputs = MODELS[name](layers)
    return model.eval(), inputs


def run(model: Callable[..., Any], inputs: dict[str, Any], *, training: bool) -> Any:
    """One call; with a backward pass when training."""
    if training:
        result = model(**inputs)
        result.loss.backward()
        return result
    with torch.no_grad():
        return model(**inputs)


def graphs_of(model: Callable[..., Any], inputs: dict[str, Any], *, training: bool, dynamic: bool = False) -> list[CapturedGraph]:
    """The captured graphs of one compiled call; the call itself runs uncompiled."""
    torch._dynamo.reset()
    found: list[CapturedGraph] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        found.extend(capture(gm, example_inputs))
        return gm.forward

    run(torch.compile(model, backend=backend, dynamic=dynamic), inputs, training=training)
    return found


def graph_of(function: Callable[..., Any], *args: torch.Tensor, dynamic: bool = False) -> torch.fx.Graph:
    """The inference graph of a function of tensors."""
    torch._dynamo.reset()
    found: list[CapturedGraph] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        found.extend(capture(gm, example_inputs))
        return gm.forward

    with torch.no_grad():
        torch.compile(function, backend=backend, dynamic=dynamic)(*args)
    (only,) = found
    return only.graph
