"""The 14 problems of NKIBench as torch functions, at reduced sizes (the notes on AccelOpt, section 6.3, have the full ones).

Sizes are divided so that a simulation of a kernel takes seconds; what is a vector's or a head's length stays a power of two.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.device_models import Call

EPS = 1e-5


def adamw(theta: Tensor, grad: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step at step number 10: new parameters and moments."""
    m = 0.9 * m + 0.1 * grad
    v = 0.999 * v + 0.001 * grad * grad
    step = (m / (1 - 0.9**10)) / (torch.sqrt(v / (1 - 0.999**10)) + 1e-8)
    return theta - 1e-3 * (step + 0.01 * theta), m, v


def rms_norm(x: Tensor, weight: Tensor | None = None) -> Tensor:
    wide = x.float()
    normed = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)).to(x.dtype)
    return normed if weight is None else normed * weight


def add_rmsnorm_matmul(x: Tensor, z: Tensor, g: Tensor, w: Tensor) -> Tensor:
    return rms_norm(x + z, g) @ w


def bmm(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b)


def bmm_softmax(a: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(torch.bmm(a, b), dim=-1)


def gqa_full(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[batch, tokens, heads, width] each, two query heads for a key head; not causal."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def gqa_repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same where no kernel takes grouped heads: keys and values repeated."""
    k, v = (t.repeat_interleave(q.shape[2] // k.shape[2], dim=2) for t in (k, v))
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v)


def lora(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return x @ w + (x @ a) @ b


def mamba(delta: Tensor, u: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The selective scan over time: delta, u [channels, time], a [channels, states], b, c [states, time] -> [channels, time].

    The recurrence h(t) = exp(delta a) h(t-1) + delta u b is written with cumulative sums, as no operator of torch scans it.
    """
    decay = torch.cumsum(delta[:, None, :] * a[:, :, None], dim=-1)
    driven = (delta * u)[:, None, :] * b[None]
    states = torch.exp(decay) * torch.cumsum(driven * torch.exp(-decay), dim=-1)
    return (states * c[None]).sum(dim=1)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def matmul_add_rmsnorm(x: Tensor, w: Tensor, z: Tensor, g: Tensor) -> Tensor:
    return rms_norm(x @ w + z, g)


def rmsnorm_matmul(x: Tensor, w: Tensor) -> Tensor:
    return (x / torch.sqrt(x.square().mean(-1, keepdim=True))) @ w


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [width, heads x tokens], cos and sin [width / 2, the same]: the two halves of the width turn against each other."""
    first, second = x.chunk(2, dim=0)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=0)


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return (F.silu(x @ gate) * (x @ up)) @ down


def transpose_matmul(lhs: Tensor, rhs: Tensor) -> Tensor:
    return lhs.t() @ rhs


def problems() -> list[Call]:
    """All of them, with inputs of the default dtype and device. A single product with nothing to fuse is among them: in a
    model the partitioner leaves it to the library; here it is a workload all the same."""

    def some(*shape: int) -> Tensor:
        return torch.zeros(shape)

    grouped = torch.get_default_dtype() != torch.float32
    named: dict[str, tuple[object, tuple[Tensor, ...]]] = {
        "adamw": (adamw, tuple(some(171, 32) for _ in range(4))),
        "add_rmsnorm_matmul": (add_rmsnorm_matmul, (some(48, 64), some(48, 64), some(64), some(64, 128))),
        "bmm": (bmm, (some(2, 48, 64), some(2, 64, 48))),
        "bmm_softmax": (bmm_softmax, (some(2, 48, 64), some(2, 64, 80))),
        "gqa_full": (gqa_full if grouped else gqa_repeated, (some(1, 48, 4, 64), some(1, 48, 2, 64), some(1, 48, 2, 64))),
        "lora": (lora, (some(48, 80), some(80, 96), some(80, 16), some(16, 96))),
        "mamba": (mamba, (some(16, 56), some(16, 56), some(16, 8), some(8, 56), some(8, 56))),
        "matmul": (matmul, (some(48, 80), some(80, 96))),
        "matmul_add_rmsnorm": (matmul_add_rmsnorm, (some(48, 64), some(64, 64), some(48, 64), some(64))),
        "rmsnorm_matmul": (rmsnorm_matmul, (some(48, 64), some(64, 96))),
        "rope": (rope, (some(64, 256), some(32, 256), some(32, 256))),
        "silu": (silu, (some(64, 112),)),
        "swiglu": (swiglu, (some(48, 64), some(64, 96), some(64, 96), some(96, 64))),
        "transpose_matmul": (transpose_matmul, (some(64, 48), some(64, 80))),
    }
    return [Call(name=name, module=function, inputs=inputs) for name, (function, inputs) in named.items()]  # type: ignore[arg-type]
