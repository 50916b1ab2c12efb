"""A search whose speeds are estimates: it ranks and learns by them, and adopts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from accelopt_compile.records import Accepted, KernelSource, Verdict
from accelopt_compile.search import SearchSettings
from accelopt_compile.search.describe import profile_lines, workload_text
from accelopt_compile.search.memory import proven_configurations, similarity
from accelopt_compile.search.simulated import SimulatedEvaluator
from accelopt_compile.search.state import SearchState, verdict_from, verdict_json
from accelopt_compile.search.trials import Effort
from tests.search.worlds import World, experience

SETTINGS = replace(SearchSettings.preset("quick"), estimated=True)


@dataclass(kw_only=True)
class Estimating(SimulatedEvaluator):
    """The landscape without a clock: what it says of a kernel is an estimate."""

    def evaluate(self, source: KernelSource, tunables: Mapping[str, int], *, effort: Effort = "quick") -> Verdict:
        verdict = super().evaluate(source, tunables, effort=effort)
        if not isinstance(verdict, Accepted):
            return verdict
        t = verdict.timing
        return replace(verdict, timing=replace(t, basis="estimated", low=t.speedup, high=t.speedup, blocks=0))


def world(**given: object) -> World:
    return World(settings=SETTINGS, made_by=Estimating, **given)  # type: ignore[arg-type]


def test_a_search_on_estimates_keeps_candidates_and_no_winner() -> None:
    """The three best texts, each right in full; the reason does not speak of a winner that is missing."""
    result = world().run()
    assert result.best is None
    assert 3 == len(result.proven) == len({c.source.digest for c in result.proven})
    assert "no winner" not in result.reason
    assert all(c.verdict.timing.basis == "estimated" for c in result.proven)


def test_an_estimate_never_wins_and_never_ends_a_search() -> None:
    """A kernel that is hopeless by the model is kept as well: the device decides."""
    result = world(start=0.1).run()
    assert result.best is None
    assert result.proven
    assert "baseline" not in result.reason


def test_what_is_learned_from_estimates_says_so() -> None:
    """Every lesson: in its basis and in its words."""
    lessons = world().run().experiences
    assert lessons
    assert {"estimated"} == {lesson.basis for lesson in lessons}
    assert all("estimated" in lesson.lesson for lesson in lessons)


def test_a_device_search_learns_nothing_from_estimates() -> None:
    """Neither a warm start nor a place in a prompt: candidates reach the device by themselves."""
    estimated = world().run().experiences
    device = World(number=1, prior=estimated)
    assert () == device.memory.recall(device.task)
    assert () == proven_configurations(device.task, estimated)
    assert World(number=1).run() == device.run()


def test_a_search_on_estimates_learns_from_both() -> None:
    """Measurements are better evidence than its own."""
    task = world().task
    assert similarity(task, experience()) == similarity(task, experience(basis="estimated")) > 0


def test_an_author_is_told_that_nothing_was_timed() -> None:
    """No line of a profile gives an estimate for a measurement."""
    here = world()
    (best, *_) = here.run().proven
    lines = profile_lines(here.task, best, None)
    assert all(
        line.startswith("estimated_") for line in lines if "speedup" in line or "kernel_us" in line or "baseline_us" in line
    )
    assert "its time is estimated at" in workload_text(here.task)


def test_an_interrupted_search_on_estimates_reads_back(tmp_path: Path) -> None:
    """States and events keep the basis."""
    here = world()
    result = here.run()
    state = here.states[-1]
    assert state == SearchState.from_json(state.to_json())
    for one in result.proven:
        assert one.verdict == verdict_from(verdict_json(one.verdict))
