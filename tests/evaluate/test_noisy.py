"""How far right answers move: at the ends of float64 too."""

from __future__ import annotations

import math

import torch
from torch.fx import symbolic_trace

from accelopt_compile.evaluate.noisy import overflows, sensitivity


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
