"""Kernels for a device that is not here: searched, kept as candidates, never launched, and decided by the device.

One machine is both: $ACCELOPT_REFERENCE_DEVICE says which reference device is here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import accelopt_compile
from accelopt_backends.reference import DEVICE_VARIABLE
from accelopt_compile.bench import Bench
from accelopt_compile.cli import run
from accelopt_compile.config import settings_from
from accelopt_compile.errors import AccelOptError
from accelopt_compile.llm.client import Request
from accelopt_compile.llm.scripted import ScriptedClient
from accelopt_compile.pipeline import bench_for
from accelopt_compile.promoting import decided, promote, waiting_in
from accelopt_compile.records import Node, Record, Ref, TensorSpec, Workload
from accelopt_compile.search.budget import Budget
from accelopt_compile.tuning import Tuned, tune

TARGET = "reference-b"
BINDING = {"s0": 512}


def spec(*shape: int | str) -> TensorSpec:
    return TensorSpec(dtype="f32", shape=shape, strides=(*shape[1:], 1))


def product_of_three() -> Workload:
    """(a @ b) @ v, for which a @ (b @ v) is two hundred times less work: a kernel that no compiler finds."""
    a, b, v = spec("s0", 256), spec(256, 256), spec(256, 1)
    nodes = (
        Node(op="aten.mm.default", args=(Ref("i", 0), Ref("i", 1)), outputs=(a,)),
        Node(op="aten.mm.default", args=(Ref("n", 0), Ref("i", 2)), outputs=(spec("s0", 1),)),
    )
    return Workload(inputs=(a, b, v), nodes=nodes, outputs=(Ref("n", 1),), output_specs=(spec("s0", 1),), symbols=("s0",))


def bench(**settings: Any) -> Bench:
    return bench_for(settings_from(call={"backend": "reference", "target": TARGET, "threads": 1, "seed": 1, **settings}))


def searched(bench: Bench, workload: Workload, seconds: float = 120.0) -> Tuned:
    return tune(bench, workload, BINDING, Budget(seconds=seconds, clock=time.monotonic))


def reassociated(request: Request) -> str:
    """A model that sees it at once."""
    if request.role == "planner":
        return '{"plans": ["Multiply the last two first: a vector instead of a matrix is left."]}'
    if request.role == "summarizer":
        return "**Associate products**\nMultiply small ones first."
    seed = bench().backend.seed(product_of_three()).text
    text = seed.replace("n0 = aten.mm.default(i0, i1)", "n0 = aten.mm.default(i1, i2)")
    text = text.replace("n1 = aten.mm.default(n0, i2)", "n1 = aten.mm.default(i0, n0)").replace("3 * REPEAT", "1 * REPEAT")
    assert text != seed
    return f'```python\n# TUNABLES: {{"REPEAT": [1]}}\n{text}```'


def candidates(where: Bench) -> list[Record]:
    return [record for _, record in where.store.iter_records()]


@pytest.mark.thorough
def test_a_search_with_the_built_in_proposer_leaves_candidates_with_provenance() -> None:
    """Proven in simulation, estimated, and told of: by whom, at which sizes, under which environment, from what the toolchain
    said. No winner, no baseline."""
    here = bench()
    found = searched(here, product_of_three())
    assert found.record is not None
    assert ("candidate", "simulated") == (found.record.outcome, found.record.rung)
    assert found.record.timing is not None
    assert "estimated" == found.record.timing.basis
    assert (
        f"3 kernels proven in simulation for {TARGET}; until `accelopt cache promote` decides on that device, Inductor runs"
        in (found.reason)
    )
    kept = candidates(here)
    assert 3 == found.candidates == len(kept) == len({record.source and record.source.text for record in kept})
    for record in kept:
        assert record.errors is not None
        assert record.errors.cases > 15
        assert "builtin" == record.provenance["proposer"]
        assert {"checked_at", "features", "walls"} <= set(record.provenance)
        assert dict(here.environment) == dict(record.environment)
    assert {"estimated"} == {lesson.basis for lesson in here.store.experiences("reference")}
    assert here.store.best(product_of_three().digest, TARGET, BINDING, environment=here.environment) is None


@pytest.mark.thorough
def test_a_search_with_a_model_leaves_candidates_that_the_device_makes_winners(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the model's text to a winner: refused where the device is not, proven and timed where it is, and served there."""
    here = replace(bench(model="scripted", rounds=1, proposer="llm"), client=ScriptedClient(reassociated), keep=True)
    found = searched(here, product_of_three())
    assert found.candidates
    assert found.run is not None
    written = [record for record in candidates(here) if record.source and record.source.origin == "llm"]
    assert written
    assert {found.run} == {record.provenance["run"] for record in written}
    assert "candidate" == here.store.runs.open(found.run).result()["outcome"]  # type: ignore[index]
    (waiting,) = waiting_in(here.store)
    with pytest.raises(AccelOptError, match="cannot be decided on reference-b \\(simulated\\)"):
        promote(here, here.store, waiting)
    assert 1 == run(["cache", "promote", "--all"])
    assert "no device of that kind is here" in capsys.readouterr().err
    assert {"candidate"} == {record.outcome for record in candidates(here)}

    monkeypatch.setenv(DEVICE_VARIABLE, TARGET)
    assert 0 == run(["cache", "promote", "--all", "--json"])
    (region,) = json.loads(capsys.readouterr().out)["regions"]
    assert "winner" == region["outcome"]
    there = bench(threads=torch.get_num_threads())  # as the command line does
    winner = there.store.best(product_of_three().digest, TARGET, BINDING, environment=there.environment)
    assert winner is not None
    assert ("device", "measured") == (winner.rung, winner.timing and winner.timing.basis)
    assert winner.timing is not None
    assert winner.timing.low >= 1.03
    assert winner.provenance["promoted"]["from"] in region["candidates"]
    assert found.run == winner.provenance["run"]
    assert decided(there, waiting) == winner
    assert 0 == run(["cache", "promote", "--all", "--json"])
    assert [] == json.loads(capsys.readouterr().out)["regions"]


