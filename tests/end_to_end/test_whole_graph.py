"""The check of the whole graph: kernels that win alone and lose where they stand are left to Inductor, and that is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import planting
import pytest
import torch
from torch._dynamo.utils import counters

import accelopt_compile
from accelopt_compile.evaluate.in_context import Replaced, module_of, with_kernels
from accelopt_compile.graph_pass import choice
from accelopt_compile.launch import kernels
from accelopt_compile.records import KernelSource, Workload
from accelopt_compile.whole_graph import described
from accelopt_compile.winners import winner_of


def alike(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Three regions, as no consumer may take the producer for itself. Inductor makes one loop of all of them."""
    h = torch.nn.functional.gelu(x)
    return h * y + 1, h * z + 1


def heavy(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same, with so much to compute that memory hardly matters."""
    h = torch.tanh(x)
    return torch.tanh(torch.tanh(h * y)), torch.tanh(torch.tanh(h * z))


def tensors(rows: int = 512) -> list[torch.Tensor]:
    return [torch.randn(rows, 1024) for _ in range(3)]


def compiled(model: Callable[..., Any], inputs: list[torch.Tensor], **options: Any) -> list[tuple[str, str]]:
    """Compile and run once; (outcome, reason) of every region."""
    torch._dynamo.reset()
    before = len(accelopt_compile.explain(structured=True))
    with torch.no_grad():
        got = torch.compile(model, backend="accelopt", options=options)(*inputs)
        torch.testing.assert_close(got, model(*inputs))
    (graph,) = accelopt_compile.explain(structured=True)[before:]
    return [(r["outcome"], r["reason"]) for r in graph["regions"]]


def many_times(seed: KernelSource) -> KernelSource:
    """The same kernel fifty times over: slower than Inductor on every machine, whatever its timing says."""
    assert "parallel(n, items," in seed.text
    return replace(seed, text=seed.text.replace("parallel(n, items,", "for (int k = 0; k < 50; ++k) parallel(n, items,"))


@pytest.mark.timeout(300)
def test_what_loses_in_the_graph_is_dropped_and_remembered() -> None:
    """Kernels that are slow where they stand are left to Inductor, with the ratio as the reason; a later process in mode
    apply, which measures nothing, does the same."""
    inputs = tensors()
    with torch.no_grad():
        planting.plant(alike, *inputs, source=many_times)
    assert ["HIT", "HIT"] == [outcome for outcome, _ in compiled(alike, inputs, mode="apply")]
    first = compiled(alike, inputs, mode="tune", budget_s=120)
    assert ["BASELINE", "BASELINE"] == [outcome for outcome, _ in first]
    assert all(reason.startswith("wins alone, loses in this graph: 0.") for _, reason in first)
    counters.clear()
    assert first == compiled(alike, inputs, mode="apply")
    assert 2 == counters["accelopt"]["baseline"]


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("one_thread")
def test_what_pays_in_the_graph_is_kept() -> None:
    """Kernels that cut the same loop but compute far faster stay."""
    inputs = tensors()
    with torch.no_grad():
        planting.plant(heavy, *inputs)
    assert ["HIT", "HIT"] == [outcome for outcome, _ in compiled(heavy, inputs, mode="tune", budget_s=120)]


@pytest.mark.timeout(300)
def test_what_crashes_in_the_graph_is_dropped() -> None:
    """A kernel whose process crashes where it stands never gets into the user's."""

    def crashing(seed: KernelSource) -> KernelSource:
        """Where a size divides by itself less itself; the screen cannot see that."""
        text = 'extern "C" int accelopt_kernel(void* const* t, const long* s, long n) { return (int)(n / (s[0] - s[0])); }\n'
        return replace(seed, text=text)

    inputs = tensors(64)
    with torch.no_grad():
        planting.plant(alike, *inputs, source=crashing)
    found = compiled(alike, inputs, mode="tune", budget_s=120)
    assert {"BASELINE"} == {outcome for outcome, _ in found}
    assert all("crashes in this graph" in reason for _, reason in found)


def test_without_time_nothing_is_dropped() -> None:
    """With a budget of 0 nothing is measured: each kernel has won alone."""
    inputs = tensors(64)
    with torch.no_grad():
        planting.plant(alike, *inputs)
    assert ["HIT", "HIT"] == [outcome for outcome, _ in compiled(alike, inputs, mode="tune", budget_s=0)]


def test_a_context_with_kernels_computes_what_it_does_without() -> None:
    """What is timed is the same computation: also where a region has several results inside (a variance and a mean)."""

    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.nn.functional.layer_norm(x, (256,))
        return h * y + 1, h * z + 1

    inputs = [torch.randn(16, 256) for _ in range(3)]
    with torch.no_grad():
        planted = planting.plant(function, *inputs)
    place, (site, *_) = planting.bench(), [s for s in planted if s.count == 1]
    assert site.context is not None
    workload = Workload.from_json(site.context["workload"])
    replaced = []
    for member in site.context["members"]:
        for other in planted:
            if other.choice == choice(*member["choice"]):
                record = place.store.best(other.workload.digest, place.target, other.binding)
                assert record is not None
                replaced.append(Replaced(described(place, member, winner_of(record, other.workload))))
    assert 3 == len(replaced)
    given = [torch.randn(spec.shape) for spec in workload.inputs]
    torch.testing.assert_close(with_kernels(workload, replaced)(*given), module_of(workload)(*given))
    assert 3 == sum(one["calls"] for one in kernels.statistics().values())
