"""The cases of the region suite: functions that models are made of, at shapes that models have, in float32 and bfloat16.

A case is a function of tensors. What its regions are is for capture and partition to say, never for this file.
`FAMILIES` holds what each family must reach (measured floors of a hand-written kernel on an AVX2 machine, one thread).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.adamw import adamw

Mode = Literal["inference", "backward", "both"]
"""What is timed: the function under no_grad, the backward of the function alone, or forward and backward."""

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True)
class Family:
    """Ratios over the better of eager and Inductor: the floor that must hold, and the goal, each for f32 and bf16."""

    floor: Mapping[str, float]
    goal: Mapping[str, float]


def _family(floor: float, goal: float, floor_bf16: float | None = None, goal_bf16: float | None = None) -> Family:
    return Family(
        floor={"f32": floor, "bf16": floor if floor_bf16 is None else floor_bf16},
        goal={"f32": goal, "bf16": goal if goal_bf16 is None else goal_bf16},
    )


FAMILIES: Mapping[str, Family] = {
    "softmax": _family(1.5, 2.0),
    "cross_entropy": _family(1.5, 2.0),
    "cross_entropy_grad": _family(2.0, 3.0),
    "layer_norm": _family(1.3, 1.6),
    "rms_norm": _family(1.2, 1.6, 1.1, 1.3),
    "gelu_erf": _family(1.3, 1.8),
    "silu_mul": _family(1.4, 1.8),
    "tanh": _family(1.4, 3.5),
    "rotary": _family(1.1, 2.0, 1.1, 1.2),
    "pick": _family(2.0, 3.5),
    "scan_transpose": _family(1.3, 1.8),
    "reduce_move": _family(1.0, 1.1),
    "bandwidth": _family(1.0, 1.3),
    "batch_norm_train": _family(1.5, 2.2),
    "backward": _family(1.0, 1.3),
    "adamw": _family(1.0, 1.1),
    "attention_prefill": _family(1.3, 1.6),
    "attention_decode": _family(1.2, 1.6, 3.0, 8.0),
}
"""`backward` has no measured floor; it is held to that of pure bandwidth: never slower. `adamw` is against fused=True."""

ADAMW_OVER_FOREACH = 3.0
"""AdamW has a second floor, over eager with foreach=True."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A case made real. `wrt` are the inputs that get gradients (modes backward and both); `eagers` the ways to run it
    without a compiler, by name, the function itself where nothing else is given."""

    function: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    wrt: tuple[int, ...] = ()
    eagers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One function at one shape in one dtype. `make` draws its inputs from a fixed seed."""

    family: str
    name: str
    dtype: str
    make: Callable[[], Problem]
    mode: Mode = "inference"
    quick: bool = False

    @property
    def key(self) -> str:
        return f"{self.name}-{self.dtype}"


Builder = Callable[[torch.dtype], Problem]


def _randn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape).to(dtype)


# ---------------------------------------------------------------- functions as models spell them


def rms_norm_hf(x: Tensor, weight: Tensor) -> Tensor:
    """transformers' LlamaRMSNorm."""
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * wide.to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return rms_norm_hf(total, weight), total


def _rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """transformers' apply_rotary_pos_emb on (1, heads, length, dims)."""
    c, s = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * c + _rotate_half(q) * s, k * c + _rotate_half(k) * s


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """transformers' causal LM loss: in float32 whatever the logits are."""
    return F.cross_entropy(logits.float(), target)


def tanh_chain(x: Tensor, gate: Tensor) -> Tensor:
    return torch.tanh(x * gate + x) * torch.sigmoid(gate) + x.abs()


# ---------------------------------------------------------------- builders of problems


def _rows(function: Callable[..., Any], *shape: int, tensors: int = 1, vectors: int = 0) -> Builder:
    """`function` of `tensors` tensors of this shape, then of `vectors` along its last dimension."""

    def make(dtype: torch.dtype) -> Problem:
        inputs = [_randn(*shape, dtype=dtype) for _ in range(tensors)] + [_randn(shape[-1], dtype=dtype) for _ in range(vectors)]
        return Problem(function=function, inputs=tuple(inputs))

    return make


