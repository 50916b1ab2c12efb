"""Integers narrower than 64 bits wrap in a kernel where they wrap in eager, not only where they are stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from accelopt_backends.triton import TritonBackend
from tests.backends import seeds

NARROW = (torch.int32, torch.int16, torch.int8, torch.uint8)
FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "a product": lambda x, y: (x * y).float() * 0.5,
    "a sum with a factor": lambda x, y: torch.add(x, y, alpha=3).float() * 0.5,
    "a difference": lambda x, y: (x - y).float().tanh(),
    "a square and a negative": lambda x, y: (-(x * x) + y).float() * 0.5,
    "a magnitude, summed": lambda x, y: (x + y).abs().float().tanh().sum(-1),
    "a narrower one": lambda x, y: (x.long() + y).to(torch.int8).float() * 0.5,
    "compared": lambda x, y: torch.where(x + y > 3, x.float(), y.float()) * 0.5,
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("backend", [seeds.BACKEND, TritonBackend("triton-cuda-sm_80")], ids=["cpp", "triton"])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_seed_wraps_as_eager_does(name: str, dtype: torch.dtype, backend: Any, tmp_path: Path) -> None:
    """On integers of every length, whose sums and products do not fit."""
    ints = [torch.randint(0, 9, (5, 83)).to(dtype) for _ in range(2)]
    ((workload, binding),) = seeds.regions_of(FUNCTIONS[name], *ints)
    assert "" == seeds.fault(backend.seed(workload), workload, binding, tmp_path, backend=backend, families=["wide_ints"])
