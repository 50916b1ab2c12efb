"""The loop from seed to winner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pytest

from accelopt_compile.errors import InvalidOption
from accelopt_compile.events import MemoryLog
from accelopt_compile.records import Accepted, Candidate, KernelSource, Plan, Rejected, Stage, Verdict
from accelopt_compile.search import NoSource, SearchSettings, SearchTask
from accelopt_compile.search.builtin import BuiltinProposer
from accelopt_compile.search.proposer import Call
from accelopt_compile.search.simulated import SimulatedBackend, SimulatedEvaluator
from accelopt_compile.search.trials import Effort
from tests.search.worlds import World, experience

BROKEN = "#error broken\n"


class Breaking(BuiltinProposer):
    """Writes every kernel broken; its fixer needs `fixes` goes to mend one."""

    def __init__(self, fixes: int) -> None:
        self.fixes = fixes

    def attempt(
        self, task: SearchTask, parent: Candidate, plan: Plan, count: int, call: Call
    ) -> Sequence[KernelSource | NoSource]:
        given = super().attempt(task, parent, plan, count, call)
        return [replace(s, text=BROKEN * self.fixes + s.text) for s in given if not isinstance(s, NoSource)]

    def fix(self, task: SearchTask, source: KernelSource, rejected: Rejected, call: Call) -> KernelSource | None:
        return replace(source, text=source.text.removeprefix(BROKEN))


@dataclass(kw_only=True)
class Refusing(SimulatedEvaluator):
    """A toolchain that refuses every source with `refused` in it; with `in_full`, only at the final evaluation."""

    refused: str = BROKEN
    in_full: bool = False

    def evaluate(self, source: KernelSource, tunables: Mapping[str, int], *, effort: Effort = "quick") -> Verdict:
        verdict = super().evaluate(source, tunables, effort=effort)
        bad = self.refused in source.text and (effort == "full" or not self.in_full)
        return Rejected(stage=Stage.BUILD, reason="does not compile") if bad else verdict


@dataclass(kw_only=True)
class RefusingFirst(SimulatedEvaluator):
    """One whose first `most` full evaluations end in a rejection."""

    most: int
    refused: int = 0

    def evaluate(self, source: KernelSource, tunables: Mapping[str, int], *, effort: Effort = "quick") -> Verdict:
        verdict = super().evaluate(source, tunables, effort=effort)
        if effort == "quick" or self.refused == self.most:
            return verdict
        self.refused += 1
        return Rejected(stage=Stage.NUMERICS, reason="wrong result")


@dataclass(kw_only=True)
class SlowlyRefusing(RefusingFirst):
    """And each of them takes a minute."""

    def evaluate(self, source: KernelSource, tunables: Mapping[str, int], *, effort: Effort = "quick") -> Verdict:
        self.clock.advance(60.0 if effort == "full" else 0.0)
        return super().evaluate(source, tunables, effort=effort)


@dataclass(kw_only=True)
class Unlucky(SimulatedEvaluator):
    """One whose full evaluations with these numbers, from 0, find the kernel slower than the baseline."""

    slow: tuple[int, ...]
    seconds_in_full: float = 0.0
    in_full: int = 0

    def evaluate(self, source: KernelSource, tunables: Mapping[str, int], *, effort: Effort = "quick") -> Verdict:
        verdict = super().evaluate(source, tunables, effort=effort)
        if effort == "quick" or isinstance(verdict, Rejected):
            return verdict
        self.in_full += 1
        self.clock.advance(self.seconds_in_full)
        if self.in_full - 1 not in self.slow:
            return verdict
        return replace(verdict, timing=replace(verdict.timing, speedup=0.95, low=0.94, high=0.96))


@pytest.mark.parametrize(("slow", "in_full"), [((), 1), ((0,), 3), ((0, 1), 3), ((0, 2), 4)])
def test_a_kernel_loses_by_two_timings_of_three(slow: tuple[int, ...], in_full: int) -> None:
    """One bad timing of a kernel that was fast up to then decides nothing; two make room for the next one."""
    world = World(made_by=partial(Unlucky, slow=slow))
    best = world.run().best
    assert best is not None
    assert best.verdict.timing.speedup > 1.2
    assert in_full == [effort for _, _, effort in world.evaluator.evaluations].count("full")
    lost = len(slow) > 1
    assert lost == (best.source != World().run().best.source)  # type: ignore[union-attr]


def test_full_evaluations_end_with_the_budget() -> None:
    """The first is done whatever the time; where that took all of it, no second one is begun."""
    world = World(made_by=partial(Unlucky, slow=tuple(range(9)), seconds_in_full=60.0), seconds=30)
    result = world.run()
    assert result.best is None
    assert 1 == [effort for _, _, effort in world.evaluator.evaluations].count("full")
    assert not result.cut_short  # it had its rounds, and its best kernel lost


def test_a_search_whose_kernels_were_refused_until_the_budget_was_spent_says_nothing() -> None:
    """Others wait for their full evaluation: the next compile goes on with them."""
    world = World(made_by=partial(SlowlyRefusing, most=1), seconds=30)
    result = world.run()
    assert (None, True) == (result.best, result.cut_short)


@pytest.mark.parametrize(("refused", "wins"), [(3, True), (5, True), (6, False)])
def test_a_kernel_that_is_refused_in_full_makes_room_for_the_next(refused: int, wins: bool) -> None:
    """The fastest texts share a fault with their structure: the three that may be looked at are three that are right. What ends
    that is twice as many."""
    world = World(made_by=partial(RefusingFirst, most=refused))
    assert wins == (world.run().best is not None)
    assert min(refused + 1, 6) == [effort for _, _, effort in world.evaluator.evaluations].count("full")


def test_a_kernel_that_is_refused_in_full_is_nobody_s_example() -> None:
    """The way to the best kernel that was not found wrong is remembered."""
    world = World(made_by=partial(RefusingFirst, most=2))
    result = world.run()
    assert result.best is not None
    in_full = [text for text, _, effort in world.evaluator.evaluations if effort == "full"]
    taught = [e.fast for e in world.memory.recall(world.task) if e.lesson.startswith("Best of a search")]
    assert taught
    assert not set(taught) & set(in_full[:2])
    assert not {text for e in result.experiences for text in (e.slow, e.fast)} & set(in_full[:2])


def test_a_search_finds_a_kernel_well_above_its_seed() -> None:
    """On five landscapes the winner is proven in full and at least 1.5x as fast as the seed."""
    for number in range(5):
        result = World(number=number).run()
        assert result.best is not None
        assert result.best.verdict.timing.speedup > 1.5 * result.candidates[0].verdict.timing.speedup


def test_equal_arguments_give_equal_results() -> None:
    """The whole result, lessons included, and every event."""
    a, b = World(seed=3), World(seed=3)
    assert a.run() == b.run()
    assert list(a.log.events()) == list(b.log.events())


def test_another_seed_takes_another_way() -> None:
    """Chance comes from `rng` alone."""
    ways = {tuple(c.source.digest for c in World(seed=seed).run().candidates) for seed in range(4)}
    assert 4 == len(ways)


def test_no_kernel_is_evaluated_twice() -> None:
    """In a whole run with tuning, warm starts and several rounds; the fastest few are timed once more at the end, and the winner
    has a full evaluation."""
    world = World(prior=World(number=1).run().experiences)
    result = world.run()
    quick = [e for e in world.evaluator.evaluations if e[2] == "quick"]
    again = len(quick) - len(set(quick))
    assert 2 <= again <= world.settings.timed_again
    assert set(quick[-again:]) <= set(quick[:-again])
    assert result.evaluated == len(world.evaluator.evaluations)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_shares_out_work_is_not_tuned_on_one_thread(threads: int) -> None:
    """Tuning leaves it as the kernel declares it: on one thread all its values are one kernel, and noise would choose."""
    world = World()
    world.task = replace(world.task, backend=SimulatedBackend(thread_tunables=("GRAIN",)), threads=threads)
    tuned = [c for c in world.run().candidates if c.source.defaults() != dict(c.tunables)]
    assert tuned
    assert (threads == 1) == all(c.source.defaults()["GRAIN"] == c.tunables["GRAIN"] for c in tuned)


def test_a_candidate_budget_is_kept_to_the_last_one() -> None:
    """Quick evaluations stop at the limit; the final evaluation is the only one beyond it."""
    world = World(candidates=25)
    result = world.run()
    assert ["quick"] * 25 + ["full"] == [effort for _, _, effort in world.evaluator.evaluations]
    assert "the candidate budget is spent" == result.reason


def test_a_time_budget_is_kept_with_the_final_evaluation_in_it() -> None:
    """At 1 s a kernel and 3 s for the final one, 30 s are used well and not overrun."""
    result = World(seconds=30).run()
    assert "the time budget is spent" == result.reason
    assert result.best is not None
    assert 24 <= result.seconds <= 30


def test_a_budget_that_is_spent_before_the_seed_gives_a_reason() -> None:
    """Nothing is evaluated, and nothing is claimed."""
    result = World(seconds=0).run()
    assert (None, 0, (), False) == (result.best, result.evaluated, result.candidates, result.judged)
    assert "before the seed was evaluated" in result.reason


def test_a_search_that_never_saw_its_seed_says_nothing_of_its_region() -> None:
    """Not even where an earlier winner's configuration was evaluated first, so that no baseline is recorded for good."""
    prior = World(number=1).run().experiences
    judged = {count: World(prior=prior, candidates=count).run() for count in (1, 2)}
    assert {1: (1, False), 2: (2, True)} == {count: (min(r.evaluated, count), r.judged) for count, r in judged.items()}


