"""How far right answers move: at the ends of float64 too."""

from __future__ import annotations

import math

import torch
from torch.fx import symbolic_trace

from accelopt_compile.evaluate.noisy import sensitivity


def test_answers_near_the_end_of_float64_move_without_end_and_raise_nothing() -> None:
    golden = symbolic_trace(lambda x: (torch.ops.aten.expm1.default(x),))
    x = torch.full((3,), 355.0)
    (moves,) = sensitivity(golden, [x], [torch.expm1(x.double())], probes=3, low=False, seed=1)
    assert math.isinf(moves.along[1])
    assert moves.probes == 3
