"""Arithmetic and comparisons of truth values: in a vector kernel a mask's lanes are 0 and -1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from accelopt_backends.triton import TritonBackend
from tests.backends import seeds
from tests.backends.seed_cases import R

CONDITIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "product": lambda x, y: ~((x > 0) * (y > 0)),
    "sum": lambda x, y: ~((x > 0) + (y > 0)),
    "larger": lambda x, y: ~torch.maximum(x > 0, y > 0),
    "smaller": lambda x, y: ~torch.minimum(x > 0, y > 0),
    "less": lambda x, y: (x > 0) < (y > 0),
    "not less": lambda x, y: (x > 0) >= (y > 0),
    "finite": lambda x, y: ~torch.isfinite(x),
}
FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    **{name: (lambda x, y, c=c: torch.where(c(x, y), x, y) * 0.5) for name, c in CONDITIONS.items()},  # type: ignore[misc]
    "counted": lambda x, y: ((x > 0) * (y > 0)).sum(-1) * 0.5,
    "of equal numbers": lambda x, y: torch.logaddexp(x, y).tanh(),
}


@pytest.mark.parametrize("backend", [seeds.BACKEND, TritonBackend("triton-cuda-sm_80")], ids=["cpp", "triton"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_seed_takes_truth_values_as_eager_does(name: str, backend: Any, tmp_path: Path) -> None:
    """On numbers of both signs, equal ones among them, infinities and NaN."""
    for workload, binding in seeds.regions_of(FUNCTIONS[name], R(5, 83), R(5, 83)):
        families = ["small_ints", "nonfinite_rows"]
        assert "" == seeds.fault(backend.seed(workload), workload, binding, tmp_path, backend=backend, families=families)