@pytest.mark.thorough
def test_a_device_on_which_nothing_is_faster_keeps_its_baseline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The candidates were right and slow: a baseline record says so there, with what was tried, and no search is repeated."""
    here = bench()
    searched(here, product_of_three())
    monkeypatch.setenv(DEVICE_VARIABLE, TARGET)
    assert 3 == run(["cache", "promote", "--all", "--json"])
    (region,) = json.loads(capsys.readouterr().out)["regions"]
    assert "baseline" == region["outcome"]
    assert "1.03 must be below it" in region["reason"]
    (kept,) = [record for record in candidates(bench()) if record.outcome == "baseline"]
    assert "device" == kept.rung
    assert sorted(region["candidates"]) == kept.provenance["promoted"]["candidates"]


def test_a_candidate_that_is_wrong_on_the_device_is_withdrawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A simulation has blind spots: exit code 4, the record goes to quarantine with its reason."""
    here = bench()
    searched(here, product_of_three())
    (good, *_) = candidates(here)
    for record_id, _ in list(here.store.iter_records()):
        here.store.remove(record_id)
    assert good.source is not None
    wrong = replace(good.source, text=good.source.text.replace("output.copy_(result)", "output.copy_(result * 1.01)"))
    name = here.store.put(replace(good, source=wrong), product_of_three())
    monkeypatch.setenv(DEVICE_VARIABLE, TARGET)
    assert 4 == run(["cache", "promote", name[:12], "--json"])
    (region,) = json.loads(capsys.readouterr().out)["regions"]
    assert ("failed", "numerics") == (region["outcome"], region["refused"][name]["stage"])
    assert [] == candidates(bench())
    assert here.store.quarantined(name)


class Softmax(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2 + 1, -1)


@pytest.fixture
def compiled() -> Callable[..., torch.Tensor]:
    def once(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.reset()
        accelopt_compile.outcomes.reports.clear()
        options = {"backend": "reference", "target": TARGET, "budget_s": 60.0}
        result: torch.Tensor = torch.compile(Softmax(), backend="accelopt", options=options)(x)
        return result

    return once


def test_a_compile_prepares_kernels_and_launches_none(compiled: Callable[..., torch.Tensor]) -> None:
    """Inductor runs the model; the report names candidates, the second compile finds them and searches no more. A winner of
    that device, which somebody copied here, is not launched either."""
    x = torch.randn(64, 32)
    expected = torch.softmax(x * 2 + 1, -1)
    torch.testing.assert_close(compiled(x), expected)
    (region,) = accelopt_compile.outcomes.reports.all()[0].regions
    assert ("CANDIDATE", "estimated") == (region.outcome, region.basis)
    assert "CANDIDATE estimated" in region.line()
    assert f"proven in simulation for {TARGET}" in region.line()
    assert {} == accelopt_compile.stats()["kernels"]

    store = bench().store
    (first, *_) = candidates(bench())
    assert first.timing is not None
    copied = replace(first.timing, basis="measured", blocks=5)
    store.put(replace(first, outcome="winner", rung="device", timing=copied), None)
    count = len(candidates(bench()))
    torch.testing.assert_close(compiled(x), expected)
    (again,) = accelopt_compile.outcomes.reports.all()[0].regions
    assert "CANDIDATE" == again.outcome
    assert count == len(candidates(bench()))
    assert {} == accelopt_compile.stats()["kernels"]


def test_a_target_that_no_backend_prepares_for_is_an_error_that_says_what_is_here() -> None:
    """A language of this processor alone, and a name that no device has."""
    from accelopt_compile.errors import InvalidOption, ToolchainMissing

    with pytest.raises(ToolchainMissing, match="the device that is here, not for reference-b"):
        bench_for(settings_from(call={"backend": "cpp", "target": TARGET}))
    with pytest.raises(InvalidOption, match="no language has such a target"):
        bench_for(settings_from(call={"backend": "reference", "target": "gpu"}))


def test_automatic_stays_the_processor_here() -> None:
    """Whatever else could be prepared for."""
    assert ("cpp", "device") == ((here := bench_for(settings_from(call={}))).backend.name, here.rung)


def test_a_failure_that_nobody_expected_is_one_region_s() -> None:
    """A broken package, a system without threads left: the graph's other kernels must not be lost over it."""

    def broken(request: Request) -> str:
        raise RuntimeError("can't start new thread")

    here = replace(bench(model="scripted", rounds=1, proposer="llm"), client=ScriptedClient(broken))
    found = searched(here, product_of_three())
    assert found.record is None
    assert "search failed: RuntimeError: can't start new thread" == found.reason