def test_a_search_stops_at_the_roofline() -> None:
    """A seed at 95 % of what the device allows is not searched further."""
    world = World(start=2.0)
    speedup = world.evaluator.landscape.speedup({}, SimulatedBackend().seed(world.task.workload).defaults())
    world.task = replace(world.task, backend=SimulatedBackend(roofline_us=97 / speedup))
    result = world.run()
    assert (2, 0) == (result.evaluated, result.rounds)
    assert "of the roofline" in result.reason


def test_a_roofline_that_is_beaten_stops_nothing() -> None:
    """A bound that the seed is far beyond (data that a cache holds) is no reason to stop."""
    world = World()
    world.task = replace(world.task, backend=SimulatedBackend(roofline_us=1e6))
    assert world.run().rounds > 0


def test_a_hopeless_region_is_given_up_early() -> None:
    """Far below the baseline after two rounds, the rest of the budget is left to others, without a full evaluation."""
    world = World(start=0.05)
    result = world.run()
    assert (None, 2) == (result.best, result.rounds)
    assert "x the baseline after 2 rounds" in result.reason
    assert {"quick"} == {effort for _, _, effort in world.evaluator.evaluations}


def test_a_stagnant_beam_ends_the_search() -> None:
    """Without a gain for `patience` rounds there is no further round."""
    settings = SearchSettings(patience=1, min_gain=100.0)
    result = World(settings=settings).run()
    assert ("1 round brought no improvement", 1) == (result.reason, result.rounds)


