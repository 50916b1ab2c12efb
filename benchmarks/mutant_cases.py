"""The honest kernels that `bench_verifier` mutates: workloads of every family, small enough that builds dominate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from accelopt_compile.records import Workload
from benchmarks.bench_judge import DTYPES, Signed, signed
from benchmarks.judge_corpus import Operator
from benchmarks.judge_operators import OPERATORS

ROWS = 131
"""Rows of a case: with 96 columns two threads have work, and no block divides it."""


@dataclass(frozen=True, kw_only=True)
class Honest:
    """One workload at one binding, of which a generated kernel is mutated."""

    workload: Workload
    binding: dict[str, int]


TOP = Operator(function=lambda x: torch.topk(x, 5), shapes=((13, 96),))
PLAIN = ("softmax-f32", "softmax-bf16", "softmax-f16", "layer_norm-f32", "layer_norm-bf16", "rms_norm-f32", "rms_norm-bf16",
         "gelu-f32", "silu_mul-f32", "silu_mul-f16", "cross_entropy-f32", "cross_entropy_gradient-f32", "column_mean-f32",
         "cumsum-f32", "rotary-bf16", "embedding-f32", "batch_norm-f32", "layer_norm_backward-f32", "variance-f32")  # fmt: skip


def _operator(name: str) -> Honest:
    operator, dtype = name.rsplit("-", 1)
    one = signed(OPERATORS[operator], DTYPES[dtype])
    return Honest(workload=one.workload, binding=_larger(one))


def _larger(one: Signed) -> dict[str, int]:
    return {name: ROWS if size == 13 else size for name, size in one.binding.items()}


def _top() -> Honest:
    from tests.backends.seeds import regions_of

    ((workload, binding),) = regions_of(TOP.function, torch.randn(13, 96))
    return Honest(workload=workload, binding=dict.fromkeys(binding, ROWS))


def _transpose() -> Honest:
    one = signed(OPERATORS["transpose"], torch.float32)
    return Honest(workload=one.workload, binding=dict(one.binding))


def _adamw() -> Honest:
    """AdamW with its results over its inputs."""
    one = signed(OPERATORS["adamw"], torch.float32)
    over = {0: 0, 1: 2, 2: 3}  # results of the function over its arguments
    aliases = tuple((k, one.order.index(over[result])) for k, result in enumerate(one.results))
    return Honest(workload=replace(one.workload, aliases=aliases), binding=_larger(one))


def _attention(**how: Any) -> Honest:
    from tests.backends.attention_cases import attention

    workload = attention(heads=2, kv=2, dim=32, **how)
    sizes = {"s0": 1, "s1": 37, "s2": 50}
    if how.get("causal"):
        sizes["s2"] = 37
    return Honest(workload=workload, binding={name: sizes[name] for name in workload.symbols})


CASES: dict[str, Callable[[], Honest]] = {
    **{name: (lambda name=name: _operator(name)) for name in PLAIN},  # type: ignore[misc]
    "transpose-f32": _transpose,
    "topk-f32": _top,
    "adamw_in_place-f32": _adamw,
    "attention-f32": _attention,
    "attention_causal-f32": lambda: _attention(causal=True),
    "attention_causal-bf16": lambda: _attention(causal=True, dtype="bf16"),
}
QUICK = ("softmax-f32", "layer_norm-f32")
