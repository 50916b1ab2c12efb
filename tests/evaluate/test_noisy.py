"""How far right answers move: at the ends of float64 too."""

from __future__ import annotations

import math

import pytest
import torch
from torch.fx import symbolic_trace

from accelopt_compile.evaluate.overflow import overflows
from accelopt_compile.evaluate.roundings import TINY
from accelopt_compile.evaluate.sensitivity import sensitivity
from accelopt_compile.evaluate.tolerance import allow


def test_answers_near_the_end_of_float64_move_without_end_and_raise_nothing() -> None:
    golden = symbolic_trace(lambda x: (torch.ops.aten.expm1.default(x),))
    x = torch.full((3,), 355.0)
    (moves,) = sensitivity(golden, [x], [torch.expm1(x.double())], probes=3, low=False, seed=1)
    assert math.isinf(moves.along[1])
    assert moves.probes == 3


def test_a_sum_overflows_that_does_in_some_order() -> None:
    """Two large numbers of either sign cancel, unless those of one sign come first. Counting the true elements of a mask is no
    such sum."""
    sums = symbolic_trace(
        lambda x: (torch.ops.aten.sum.dim_IntList(x, [0]), torch.ops.aten.sum.default(torch.ops.aten.ne.Scalar(x, 0.0)))
    )
    large = torch.tensor([3e38, 3e38, -3e38, -3e38], dtype=torch.float64)
    assert overflows(sums, [large])
    assert not overflows(sums, [large / 4])


@pytest.mark.parametrize("seed", range(4))
def test_an_exponential_below_the_smallest_normal_number_may_be_zero_in_a_product(seed: int) -> None:
    """In each of 400,000 elements, whatever the probes drew, and with eager right to the last bit; not much more may."""
    golden = symbolic_trace(lambda x, y: (torch.ops.aten.mul.Tensor(torch.ops.aten.exp.default(x), y),))
    generator = torch.Generator().manual_seed(seed)
    x = torch.empty(16, 25000).uniform_(-90.0, -80.0, generator=generator)
    y = torch.randn(16, 25000, generator=generator)
    (right,) = golden(x.double(), y.double())
    (moves,) = sensitivity(golden, [x, y], [right], probes=6, low=False, seed=seed)
    allowed = allow(right, right.float(), moves, None, 1).limit
    small = x.double().exp() < TINY[torch.float32]
    assert 0 < int(small.sum())
    assert not bool((small & (right.abs() > allowed)).any())
    assert float(allowed[small].max()) < 8 * TINY[torch.float32] * float(y.abs().max())
