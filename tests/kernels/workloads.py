"""What the kernels of these folders compute: small regions of every family, captured as torch.compile gives them to us.

Rows are free sizes where a name has them. A file's header names its workload; inputs come in the order noted beside each
(canonical, not the function's), then the outputs. `python -m tests.kernels.workloads` prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

from accelopt_compile.records import Node, Ref, TensorSpec, Workload
from tests.backends.seeds import regions_of

R, INF = torch.randn, float("inf")
BF16, F16 = torch.bfloat16, torch.float16


def rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w


def adamw(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> None:
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.mul_(0.99).addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


def causal(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.where(torch.ones(23, 23, dtype=torch.bool).tril(), x, -INF), -1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)


ROWS, HEADS = (50, 37), (2, 3, 19, 16)

CAPTURED: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "softmax_f32": (lambda x: torch.softmax(x, -1), lambda: (R(ROWS),)),
    "softmax_bf16": (lambda x: torch.softmax(x, -1), lambda: (R(ROWS).to(BF16),)),
    "softmax_f16": (lambda x: torch.softmax(x, -1), lambda: (R(ROWS).to(F16),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (37,), w, b), lambda: (R(ROWS), R(37), R(37))),  # w x b
    "rms_bf16": (rms, lambda: (R(ROWS).to(BF16), R(37).to(BF16))),  # x w
    "gelu_silu": (lambda x, y: F.gelu(x) * F.silu(y), lambda: (R(ROWS), R(ROWS))),  # y x
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), lambda: (R(ROWS), torch.randint(0, 37, (50,)))),  # t x
    "to_bf16": (lambda x: (x * 2).to(BF16), lambda: (R(ROWS),)),
    "broadcast": (lambda x, b, s: x * s + b, lambda: (R(ROWS), R(37), R(50, 1))),  # b x s
    "strided": (lambda x: x * 0.5 + 1, lambda: (R(50, 40)[:, :37],)),
    "transpose": (lambda x: x.t().contiguous() + 1, lambda: (R(45, 70),)),
    "column_sum": (lambda x: (x * 2).sum(0), lambda: (R(ROWS),)),
    "cumsum": (lambda x: x.cumsum(-1) * 2, lambda: (R(50, 83),)),
    "topk": (lambda x: torch.topk(x, 5), lambda: (R(50, 137),)),
    "embedding": (lambda w, i: F.embedding(i, w) * 3.0, lambda: (R(29, 16), torch.randint(0, 29, (50,)))),  # w i
    "squares_i32": (lambda x: (x * x).float() * 0.5, lambda: (torch.randint(-9, 9, ROWS, dtype=torch.int32),)),
    "masked_softmax": (lambda x, m: torch.softmax(x.masked_fill(m, -INF), -1), lambda: (R(ROWS), R(ROWS) > 0)),  # m x
    "causal_softmax": (causal, lambda: (R(7, 23, 23),)),
    "argmax": (lambda x: x.argmax(-1), lambda: (R(ROWS),)),
    "compare": (lambda x, y: (x * 2 > y) & (x < 1), lambda: (R(ROWS), R(ROWS))),  # x y, bytes 0 and 1
    "variance": (lambda x: torch.var_mean(x, -1), lambda: (R(ROWS),)),  # variance, mean
    "logsumexp": (lambda x: torch.logsumexp(x, -1), lambda: (R(ROWS),)),
    "attention": (attention, lambda: (R(HEADS), R(HEADS), R(HEADS))),  # q k v; sizes: batch, heads, queries, keys
    "attention_mask": (attention, lambda: (R(HEADS), R(HEADS), R(HEADS), R(2, 1, 19, 19) > -0.5)),
    "adamw": (adamw, lambda: (R(ROWS), R(ROWS), R(ROWS), R(ROWS).abs())),  # m g v p; p m v written over them
}


def transpose_copy() -> Workload:
    """A transposed copy and nothing else: every bit counts."""
    given, turned = (TensorSpec(dtype="f32", shape=s, strides=(s[1], 1)) for s in (("s0", "s1"), ("s1", "s0")))
    nodes = (
        Node(op="aten.permute.default", args=(Ref("i", 0), (1, 0)), outputs=(turned,)),
        Node(op="aten.clone.default", args=(Ref("n", 0),), outputs=(turned,)),
    )
    return Workload(
        inputs=(given,), nodes=nodes, outputs=(Ref("n", 1),), output_specs=(turned,), symbols=("s0", "s1")
    )  # fmt: skip


def scale_in_place() -> Workload:
    """Rows of 37 inside a larger tensor with rows of 40, scaled where they lie: three elements between rows are not ours."""
    rows = TensorSpec(dtype="f32", shape=("s0", 37), strides=(40, 1))
    node = Node(op="aten.mul.Tensor", args=(Ref("i", 0), 0.5), outputs=(replace(rows, strides=(37, 1)),))
    return Workload(
        inputs=(rows,), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(rows,), symbols=("s0",), aliases=((0, 0),)
    )


@dataclass(frozen=True)
class Task:
    """A workload, the sizes it is timed at, and how many threads a kernel is told to use."""

    workload: Workload
    binding: dict[str, int]
    threads: int = 1


BY_HAND: dict[str, Callable[[], Task]] = {
    "transpose_copy": lambda: Task(transpose_copy(), {"s0": 45, "s1": 70}),
    "scale_in_place": lambda: Task(scale_in_place(), {"s0": 50}),
}
THREADS = {"column_sum": 2}
NAMES = (*CAPTURED, *BY_HAND)


@cache
def task(name: str) -> Task:
    """The workload of that name."""
    if name in BY_HAND:
        return BY_HAND[name]()
    function, arguments = CAPTURED[name]
    ((workload, binding),) = regions_of(function, *arguments())
    if name == "adamw":
        workload = replace(workload, aliases=((0, 3), (1, 0), (2, 2)))
    return Task(workload, binding, THREADS.get(name, 1))


if __name__ == "__main__":
    for name in NAMES:
        one = task(name)
        print(name, one.binding, *(f"\n  {w}" for w in (one.workload.inputs, one.workload.output_specs)))