def _logits(rows: int, vocabulary: int, *, grad: bool = False) -> Builder:
    def make(dtype: torch.dtype) -> Problem:
        inputs = (_randn(rows, vocabulary, dtype=dtype), torch.randint(vocabulary, (rows,)))
        return Problem(function=cross_entropy, inputs=inputs, wrt=(0,) if grad else ())

    return make


def _rotary(length: int, heads: int, kv_heads: int, dims: int) -> Builder:
    def make(dtype: torch.dtype) -> Problem:
        q, k = (_randn(1, length, h, dims, dtype=dtype).transpose(1, 2) for h in (heads, kv_heads))
        angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, dims, 2) / dims)
        angle = torch.cat((angle, angle), dim=-1)[None]
        return Problem(function=rotary, inputs=(q, k, angle.cos().to(dtype), angle.sin().to(dtype)))

    return make


def _batch_norm(*shape: int, training: bool) -> Builder:
    def make(dtype: torch.dtype) -> Problem:
        def norm_relu(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            return F.relu(F.batch_norm(x, mean, var, weight, bias, training=training))

        c = shape[1]
        moments = (torch.zeros(c, dtype=dtype), torch.ones(c, dtype=dtype))
        return Problem(
            function=norm_relu, inputs=(_randn(*shape, dtype=dtype), *moments, *(_randn(c, dtype=dtype) for _ in "wb"))
        )

    return make


def _group_norm(groups: int, *shape: int) -> Builder:
    def make(dtype: torch.dtype) -> Problem:
        vectors = (_randn(shape[1], dtype=dtype) for _ in "wb")
        return Problem(function=lambda x, w, b: F.group_norm(x, groups, w, b), inputs=(_randn(*shape, dtype=dtype), *vectors))

    return make


def _embedding(length: int, dims: int, vocabulary: int) -> Builder:
    """Gemma's: the embedding times the root of its width."""

    def make(dtype: torch.dtype) -> Problem:
        ids, scale = torch.randint(vocabulary, (1, length)), math.sqrt(dims)
        table = _randn(vocabulary, dims, dtype=dtype)
        return Problem(function=lambda ids, table: F.embedding(ids, table) * scale, inputs=(ids, table))

    return make


def _backward(function: Callable[..., Any], *shape: int, vectors: int = 0) -> Builder:
    def make(dtype: torch.dtype) -> Problem:
        made = _rows(function, *shape, vectors=vectors)(dtype)
        return Problem(function=function, inputs=made.inputs, wrt=tuple(range(1 + vectors)))

    return make


def _adamw(count: int, *shape: int) -> Builder:
    """AdamW on `count` parameters: (parameters, gradients, first and second moments, steps) in one flat list."""

    def step(*flat: Tensor, foreach: bool = False, fused: bool = False) -> None:
        parameters, gradients, first, second, steps = (list(flat[i * count : (i + 1) * count]) for i in range(5))
        kind: dict[str, Any] = {"amsgrad": False, "maximize": False, "foreach": foreach, "fused": fused}
        numbers: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "lr": 1e-4, "weight_decay": 0.01, "eps": 1e-8}
        adamw(parameters, gradients, first, second, [], steps, **kind, **numbers)

    def make(dtype: torch.dtype) -> Problem:
        def several(draw: Callable[..., Tensor]) -> list[Tensor]:
            return [draw(shape).to(dtype) for _ in range(count)]

        flat = [*several(torch.randn), *several(torch.randn), *several(torch.randn), *several(torch.rand)]
        flat += [torch.tensor(10.0) for _ in range(count)]
        eagers = {f"eager_{kind}": functools.partial(step, **{kind: True}) for kind in ("foreach", "fused")}
        return Problem(function=step, inputs=tuple(flat), eagers=eagers)

    return make


