"""What a report knows of a run, from real searches in the simulated world."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accelopt_cache.kernel_store import Store
from accelopt_cache.run_store import Run
from accelopt_compile.errors import DamagedEntry
from accelopt_compile.report.lineage import Step
from accelopt_compile.report.model import Report, report_of
from accelopt_compile.report.reading import read_run
from accelopt_compile.report.summary import summarize
from accelopt_compile.search import SearchState
from tests.report.runs import killed, large, searched, small


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of some 500 kernels with a model's costs; nobody writes to it."""
    return searched(Store.open(tmp_path_factory.mktemp("model") / "store"), large())


def reported(run: Run, **given: Any) -> Report:
    return report_of(read_run(run), **given)


def test_the_winner_is_that_of_the_search(store: Store) -> None:
    """With the timing of its full evaluation, which is the result's."""
    run = searched(store, small())
    report, result = reported(run, operators="exp"), run.result()
    assert result is not None and report.best is not None
    assert ("winner", True, result["speedup"]) == (report.outcome, report.best.confirmed, report.best.timing.speedup)
    assert ("exp", result["reason"], result["evaluated"]) == (report.operators, report.reason, report.evaluated)
    assert result["rejected"] == report.rejected
    assert 100.0 / 15.0 == pytest.approx(report.roofline)


def test_trials_add_up(big: Run) -> None:
    """Every evaluation is one dot, in one stage and in one round, and the best so far only rises."""
    report = reported(big)
    assert report.evaluated == len(report.dots) == sum(s.count for s in report.stages) == sum(r.trials for r in report.rounds)
    assert report.evaluated > 400
    bests = [dot.best for dot in report.dots if dot.best is not None]
    assert sorted(bests) == bests
    assert sorted(dot.seconds for dot in report.dots) == [dot.seconds for dot in report.dots]
    assert {"seed", "model", "final", "wrong", "not built"} <= {dot.group for dot in report.dots}


def test_every_candidate_has_its_place_in_the_tree_once(big: Run) -> None:
    """Below the candidate it came from, with the plan that led to it, and closed where it was opened."""
    state = SearchState.from_json(big.load_state())
    steps = reported(big).steps
    placed = [v.id for step in steps for v in step.variants if v.id is not None]
    assert list(range(len(state.candidates))) == sorted(placed)
    open_steps: list[Step] = []
    for step in steps:
        assert step.depth == len(open_steps)
        if open_steps:
            assert step.parent in {v.id for v in open_steps[-1].variants}
        if step.children:
            open_steps.append(step)
        for _ in range(step.close):
            open_steps.pop()
    assert [] == open_steps


def test_the_way_to_the_winner_comes_first(store: Store) -> None:
    """From the seed down, each step with the difference from its parent or the reason why there is none."""
    report = reported(searched(store, small()))
    way = [step for step in report.steps if step.on_way]
    assert way == list(report.steps[: len(way)])
    assert report.best is not None and report.best.id in {v.id for v in way[-1].variants}
    assert all(step.diff or step.no_diff for step in way[1:])
    changed = next(step for step in way if step.diff)
    assert changed.diff is not None and any(line.startswith("+") for line in changed.diff)


def test_rejected_sources_hang_below_their_parent(big: Run) -> None:
    """With stage and reason, and no variant that was accepted."""
    report = reported(big)
    fallen = [step for step in report.steps if step.rejections and not step.variants]
    assert fallen and all(step.parent is not None for step in fallen)
    assert {"numerics", "build"} == {r.split(":")[0] for step in fallen for r in step.rejections}


def test_lessons_used_and_made_are_found(big: Run) -> None:
    """Those that a planner had are with the plans it made, those that were drawn with the kernel they are drawn from."""
    report, state = reported(big), SearchState.from_json(big.load_state())
    assert {e.lesson for e in state.gained} <= set(report.lessons)
    assert any(lesson.startswith("Best of a search on norm") for lesson in report.lessons)
    assert any(step.used for step in report.steps) and any(step.made for step in report.steps)
    assert {lesson for step in report.steps for lesson in (*step.used, *step.made)} <= set(report.lessons)


def test_costs_are_those_of_the_calls(big: Run) -> None:
    """By role, and so that rounds and dots agree with them."""
    report = reported(big)
    calls = len(report.calls)
    assert (calls, calls * 1200) == (sum(c.calls for c in report.costs), report.tokens)
    assert pytest.approx(calls * 0.002) == report.usd == pytest.approx(sum(r.usd for r in report.rounds))
    fixer = next(c for c in report.costs if c.role == "fixer")
    assert (fixer.calls, 600 * fixer.calls) == (fixer.failed, fixer.cached)
    assert 0.0 < report.dots[-1].usd <= report.usd


def test_a_price_that_nobody_knows_is_not_zero(store: Store) -> None:
    """Calls without a price are counted, and the report does not claim one."""
    report = reported(searched(store, large(usd=None)))
    assert (False, len(report.calls)) == (report.priced, report.unpriced)


