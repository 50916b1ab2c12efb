"""A row's largest element tells of a NaN in the row where nothing else does, and only there: it takes two more instructions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.backends.seed_cases import R
from tests.backends.seeds import BACKEND, fault, regions_of

Function = Callable[[Tensor], Tensor | tuple[Tensor, ...]]


def guarded(x: Tensor) -> Tensor:
    """The largest decides by a comparison, which is false for NaN and so no arithmetic."""
    return torch.where(x.amax(-1, keepdim=True) > 0, x.softmax(-1), 0.5)


def shifted_twice(x: Tensor) -> Tensor:
    """What is summed is another tensor than what the largest is of."""
    return (x * 2 - x.amax(-1, keepdim=True)) / (x - 1).exp().where(x < 1, 0.0).sum(-1, keepdim=True)


def sum_of_other_rows(x: Tensor) -> Tensor:
    """The sum over the same loops tells of columns."""
    y = torch.where(x > 0, x * 2, 1.0)
    return x.amax(1) + (y.t() + x).sum(0)


TOLD_BY_A_SUM: Mapping[str, Function] = {
    "softmax": lambda x: x.softmax(-1),
    "log softmax": lambda x: x.log_softmax(-1),
    "masked": lambda x: torch.where(x > -1, x, -torch.inf).softmax(-1),
    "softmin": lambda x: F.softmin(x, -1),
    "some of a softmax": lambda x: torch.where(x > 0, x.softmax(-1), 0.0),
    "entropy": lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1),
}
TOLD_BY_ITSELF: Mapping[str, Function] = {
    "largest": lambda x: x.amax(-1) * 2,
    "smallest taken away": lambda x: x - x.amin(-1, keepdim=True),
    "softmax and its largest": lambda x: (x.softmax(-1), x.amax(-1)),
    "guarded": guarded,
    "shifted twice": shifted_twice,
    "sum of other rows": sum_of_other_rows,
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("name", "told"), [*((n, False) for n in TOLD_BY_A_SUM), *((n, True) for n in TOLD_BY_ITSELF)])
def test_a_nan_is_told_of_where_no_sum_does(name: str, told: bool, tmp_path: Path) -> None:
    regions = regions_of({**TOLD_BY_A_SUM, **TOLD_BY_ITSELF}[name], R(21, 21))
    text = "".join(BACKEND.seed(workload).text.split('extern "C" int accelopt_kernel')[1] for workload, _ in regions)
    assert told == ("unless_nan(" in text)
    assert [""] * len(regions) == [fault(BACKEND.seed(w), w, b, tmp_path) for w, b in regions]


def test_long_chains_are_looked_through_in_no_time() -> None:
    """A chain that uses each value three times has 3**20 ways through it."""

    def function(x: Tensor) -> Tensor:
        z = x
        for _ in range(20):
            z = z * 0.5 + z * z
        return x.softmax(-1) * z

    ((workload, _),) = regions_of(function, R(21, 21))
    began = time.process_time()
    BACKEND.seed(workload)
    assert time.process_time() - began < 20


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", [*TOLD_BY_A_SUM, *TOLD_BY_ITSELF])
@pytest.mark.parametrize("where", [0, 10, 20], ids=["first", "within", "last"])
def test_a_row_with_a_nan_gives_what_eager_gives(name: str, where: int, tmp_path: Path) -> None:
    function = {**TOLD_BY_A_SUM, **TOLD_BY_ITSELF}[name]
    x = R(21, 21)
    x[1, where], x[2, where], x[3, where], x[4] = torch.nan, torch.inf, -torch.inf, torch.nan
    found = function(x)
    expected = list(found) if isinstance(found, tuple) else [found]
    regions = regions_of(function, R(21, 21))
    assert sum(len(workload.outputs) for workload, _ in regions) == len(expected)
    for workload, binding in regions:
        artifact = BACKEND.build(BACKEND.seed(workload), BACKEND.seed(workload).defaults(), str(tmp_path))
        outputs = [torch.empty(workload.bound_shape(spec, binding)) for spec in workload.output_specs]
        kernel = BACKEND.load(artifact)
        assert 0 == kernel([t.data_ptr() for t in (x, *outputs)], [binding[s] for s in workload.symbols], 1)
        for got in outputs:
            assert any(
                got.shape == want.shape and torch.allclose(got.flatten(), want.flatten(), 1e-5, 1e-6, equal_nan=True)
                for want in expected
            ), (got, expected)
