"""Small models of the common kinds, and the graphs that torch.compile makes of them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from accelopt_compile.capture import CapturedGraph, capture, prepare
from accelopt_compile.partition import partition
from accelopt_compile.reference import reference
from accelopt_compile.regions import nested
from accelopt_compile.replace import call_reference, finish, replace_region
from accelopt_compile.signature import try_sign
from tests.regions.generality import assert_holds

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


class Block(torch.nn.Module):
    """Norm, causal attention over 4 heads and a gated product on (batch, time, 32)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(32), torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> Any:
        q, k, v = self.up(self.norm(x)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.down(torch.nn.functional.silu(out) * out)
        return SimpleNamespace(loss=torch.nn.functional.rms_norm(x, (32,)).square().mean())


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


class Checked:
    """A backend without code generation. Checks that every workload holds at any size and that every region equals its
    reference on the real values, and runs the graph in which every region is replaced by its reference. `digests`, `graphs`
    and `worst` (largest relative difference) say what it saw."""

    def __init__(self) -> None:
        self.digests: list[str] = []
        self.unsigned: list[str] = []
        self.worst = 0.0
        self.graphs = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        from torch._inductor.compile_fx import compile_fx

        return compile_fx(gm, example_inputs, inner_compile=self._inner, config_patches={"fx_graph_cache": False})

    def _inner(self, gm: torch.fx.GraphModule, inputs: list[Any], **kwargs: Any) -> Any:
        self.graphs += 1
        prepare(gm, inputs, is_inference=bool(kwargs.get("is_inference")))
        signed = []
        for region in partition(gm.graph).regions:
            for part in nested(region):
                smaller = try_sign(part)
                if not isinstance(smaller, str):
                    assert_holds(smaller)
            one = try_sign(region)
            if isinstance(one, str):
                self.unsigned.append(one)
            else:
                assert_holds(one)
                signed.append((region, one))
        self.digests.extend(s.workload.digest for _, s in signed)
        original = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))
        names = [([n.name for n in r.inputs], [n.name for n in r.outputs], s) for r, s in signed]
        for region, one in signed:
            replace_region(gm.graph, region, one, call_reference(one))
        finish(gm.graph)

        def call(args: list[Any]) -> Any:
            flat = list(args)
            self._compare(original, names, [a.clone() if isinstance(a, torch.Tensor) else a for a in flat])
            return torch.fx.Interpreter(gm).run(*flat)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    def _compare(self, original: torch.fx.GraphModule, names: list[Any], args: list[Any]) -> None:
        seen: dict[str, torch.Tensor] = {}

        class Keep(torch.fx.Interpreter):
            def run_node(self, n: torch.fx.Node) -> Any:
                result = super().run_node(n)
                if isinstance(result, torch.Tensor):
                    seen[n.name] = result.clone() if n.op == "placeholder" else result
                return result

        Keep(original).run(*args)
        for inputs, outputs, one in names:
            tensors = [seen[inputs[i]] for i in one.input_order]
            sizes = [seen[inputs[s.input]].shape[s.dim] for s in one.symbol_exprs]
            results = reference(one.workload)(*tensors, *sizes)
            for k, got in zip(one.output_order, results, strict=True):
                self.worst = max(self.worst, difference(seen[outputs[k]], got))


def difference(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """Largest difference relative to the largest finite expected value; infinite for another dtype, shape or infinity."""
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return math.inf
    a, b = expected.double(), actual.double()
    finite = a.isfinite()
    if not torch.equal(finite, b.isfinite()) or not torch.equal(a[~finite].nan_to_num(), b[~finite].nan_to_num()):
        return math.inf
    a, b = a[finite], b[finite]
    return float((a - b).abs().max() / a.abs().max().clamp(min=1e-30)) if a.numel() else 0.0