def test_a_killed_run_is_unfinished_and_shows_what_it_has(store: Store) -> None:
    """Kernels since the last saved state are dots and steps too, the torn line at the end is not."""
    run = killed(store, small(), after=34)
    with run.events_path.open("a") as file:
        file.write('{"kind": "verd')
    report = reported(run)
    assert ("unfinished", 34) == (report.outcome, report.evaluated)
    assert report.best is not None and not report.best.confirmed
    assert sum(len(step.variants) for step in report.steps) > len(SearchState.from_json(run.load_state()).candidates)
    assert ("unfinished", 34) == (summarize(run).outcome, summarize(run).evaluated)


def test_a_run_killed_before_its_first_state_has_no_tree(store: Store) -> None:
    """And still its trials."""
    report = reported(killed(store, small(), after=1))
    assert (1, None, ()) == (report.evaluated, report.best, report.steps)
    assert () == reported(empty(store)).dots


def empty(store: Store) -> Run:
    world = small()
    run = store.runs.create({**searched(store, world).about, "name": "nothing"})
    assert run is not None
    return run


def test_time_between_two_processes_is_nobodys(store: Store) -> None:
    """A run gone on with an hour later has worked as long as one that was never killed."""
    whole = reported(searched(store, small()))
    run = killed(store, small(), after=34)
    world = small()
    world.clock.advance(3600.0 + 30.0)
    searched(store, world, run=run, resume=SearchState.from_json(run.load_state()))
    again = reported(run)
    assert (whole.evaluated, whole.outcome) == (again.evaluated, again.outcome)
    assert again.seconds < whole.seconds + 60.0


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "verdict"},
        {"kind": "plans", "call": "0/0", "reply": 5, "parent": 0},
        {"kind": "round", "round": 0, "best": 0, "speedup": 1e999},
        {"kind": "round", "round": 0, "best": 0, "speedup": 1.0, "at_s": 1e300},
        {"kind": "stop", "reason": "r", "winner": "x"},
        [],
    ],
)
def test_a_damaged_log_names_file_and_line(store: Store, line: Any) -> None:
    """A report never guesses; a reader learns which line to look at."""
    run = searched(store, small())
    lines = run.events_path.read_text().splitlines()
    lines[4] = json.dumps({"seq": 4, "at_s": 1.0, **line} if isinstance(line, dict) else line)
    run.events_path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DamagedEntry, match=r"events\.jsonl: line 5"):
        read_run(run)


@pytest.mark.parametrize("change", [{"id": 7}, {"parent": 2}, {"parent": -1}])
def test_a_state_whose_candidates_are_out_of_order_is_refused(store: Store, change: dict[str, int]) -> None:
    """A parent comes before its child, so that following parents ends."""
    run = searched(store, small())
    state = run.load_state()
    assert state is not None
    state["candidates"][2] |= change
    run.save_state(state)
    with pytest.raises(DamagedEntry, match=r"state\.json.*candidate"):
        read_run(run)


def test_a_round_that_was_replayed_is_one_round(store: Store) -> None:
    """A process that dies between logging a round and saving its state leaves the next one to log it again."""
    run = searched(store, small())
    rounds = [r.name for r in reported(run).rounds]
    lines = run.events_path.read_text().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if '"kind":"round"' in line and '"round":2' in line)
    run.events_path.write_text("".join([*lines[: place + 1], lines[place], *lines[place + 1 :]]))
    assert ["open", "1", "2"] == rounds[:3] and rounds == [r.name for r in reported(run).rounds]


def test_answers_without_a_kernel_are_counted(store: Store) -> None:
    """They had no verdict, and are told apart by their reasons."""
    run = searched(store, small())
    with run.events_path.open("a") as file:
        for reason in ("no code block", "two code blocks", "no code block"):
            reply = [{"no_source": reason}]
            file.write(json.dumps({"seq": 9, "at_s": 99.0, "kind": "attempts", "call": "0/0/0", "reply": reply}) + "\n")
    assert (("no code block", 2), ("two code blocks", 1)) == reported(run).unwritten


def test_unknown_events_and_numbers_of_nobody_are_left_out(store: Store) -> None:
    """Events of a later version, and a winner or a parent that no state has, change nothing."""
    run = searched(store, small())
    files = read_run(run)
    with run.events_path.open("a") as file:
        file.write('{"seq": 9, "at_s": 9.0, "kind": "new"}\n')
        file.write('{"seq": 9, "at_s": 9.0, "kind": "plans", "call": "x", "parent": -1, "reply": []}\n')
        file.write('{"seq": 9, "at_s": 9.0, "kind": "stop", "reason": "r", "winner": 1000000}\n')
    assert report_of(files).evaluated == reported(run).evaluated
    assert replace(read_run(run), events=()).state is not None
