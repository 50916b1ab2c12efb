"""A run that dies goes on where it was."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from accelopt_compile.errors import InvalidRecord
from accelopt_compile.events import MemoryLog
from accelopt_compile.records import Candidate, Experience, KernelSource, Plan, Verdict
from accelopt_compile.search import SearchInterrupted, SearchSettings, SearchState, SearchTask
from accelopt_compile.search.builtin import BuiltinProposer
from accelopt_compile.search.proposer import Call
from accelopt_compile.search.simulated import SimulatedEvaluator
from accelopt_compile.search.trials import Effort
from tests.search.worlds import World

SETTINGS = SearchSettings(patience=2)


class Died(Exception):
    """The end of the process."""


class DyingLog(MemoryLog):
    """Keeps an event and then ends the process, after `lives` events."""

    def __init__(self, lives: int) -> None:
        super().__init__()
        self.lives = lives

    def append(self, kind: str, /, **data: Any) -> None:
        super().append(kind, **data)
        self.lives -= 1
        if self.lives == 0:
            raise Died


def right_in_full(events: Sequence[Mapping[str, Any]]) -> int:
    """How many verdicts among these would adopt a kernel."""
    return sum(e["kind"] == "verdict" and e["effort"] == "full" and "stage" not in e["verdict"] for e in events)


def through_json(state: SearchState) -> SearchState:
    return SearchState.from_json(json.loads(json.dumps(state.to_json())))


def test_a_run_killed_anywhere_comes_to_the_same_end_and_evaluates_nothing_twice() -> None:
    """At random events, with the last saved state (if any) and the log; winner, lessons and counts are those of a run
    that was left alone, and the evaluations of all its lives add up to those of one. Only what was found right in full is
    evaluated again: no log is believed that."""
    prior = World(number=1).run().experiences
    whole = World(settings=SETTINGS, prior=prior)
    expected = whole.run()
    events = len(list(whole.log.events()))
    for kill in [1, 2, *random.Random(0).sample(range(3, events), 12)]:
        log = DyingLog(kill)
        first = World(settings=SETTINGS, prior=prior, log=log)
        with pytest.raises(Died):
            first.run()
        second = World(settings=SETTINGS, prior=prior, log=log)
        result = second.run(resume=through_json(first.states[-1]) if first.states else None)
        assert expected == result
        asked = Counter(first.evaluator.evaluations + second.evaluator.evaluations)
        again = asked - Counter(whole.evaluator.evaluations)
        assert Counter(whole.evaluator.evaluations) == asked - again
        assert [] == [e for e in again if e[2] != "full"]
        assert again.total() <= right_in_full(list(log.events())[:kill])


def test_a_run_killed_again_and_again_still_comes_to_the_same_end() -> None:
    """Seven events a life."""
    expected = World(settings=SETTINGS).run()
    log, state, lives = DyingLog(7), None, 0
    while True:
        world = World(settings=SETTINGS, log=log)
        try:
            result = world.run(resume=state)
            break
        except Died:
            log.lives, lives = 7, lives + 1
            state = through_json(world.states[-1]) if world.states else state
    assert lives > 5
    assert expected == result


class Whimsical(BuiltinProposer):
    """Answers from a chance of its own, as a service does, and counts what it was asked."""

    def __init__(self) -> None:
        self.whim, self.asked = random.Random(), 0

    def plan(
        self, task: SearchTask, parent: Candidate, experiences: Sequence[Experience], count: int, call: Call
    ) -> Sequence[Plan]:
        self.asked += 1
        return super().plan(task, parent, (), count, replace(call, rng=self.whim))


def test_a_proposer_is_not_asked_again_what_it_has_answered() -> None:
    """Answers that were paid for come from the log, even where asking again would give others."""
    proposer, log, state = Whimsical(), DyingLog(9), None
    for _ in range(8):
        world = World(settings=SETTINGS, log=log, proposer=proposer)
        with pytest.raises(Died):
            world.run(resume=state)
        log.lives, state = 9, through_json(world.states[-1]) if world.states else state
    answered = [event["call"] for event in log.events() if event["kind"] == "plans"]
    assert len(set(answered)) == len(answered) == proposer.asked > 0


def test_a_resumed_run_has_only_what_is_left_of_its_budget() -> None:
    """Seconds and candidates of the earlier life count."""
    log = DyingLog(60)
    first = World(settings=SETTINGS, candidates=40, log=log)
    with pytest.raises(Died):
        first.run()
    second = World(settings=SETTINGS, candidates=40, log=log)
    second.run(resume=first.states[-1])
    quick = [e for e in first.evaluator.evaluations + second.evaluator.evaluations if e[2] == "quick"]
    assert 40 == len(quick)


def test_a_state_survives_json() -> None:
    """Every state of a run reads back equal."""
    world = World(prior=World(number=1).run().experiences)
    world.run()
    assert world.states and all(state == through_json(state) for state in world.states)


def test_a_damaged_or_foreign_state_is_refused() -> None:
    """What is no state is an InvalidRecord, and so is a state of another workload."""
    world = World(candidates=20)
    world.run()
    with pytest.raises(InvalidRecord):
        SearchState.from_json({**world.states[0].to_json(), "beam": None})
    with pytest.raises(InvalidRecord, match="not of this one"):
        World(number=1).run(resume=world.states[0])


@dataclass(kw_only=True)
class Interrupted(SimulatedEvaluator):
    """Somebody presses Ctrl-C during evaluation number `at`."""

    at: int = 30

    def evaluate(self, source: KernelSource, tunables: Mapping[str, int], *, effort: Effort = "quick") -> Verdict:
        if len(self.evaluations) == self.at:
            raise KeyboardInterrupt
        return super().evaluate(source, tunables, effort=effort)


def test_ctrl_c_keeps_the_state_and_can_be_resumed() -> None:
    """It reaches the caller as a KeyboardInterrupt with what there is; nothing unproven is called a winner."""
    expected = World(settings=SETTINGS).run()
    world = World(settings=SETTINGS, made_by=Interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        world.run()
    assert isinstance(caught.value, SearchInterrupted)
    result = caught.value.result
    assert (None, "it was interrupted", 30) == (result.best, result.reason, result.evaluated)
    resumed = World(settings=SETTINGS, log=world.log)
    assert expected == resumed.run(resume=world.states[-1])


def test_ctrl_c_after_the_winner_is_proven_still_gives_the_winner() -> None:
    """A full verdict that is there when Ctrl-C comes is not thrown away."""

    class Late(MemoryLog):
        def append(self, kind: str, /, **data: Any) -> None:
            super().append(kind, **data)
            if kind == "final":
                raise KeyboardInterrupt

    world = World(settings=SETTINGS, log=Late())
    with pytest.raises(SearchInterrupted) as caught:
        world.run()
    assert World(settings=SETTINGS).run().best == caught.value.result.best
