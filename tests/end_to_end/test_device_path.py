"""From a graph to launched kernels with a device that has memory of its own: the stand-in on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import planting
import pytest
import torch
from attached_backend import AttachedCpp

import accelopt_compile
from accelopt_compile import pipeline, torch_backend, winners
from accelopt_compile.deciding import decide
from accelopt_compile.looking_up import Decided
from accelopt_compile.outcomes import CompileReport
from accelopt_compile.sites import sites_of


def softened(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A softmax of products with a gate: one region after a product."""
    h = x @ w
    return torch.softmax(torch.nn.functional.silu(h) * h, -1)


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_kernels_are_searched_proven_timed_and_launched() -> None:
    """The search's winner came through the device's path, and the compiled model gives eager's result with it."""
    place = replace(
        planting.bench(mode="tune", budget_s=25, rounds=1, plans_per_candidate=1, min_speedup=1.0, threads=1),
        backend=AttachedCpp(),
        attached=True,
    )
    decided: list[Decided] = []

    def compiled(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        found = decide(sites_of(gm, example_inputs)[0], place)
        decided.append(found)
        for winner in found.winners.values():
            winners.adopt(winner, store=place.store, backend=place.backend)
        report = CompileReport(graph="", regions=tuple(found.reports))
        made = pipeline.Plan(winners=found.winners, report=report, store=place.store, backend=place.backend)
        return torch_backend._with_kernels(gm, example_inputs, {}, made)

    x, w = torch.randn(256, 64), torch.randn(64, 512)
    with torch.no_grad():
        result = torch.compile(softened, backend=compiled)(x, w)
        torch.testing.assert_close(softened(x, w), result)
    (found,) = decided
    assert {"TUNED"} == {report.outcome for report in found.reports}, found.reports
    records = [winner.record for winner in found.winners.values()]
    assert all(record.timing is not None and "inductor" in record.timing.baselines_us for record in records)
    stats = accelopt_compile.stats()
    assert (True, 0) == (stats["calls"] >= 1, stats["fallbacks"])


def test_a_device_s_graph_is_not_weighed_on_the_host() -> None:
    """Contexts are timed on the host alone; on a device each kernel keeps what it won by itself."""
    place = replace(planting.bench(mode="tune"), backend=AttachedCpp(), attached=True)
    model, x = planting.Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        sites = planting.sites_seen(model, x)
    planting.plant_sites(place, sites)
    decided = decide(sites, place)
    assert {} == pipeline._checked(sites, decided, place, {})
    assert {"HIT"} == {report.outcome for report in decided.reports}
