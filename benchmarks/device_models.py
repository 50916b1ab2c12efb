"""Seven kinds of model, two layers each and narrow, to be traced for a GPU: nothing here allocates or runs anything.

Each builder returns `Call`s: a module and its inputs. It is called inside a FakeTensorMode, with the device and the dtype of the
parameters as defaults. Widths differ from model to model, so that their workloads do; names are those of the architectures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Call:
    """One traced call. `trains` asks for the backward as well; `dynamic` for sizes that are symbols."""

    name: str
    module: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    trains: bool = False
    dynamic: bool = False


def ids(batch: int, tokens: int) -> Tensor:
    return torch.zeros(batch, tokens, dtype=torch.int64)


class NextTokenLoss(nn.Module):
    """Ids [batch, tokens] -> the mean cross-entropy of each token given those before it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        logits = self.model(input_ids=input_ids, use_cache=False).logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), input_ids[:, 1:].flatten())


class Logits(nn.Module):
    """Any inputs of a Hugging Face model -> its logits, or its last hidden state."""

    def __init__(self, model: nn.Module, *names: str) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        kind: dict[str, Any] = {} if self.names[0] == "pixel_values" or "attention_mask" in self.names else {"use_cache": False}
        found = self.model(**dict(zip(self.names, inputs, strict=True)), **kind)
        answer: Tensor = found["logits"] if "logits" in found else found["last_hidden_state"]
        return answer