def test_a_kernel_that_does_not_beat_the_baseline_is_no_winner() -> None:
    """The reason names the speed, the interval and the limit."""
    result = World(settings=SearchSettings(win_margin=100.0)).run()
    assert result.best is None
    assert result.reason.startswith("no winner, because kernel ")
    assert "100.00 must be below it" in result.reason


def test_the_next_best_is_tried_when_the_best_fails_in_full() -> None:
    """A kernel that the fresh seeds refute makes place for the best of another text."""
    first = World().run().best
    assert first is not None
    world = World(made_by=partial(Refusing, refused=first.source.text, in_full=True))
    second = world.run().best
    assert second is not None
    assert first.source.text != second.source.text
    assert 2 == sum(effort == "full" for _, _, effort in world.evaluator.evaluations)


def test_a_rejected_seed_ends_the_search() -> None:
    """There is nothing to start from; the reason says at which stage the seed fell."""
    result = World(made_by=partial(Refusing, refused="")).run()
    assert (None, {"build": 1}) == (result.best, dict(result.rejected))
    assert result.reason.startswith("no winner, because the seed was rejected at build: does not compile")
    assert 1 == result.reason.count("the seed was rejected")


def test_a_broken_kernel_is_fixed_within_the_attempts() -> None:
    """Two fixes mend what needs two; what needs three is given up, and costs no more than three evaluations."""
    mended = World(made_by=Refusing, proposer=Breaking(2), settings=SearchSettings(fix_attempts=2, rounds=1)).run()
    given_up = World(made_by=Refusing, proposer=Breaking(3), settings=SearchSettings(fix_attempts=2, rounds=1)).run()
    assert any(c.plan is not None and "Set " in c.plan.text for c in mended.candidates)
    assert not any(c.plan is not None and "Set " in c.plan.text for c in given_up.candidates)
    assert given_up.rejected["build"] > 0


