"""Calling a kernel for timing, where the compiled launcher is not to be had or not for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from accelopt_compile.evaluate.launching import allocating_call
from tests.evaluate.workloads import softmax_workload


def test_a_plain_kernel_that_declines_while_it_is_timed_is_an_error() -> None:
    """As with the launcher: each call of a program would run in eager. One that takes the call gives its output."""
    answers = iter([0, 3])

    def kernel(pointers: Sequence[int], sizes: Sequence[int], threads: int) -> int:
        assert ([5], 2, 2) == (sizes, len(pointers), threads)
        return next(answers)

    call = allocating_call(kernel, softmax_workload(4), {"s0": 5}, [torch.zeros(5, 4)], 2)
    assert [(5, 4)] == [output.shape for output in call()]
    with pytest.raises(RuntimeError, match="declined"):
        call()