class LogitsLoss(nn.Module):
    """The cross-entropy of the classes that a model of images gives."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Tensor:
        *given, labels = inputs
        return F.cross_entropy(self.model(*given).float(), labels)


# ---------------------------------------------------------------- language models


def llama() -> list[Call]:
    """RMS norm, rotary positions, grouped-query attention, a gated unit; a prompt, one token at a cache, a training step."""
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    settings = LlamaConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=320, vocab_size=640,
        max_position_embeddings=256, attn_implementation="sdpa",
    )  # fmt: skip
    model = LlamaForCausalLM(settings)
    cache = StaticCache(config=settings, max_cache_len=48)
    dtype = torch.get_default_dtype()
    cache.early_initialization(2, 2, 32, dtype, torch.device("cuda:0"))

    def decode(input_ids: Tensor) -> Tensor:
        for layer in cache.layers:
            layer.cumulative_length.fill_(47)
        logits: Tensor = model(input_ids=input_ids, use_cache=True, past_key_values=cache).logits
        return logits[:, -1]

    return [
        Call(name="prefill", module=Logits(model.eval(), "input_ids"), inputs=(ids(2, 24),)),
        Call(name="prefill-dynamic", module=Logits(model.eval(), "input_ids"), inputs=(ids(3, 20),), dynamic=True),
        Call(name="decode", module=decode, inputs=(ids(2, 1),)),
        Call(name="train", module=NextTokenLoss(model.train()), inputs=(ids(2, 24),), trains=True),
    ]


def gpt2() -> list[Call]:
    """Layer norm with a bias, tanh-GELU, learned positions."""
    from transformers import GPT2Config, GPT2LMHeadModel

    settings = GPT2Config(
        n_embd=96, n_layer=2, n_head=3, n_positions=128, vocab_size=512, bos_token_id=0, eos_token_id=0,
        attn_implementation="sdpa", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = GPT2LMHeadModel(settings)
    return [
        Call(name="prefill-dynamic", module=Logits(model.eval(), "input_ids"), inputs=(ids(2, 20),), dynamic=True),
        Call(name="train", module=NextTokenLoss(model.train()), inputs=(ids(2, 20),), trains=True),
    ]


def bert() -> list[Call]:
    """Norms after the residual, exact GELU, a padding mask; dropout in training."""
    from transformers import BertConfig, BertForMaskedLM

    settings = BertConfig(
        hidden_size=112, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256, vocab_size=544,
        attn_implementation="sdpa", max_position_embeddings=64,
    )  # fmt: skip
    model = BertForMaskedLM(settings)
    mask = torch.ones(2, 24, dtype=torch.int64)

    def loss(input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Tensor:
        logits = model(input_ids=input_ids, attention_mask=attention_mask).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100)

    return [
        Call(name="encode", module=Logits(model.eval(), "input_ids", "attention_mask"), inputs=(ids(2, 24), mask)),
        Call(name="train", module=_in_training(model, loss), inputs=(ids(2, 24), mask, ids(2, 24)), trains=True),
    ]


def _in_training(model: nn.Module, call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(*inputs: Tensor) -> Tensor:
        model.train()
        return call(*inputs)

    return run


def t5() -> list[Call]:
    """RMS norm in float32 without a bias, position biases added to the scores, encoder and decoder."""
    from transformers import T5Config, T5ForConditionalGeneration

    settings = T5Config(
        d_model=80, d_kv=20, d_ff=192, num_layers=2, num_decoder_layers=2, num_heads=4, vocab_size=576, decoder_start_token_id=0,
        dropout_rate=0.0, feed_forward_proj="gated-gelu",
    )  # fmt: skip
    model = T5ForConditionalGeneration(settings)

    def loss(source: Tensor, target: Tensor) -> Tensor:
        logits = model(input_ids=source, decoder_input_ids=target, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten())

    names = ("input_ids", "decoder_input_ids")
    return [
        Call(name="translate", module=Logits(model.eval(), *names), inputs=(ids(2, 24), ids(2, 12))),
        Call(name="translate-train", module=_in_training(model, loss), inputs=(ids(2, 24), ids(2, 12)), trains=True),
    ]


class Experts(nn.Module):
    """Mixtral's layer as dense products: the router's top two of four experts, all of them computed and weighted."""

    def __init__(self, hidden: int, width: int, count: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, count, bias=False)
        self.gate_up = nn.Parameter(torch.empty(count, hidden, 2 * width))
        self.down = nn.Parameter(torch.empty(count, width, hidden))

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, hidden] -> the same."""
        chances = torch.softmax(self.router(x).float(), dim=-1)
        weights, chosen = torch.topk(chances, 2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        shares = torch.zeros_like(chances).scatter(1, chosen, weights).to(x.dtype)
        gate, up = torch.bmm(x.expand(self.down.shape[0], -1, -1), self.gate_up).chunk(2, dim=-1)
        out = torch.bmm(F.silu(gate) * up, self.down)
        return (out * shares.t()[:, :, None]).sum(0)


class MoeBlock(nn.Module):
    """Attention and experts, each behind an RMS norm and a residual."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.experts = Experts(hidden, 2 * hidden)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, hidden = x.shape
        q, k, v = (t.view(batch, tokens, self.heads, -1).transpose(1, 2) for t in self.qkv(self.before(x)).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, hidden))
        return x + self.experts(self.after(x).flatten(0, 1)).view_as(x)


class Moe(nn.Module):
    """Ids [batch, tokens] -> logits."""

    def __init__(self, hidden: int = 72, heads: int = 3, vocab: int = 608) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.blocks = nn.Sequential(MoeBlock(hidden, heads), MoeBlock(hidden, heads))
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.embed(input_ids) * math.sqrt(self.embed.embedding_dim)))
        return logits


def moe() -> list[Call]:
    """Mixture of experts: routing, top-k, batched products. transformers' own loops over experts break the graph."""
    model = Moe()

    def loss(input_ids: Tensor) -> Tensor:
        logits = model(input_ids)[:, :-1].flatten(0, 1).float()
        balance = torch.logsumexp(logits, dim=-1).square().mean()
        return F.cross_entropy(logits, input_ids[:, 1:].flatten(), label_smoothing=0.1) + 1e-3 * balance

    return [
        Call(name="prefill", module=model.eval(), inputs=(ids(2, 20),)),
        Call(name="train", module=loss, inputs=(ids(2, 20),), trains=True),
    ]


# ---------------------------------------------------------------- images


def vit() -> list[Call]:
    """A patch convolution, norms before the residual, exact GELU."""
    from transformers import ViTConfig, ViTForImageClassification

    settings = ViTConfig(
        hidden_size=144, num_hidden_layers=2, num_attention_heads=4, intermediate_size=288, image_size=32, patch_size=8,
        attn_implementation="sdpa", num_labels=10,
    )  # fmt: skip
    model = ViTForImageClassification(settings)
    images, labels = torch.zeros(2, 3, 32, 32), torch.zeros(2, dtype=torch.int64)
    classifier = Logits(model, "pixel_values")
    return [
        Call(name="classify", module=classifier.eval(), inputs=(images,)),
        Call(name="train", module=_in_training(model, LogitsLoss(classifier)), inputs=(images, labels), trains=True),
    ]


class Residual(nn.Module):
    """Two convolutions with batch norm, and the input added: [batch, width, h, w] -> [batch, width, h, w]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norms[0](self.convolutions[0](x)))
        return torch.relu(self.norms[1](self.convolutions[1](y)) + x)


def resnet() -> list[Call]:
    """Convolution, batch norm, ReLU, residual add, pooling; in evaluation and in training."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Residual(32), Residual(32),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    images, labels = torch.zeros(2, 3, 32, 32), torch.zeros(2, dtype=torch.int64)

    def loss(images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(images).float(), labels)

    return [
        Call(name="classify", module=_in_evaluation(model), inputs=(images,)),
        Call(name="train", module=_in_training(model, loss), inputs=(images, labels), trains=True),
    ]


def _in_evaluation(model: nn.Module) -> Callable[..., Tensor]:
    def run(*inputs: Tensor) -> Tensor:
        found: Tensor = model.eval()(*inputs)
        return found

    return run


# ---------------------------------------------------------------- optimizers


def optimizer() -> list[Call]:
    """AdamW, momentum SGD and gradient clipping over parameters of a few shapes, written in place.

    Tensor by tensor: on a GPU the calls on lists of tensors stay whole for Inductor, which makes one kernel of each.
    """
    from torch.optim.adamw import adamw
    from torch.optim.sgd import sgd

    shapes = ((96, 320), (320,), (64, 96))
    count = len(shapes)

    def adamw_step(*flat: Tensor) -> None:
        parameters, gradients, first, second, steps = (list(flat[i * count : (i + 1) * count]) for i in range(5))
        numbers: dict[str, Any] = {"beta1": 0.9, "beta2": 0.95, "lr": 3e-4, "weight_decay": 0.1, "eps": 1e-8}
        kind: dict[str, Any] = {"amsgrad": False, "maximize": False, "foreach": False, "capturable": True}
        adamw(parameters, gradients, first, second, [], steps, **kind, **numbers)

    def sgd_step(*flat: Tensor) -> None:
        parameters, gradients, momenta = (list(flat[i * count : (i + 1) * count]) for i in range(3))
        numbers: dict[str, Any] = {"weight_decay": 1e-4, "momentum": 0.9, "lr": 0.1, "dampening": 0.0}
        sgd(parameters, gradients, list(momenta), nesterov=True, maximize=False, foreach=False, **numbers)

    def clipped(*gradients: Tensor) -> list[Tensor]:
        total = torch.stack([g.float().square().sum() for g in gradients]).sum().sqrt()
        scale = (1.0 / (total + 1e-6)).clamp(max=1.0)
        return [(g * scale).to(g.dtype) for g in gradients]

    def some() -> list[Tensor]:
        return [torch.zeros(shape) for shape in shapes]

    steps = [torch.zeros((), dtype=torch.float32) for _ in shapes]
    return [
        Call(name="adamw", module=adamw_step, inputs=(*some(), *some(), *some(), *some(), *steps)),
        Call(name="sgd", module=sgd_step, inputs=(*some(), *some(), *some())),
        Call(name="clip", module=clipped, inputs=tuple(some())),
    ]


MODELS: Mapping[str, Callable[[], list[Call]]] = {
    "llama": llama,
    "gpt2": gpt2,
    "bert": bert,
    "t5": t5,
    "moe": moe,
    "vit": vit,
    "resnet": resnet,
    "optimizer": optimizer,
}
"""Builders by the name of the kind; `optimizer` is what trains them."""