def _attention(heads: int, kv_heads: int, queries: int, keys: int, dims: int) -> Builder:
    """Scaled dot product attention: causal where all queries are there, over a cache where there is one."""
    causal, grouped = queries > 1, heads != kv_heads

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    def make(dtype: torch.dtype) -> Problem:
        if causal:  # straight from the projections: (batch, length, heads, dims) seen as heads first
            tensors = [_randn(1, n, h, dims, dtype=dtype).transpose(1, 2) for n, h in ((queries, heads), *[(keys, kv_heads)] * 2)]
        else:
            tensors = [_randn(1, heads, 1, dims, dtype=dtype), *(_randn(1, kv_heads, keys, dims, dtype=dtype) for _ in "kv")]
        return Problem(function=attend, inputs=tuple(tensors))

    return make


def _copy_of_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).contiguous()


def _top(x: Tensor) -> tuple[Tensor, Tensor]:
    values, indices = torch.topk(x, 50, dim=-1)
    return values, indices


def _geglu(x: Tensor, gate: Tensor) -> Tensor:
    return F.gelu(gate, approximate="tanh") * x


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, 1e-6)


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


Row = tuple[str, str, Builder, Mode]

_INFERENCE: Sequence[tuple[str, str, Builder]] = (
    ("softmax", "softmax-1536x128", _rows(_softmax, 1536, 128)),
    ("softmax", "softmax-1024x1024", _rows(_softmax, 1024, 1024)),
    ("softmax", "softmax-4096x4096", _rows(_softmax, 4096, 4096)),
    ("softmax", "log_softmax-1024x1024", _rows(lambda x: torch.log_softmax(x, -1), 1024, 1024)),
    ("softmax", "log_softmax-512x32000", _rows(lambda x: torch.log_softmax(x, -1), 512, 32000)),
    ("cross_entropy", "cross_entropy-512x32000", _logits(512, 32000)),
    ("layer_norm", "layer_norm-2048x768", _rows(_layer_norm, 2048, 768, vectors=2)),
    ("layer_norm", "layer_norm-4096x4096", _rows(_layer_norm, 4096, 4096, vectors=2)),
    ("layer_norm", "group_norm-2x320x64x64", _group_norm(32, 2, 320, 64, 64)),
    ("rms_norm", "rms_norm_hf-1x2048", _rows(rms_norm_hf, 1, 2048, vectors=1)),
    ("rms_norm", "rms_norm_hf-512x2048", _rows(rms_norm_hf, 512, 2048, vectors=1)),
    ("rms_norm", "rms_norm_hf-4096x4096", _rows(rms_norm_hf, 4096, 4096, vectors=1)),
    ("rms_norm", "add_rms_norm-1x2048", _rows(add_rms_norm, 1, 2048, tensors=2, vectors=1)),
    ("rms_norm", "add_rms_norm-512x2048", _rows(add_rms_norm, 512, 2048, tensors=2, vectors=1)),
    ("rms_norm", "add_rms_norm-4096x4096", _rows(add_rms_norm, 4096, 4096, tensors=2, vectors=1)),
    ("rms_norm", "rms_norm_f-512x2048", _rows(_rms_norm, 512, 2048, vectors=1)),
    ("gelu_erf", "gelu_erf-512x5632", _rows(F.gelu, 512, 5632)),
    ("silu_mul", "silu_mul-512x5632", _rows(lambda g, x: F.silu(g) * x, 512, 5632, tensors=2)),
    ("silu_mul", "silu_mul-4096x5632", _rows(lambda g, x: F.silu(g) * x, 4096, 5632, tensors=2)),
    ("tanh", "geglu-512x5632", _rows(_geglu, 512, 5632, tensors=2)),
    ("tanh", "geglu-4096x5632", _rows(_geglu, 4096, 5632, tensors=2)),
    ("tanh", "gelu_tanh-512x5632", _rows(lambda x: F.gelu(x, approximate="tanh"), 512, 5632)),
    ("tanh", "tanh_sigmoid-512x5632", _rows(tanh_chain, 512, 5632, tensors=2)),
    ("rotary", "rotary-S512-H32-D64", _rotary(512, 32, 8, 64)),
    ("rotary", "rotary-S2048-H16-D128", _rotary(2048, 16, 4, 128)),
    ("pick", "argmax-64x128256", _rows(lambda x: x.argmax(-1), 64, 128256)),
    ("pick", "topk50-64x128256", _rows(_top, 64, 128256)),
    ("scan_transpose", "cumsum-512x2048", _rows(lambda x: x.cumsum(-1), 512, 2048)),
    ("scan_transpose", "cumsum-4096x4096", _rows(lambda x: x.cumsum(-1), 4096, 4096)),
    ("scan_transpose", "transpose-4096x4096", _rows(lambda x: x.t().contiguous(), 4096, 4096)),
    ("reduce_move", "head_permute-S2048-H16-D128", _rows(_copy_of_heads, 1, 2048, 16, 128)),
    ("reduce_move", "mean_dim0-512x2048", _rows(lambda x: x.mean(0), 512, 2048)),
    ("reduce_move", "mean_dim0-4096x4096", _rows(lambda x: x.mean(0), 4096, 4096)),
    ("reduce_move", "sum-4096x4096", _rows(torch.sum, 4096, 4096)),
    ("reduce_move", "embedding_scale-512x2048", _embedding(512, 2048, 32000)),
    ("bandwidth", "relu-512x5632", _rows(F.relu, 512, 5632)),
    ("bandwidth", "relu-4096x5632", _rows(F.relu, 4096, 5632)),
    ("bandwidth", "add-4096x4096", _rows(torch.add, 4096, 4096, tensors=2)),
    ("bandwidth", "bn_relu_eval-16x64x56x56", _batch_norm(16, 64, 56, 56, training=False)),
    ("batch_norm_train", "bn_relu_train-16x64x56x56", _batch_norm(16, 64, 56, 56, training=True)),
    ("batch_norm_train", "bn_relu_train-16x512x7x7", _batch_norm(16, 512, 7, 7, training=True)),
    ("adamw", "adamw-40x768x768", _adamw(40, 768, 768)),
    ("adamw", "adamw-48x64x64", _adamw(48, 64, 64)),
    ("attention_prefill", "prefill-H12-S512-D64", _attention(12, 12, 512, 512, 64)),
    ("attention_prefill", "prefill-H16-S1024-D128", _attention(16, 16, 1024, 1024, 128)),
    ("attention_prefill", "prefill_gqa-H32_8-S512-D64", _attention(32, 8, 512, 512, 64)),
    ("attention_decode", "decode-H32_8-L2048-D64", _attention(32, 8, 1, 2048, 64)),
    ("attention_decode", "decode-H9_3-L1024-D64", _attention(9, 3, 1, 1024, 64)),
    ("attention_decode", "decode-H32_32-L1024-D128", _attention(32, 32, 1, 1024, 128)),
)

