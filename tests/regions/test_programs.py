"""Random programs: a graph is the same with its regions replaced by their references, and the seed of each region builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from accelopt_compile.errors import ToolchainFailed
from accelopt_compile.partition import partition
from accelopt_compile.signature import try_sign
from tests.backends.seeds import BACKEND
from tests.regions.models import Checked, graph_of
from tests.regions.programs import Program, program

BATCH = 8
"""Programs a test."""


class Kept(Checked):
    """Keeps what the graph gives as it is."""

    def _compare(self, original: torch.fx.GraphModule, names: list[Any], args: list[Any]) -> None:
        self.expected = [out.clone() for out in torch.fx.Interpreter(original).run(*args) if isinstance(out, torch.Tensor)]


def programs(batch: int) -> list[Program]:
    """Those that eager runs: a random one may ask for what there is not."""
    found = []
    for seed in range(BATCH * batch, BATCH * (batch + 1)):
        made = program(seed)
        try:
            made.function(*made.inputs)
        except (RuntimeError, TypeError, IndexError):
            continue
        found.append(made)
    return found


@pytest.mark.sweep(8)
@pytest.mark.parametrize("batch", range(24))
def test_a_graph_is_the_same_with_its_regions_replaced(batch: int) -> None:
    """NaN and infinities too; within the roundings that the normal form reorders."""
    for made in programs(batch):
        torch._dynamo.reset()
        kept = Kept()
        with torch.no_grad():
            found = torch.compile(made.function, backend=kept)(*(x.clone() for x in made.inputs))
        if not kept.digests:
            continue
        (expected,) = kept.expected
        exact = not expected.dtype.is_floating_point
        limits = {"rtol": 0.0, "atol": 0.0} if exact else {"rtol": 1e-4, "atol": 1e-5} if expected.dtype is torch.float32 else {}
        torch.testing.assert_close(found, expected, equal_nan=True, msg=lambda why, m=made: f"{m.steps}: {why}", **limits)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("batch", range(24))
def test_every_seed_builds(batch: int, tmp_path: Path) -> None:
    """What a backend has a seed for, it can compile: a text that the compiler refuses is a kernel that nobody gets."""
    refused = []
    for made in programs(batch)[:3]:
        with torch.no_grad():
            regions = partition(graph_of(made.function, *made.inputs)).regions
        for signed in map(try_sign, regions):
            if isinstance(signed, str) or BACKEND.supports(signed.workload) is not None:
                continue
            source = BACKEND.seed(signed.workload)
            try:
                BACKEND.build(source, source.defaults(), str(tmp_path))
            except ToolchainFailed as failure:
                refused.append((made.steps, failure.diagnosis[:300]))
    assert [] == refused
