"""Random programs of a few operators, with odd dtypes, numbers and special values. A seed gives the same program for ever."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

DTYPES = (
    torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.uint8, torch.int8, torch.int32, torch.int64, torch.bool,
)  # fmt: skip
SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 0.1, 3.0, 41.0, 180.0, float("inf"), float("-inf"), float("nan"), 1e-40, 1e30, 65504.0)
NUMBERS = (0, 1, 2, 3, -1, -2, 0.5, 0.1, -0.3, 2.0**-130, 2.0**127, 1e-3, 41.0, 60.0, 255, 1e30, float("inf"), True)
COMPARISONS = (torch.gt, torch.ge, torch.lt, torch.le, torch.eq, torch.ne)
SHAPES: tuple[tuple[int, ...], ...] = ((16, 64), (64,), (16, 1), (1,), ())

One = Callable[[Tensor], Tensor]
Two = Callable[[Tensor, Tensor], Tensor]

PLAIN: tuple[One, ...] = (
    torch.neg, torch.abs, torch.relu, torch.exp, torch.tanh, torch.sigmoid, torch.sqrt, torch.rsqrt, torch.reciprocal,
    torch.square, torch.sign, torch.floor, torch.ceil, torch.round, torch.trunc, torch.log, torch.log1p, torch.erf, torch.expm1,
    F.silu, F.gelu, F.leaky_relu, F.hardtanh, F.softplus, F.elu, torch.isnan, torch.logical_not, torch.nan_to_num,
)  # fmt: skip
PAIRS: tuple[Two, ...] = (
    torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum, torch.gt, torch.logical_and, torch.atan2,
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """`function` of `inputs`; `steps` are the names of its operators."""

    function: Callable[[Tensor, Tensor], Tensor]
    inputs: tuple[Tensor, Tensor]
    steps: tuple[str, ...]


def program(seed: int) -> Program:
    """Two to six operators on a tensor of (16, 64) and one that broadcasts with it."""
    r = random.Random(seed)
    first, second = r.choice(DTYPES), r.choice(DTYPES)
    inputs = _tensor(r, first, SHAPES[0]), _tensor(r, second, r.choice(SHAPES))
    steps = [_pair(r) if r.random() < 0.35 else _one(r) for _ in range(r.randint(2, 6))]

    def function(x: Tensor, y: Tensor) -> Tensor:
        for _, step in steps:
            x = step(x, y)
        return x

    return Program(function, inputs, tuple(name for name, _ in steps))


def _tensor(r: random.Random, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    g = torch.Generator().manual_seed(r.randrange(1 << 30))
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    if not dtype.is_floating_point:
        low, high = max(torch.iinfo(dtype).min, -300), min(torch.iinfo(dtype).max, 300)
        return torch.randint(low, high + 1, shape, generator=g).to(dtype)
    x = torch.randn(shape, generator=g) * r.choice([1, 10, 100])
    special = torch.tensor(SPECIAL)[torch.randint(0, len(SPECIAL), shape, generator=g)]
    return torch.where(torch.rand(shape, generator=g) < 0.3, special, x).to(dtype)


def _one(r: random.Random) -> tuple[str, Two]:
    n, m, exponent = r.choice(NUMBERS), r.choice([0.5, 2, -1, 3]), r.choice([2, 3, 0.5, -1, -2, 0, 1, 4, 2.5])
    compared, dtype = r.choice(COMPARISONS), r.choice(DTYPES)
    made: dict[str, Any] = {
        f"to {dtype}": lambda x: x.to(dtype),
        "through bfloat16": lambda x: x.to(torch.bfloat16).float(),
        f"clamp {m}": lambda x: x.clamp(-1, max(m, 0)),
        f"pow {exponent}": lambda x: x**exponent,
        f"add {n}": lambda x: x + n,
        f"mul {n}": lambda x: x * n,
        f"div {n}": lambda x: x / n,
        f"{n} less": lambda x: n - x,
        f"where {compared.__name__} {n}": lambda x: torch.where(compared(x, n), x, x + 1),
        f"fill {m}": lambda x: x.masked_fill(x == 0, m),
        f"itself, alpha {m}": lambda x: torch.add(x, x, alpha=m),
        f"trunc {m}": lambda x: torch.div(x, m, rounding_mode="trunc"),
        f"remainder {m}": lambda x: torch.remainder(x, m),
        "softmax": lambda x: torch.softmax(x.float(), -1),
        "sum": lambda x: x.sum(-1, keepdim=True),
        "mean": lambda x: x.float().mean(-1, keepdim=True),
        "largest": lambda x: x.amax(-1, keepdim=True),
        "var": lambda x: x.float().var(-1, keepdim=True),
        "cumsum": lambda x: x.cumsum(-1),
        "turned": lambda x: x.transpose(0, 1),
        **{f.__name__: f for f in PLAIN},
    }
    name = r.choice(sorted(made))
    step = made[name]
    return name, lambda x, y: step(x)


def _pair(r: random.Random) -> tuple[str, Two]:
    alpha, swapped = r.choice([2, 0.5, -1, 3]), r.random() < 0.5
    made: dict[str, Two] = {
        f"add, alpha {alpha}": lambda x, y: torch.add(x, y, alpha=alpha),
        f"rsub, alpha {alpha}": lambda x, y: torch.rsub(x, y, alpha=alpha),
        f"addcmul {alpha}": lambda x, y: torch.addcmul(x, y, y, value=alpha),
        f"lerp {alpha}": lambda x, y: torch.lerp(x, y, alpha),
        "where": lambda x, y: torch.where(y > 0, x, y),
        "cat": lambda x, y: torch.cat([x, y], -1),
        **{f.__name__: f for f in PAIRS},
    }
    name = r.choice(sorted(made))
    step = made[name]
    return name, (lambda x, y: step(y, x)) if swapped else step