_TRAINING: Sequence[Row] = (
    ("cross_entropy_grad", "cross_entropy_grad-512x32000", _logits(512, 32000, grad=True), "both"),
    ("backward", "layer_norm_backward-2048x768", _backward(_layer_norm, 2048, 768, vectors=2), "backward"),
    ("backward", "rms_norm_backward-512x2048", _backward(rms_norm_hf, 512, 2048, vectors=1), "backward"),
    ("backward", "softmax_backward-1024x1024", _backward(_softmax, 1024, 1024), "backward"),
    ("backward", "gelu_backward-512x5632", _backward(F.gelu, 512, 5632), "backward"),
)

QUICK = (
    "softmax-1536x128-f32",
    "layer_norm-2048x768-f32",
    "rms_norm_hf-512x2048-bf16",
    "cumsum-512x2048-f32",
    "layer_norm_backward-2048x768-f32",
    "decode-H9_3-L1024-D64-f32",
)


def cases() -> list[Case]:
    """All of them, in the order of the report."""
    rows: list[Row] = [*((f, n, b, "inference") for f, n, b in _INFERENCE), *_TRAINING]
    rows.sort(key=lambda row: list(FAMILIES).index(row[0]))
    return [_case(*row, dtype) for row in rows for dtype in DTYPES]


def _case(family: str, name: str, builder: Builder, mode: Mode, dtype: str) -> Case:
    def make() -> Problem:
        torch.manual_seed(0)
        return builder(DTYPES[dtype])

    return Case(family=family, name=name, dtype=dtype, make=make, mode=mode, quick=f"{name}-{dtype}" in QUICK)