def test_a_paper_run_neither_tunes_nor_fixes_nor_recalls() -> None:
    """Only rounds are between the seed and the end, and every beam but the first has the paper's width."""
    settings = replace(SearchSettings.preset("paper"), rounds=2)
    world = World(settings=settings, prior=[experience(structure={"loop": "tiles"}, tunables={})], candidates=None)
    result = world.run()
    assert "2 rounds are done, the most it may take" == result.reason
    assert all(c.plan is None or c.plan.text.startswith("Set ") for c in result.candidates)
    assert [1, 6, 6] == [len(state.beam) for state in world.states]


def test_a_search_begins_with_what_experience_promises_most_and_goes_on_with_the_seed() -> None:
    """The most promising configuration first, with its numbers; the seed is still the first candidate, whose children the
    others are."""
    log = MemoryLog()
    numbers = {"TILE": 32, "UNROLL": 4, "GRAIN": 4096}
    good = experience(1.5, structure={"loop": "tiles"}, tunables=numbers)
    better = experience(2.5, structure={"loop": "columns"}, tunables=numbers)
    world = World(prior=[good, better], log=log)
    result = world.run()
    texts = [text.splitlines()[1] for text, _, _ in world.evaluator.evaluations]
    assert ["loop = columns;", "loop = rows;", "loop = tiles;"] == texts[:3]
    assert tuple(sorted(numbers.items())) == world.evaluator.evaluations[0][1]
    assert [(None, "rows"), (0, "columns")] == [(c.parent, c.source.structure["loop"]) for c in result.candidates[:2]]


def test_a_search_that_is_over_with_its_seed_keeps_what_was_evaluated_before_it() -> None:
    """A budget of two is spent on what experience promises and on the seed: both are there, and the faster is the winner's."""
    better = experience(2.5, structure={"loop": "columns"}, tunables={"TILE": 32})
    result = World(prior=[better], candidates=2).run()
    assert ["rows", "columns"] == [c.source.structure["loop"] for c in result.candidates]


def test_experience_that_does_not_apply_is_passed_over() -> None:
    """A structure that this workload's grammar does not have is not rendered."""
    result = World(prior=[experience(structure={"loop": "spiral"}), experience(structure={"ring": "yes"})], candidates=20).run()
    assert isinstance(result.candidates[0].verdict, Accepted)
    assert result.best is not None


def test_a_backend_that_names_only_what_it_was_asked_for_is_searched_alike() -> None:
    """Choices that a source leaves out are at their default: the same kernels come up, with and without experience."""
    prior = World(number=1).run().experiences
    for remembered in ((), prior):
        named, terse = World(prior=remembered), World(prior=remembered)
        terse.task = replace(terse.task, backend=SimulatedBackend(terse=True))
        named.run(), terse.run()
        assert {e[0] for e in named.evaluator.evaluations[:20]} == {e[0] for e in terse.evaluator.evaluations[:20]}


def test_the_way_to_the_winner_is_remembered_whole() -> None:
    """The last experience of a run carries the winner's structure, numbers and gain over the seed."""
    result = World().run()
    assert result.best is not None
    last = result.experiences[-1]
    assert (result.best.source.structure, result.best.tunables) == (last.structure, last.tunables)
    assert last.speedup > 1.5


def test_an_unknown_preset_is_an_error_that_names_the_known_ones() -> None:
    """Settings are checked where they are named."""
    with pytest.raises(InvalidOption, match="default, full, paper, quick"):
        SearchSettings.preset("fast")


def test_presets_are_the_papers_numbers() -> None:
    """6/12/2/16 offline, 2/4/2 by default."""
    for name, expected in {"paper": (6, 12, 2, 16), "full": (6, 12, 2, 16), "default": (2, 4, 2, 16)}.items():
        s = SearchSettings.preset(name)
        assert expected == (s.beam_width, s.plans_per_candidate, s.attempts_per_plan, s.rounds)
        assert (8, 16) == (s.lessons_per_round, s.memory_capacity)
