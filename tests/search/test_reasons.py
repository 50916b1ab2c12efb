"""Why a search stopped and why it has no winner: each said once, in words that fit behind "the search stopped because"."""

from __future__ import annotations

import doctest
import logging
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from accelopt_compile import wording
from accelopt_compile.evaluate.advance import _compile
from accelopt_compile.evaluate.sandbox.host import Child, ChildFailed
from accelopt_compile.records import Node, Ref, TensorSpec, Workload
from accelopt_compile.search import SearchSettings
from accelopt_compile.search.stopping import stop_reason
from accelopt_compile.wording import plural, said_once
from tests.search.test_loop import Refusing
from tests.search.worlds import World


def repeated(reason: str) -> list[str]:
    """Clauses of a reason that occur more than once."""
    clauses = [c.strip() for c in re.split(r"[:;()]| because ", reason) if c.strip()]
    return [clause for clause, count in Counter(clauses).items() if count > 1]


def test_no_reason_of_a_search_says_anything_twice() -> None:
    """Without time, without a seed, without a gain, without a chance, or refused at the last: no clause comes back."""
    ends = {
        "no time": World(seconds=0.0),
        "no candidates": World(candidates=0),
        "no seed": World(made_by=partial(Refusing, refused="")),
        "no gain": World(settings=SearchSettings(win_margin=100.0)),
        "no chance": World(start=0.05),
        "refused in full": World(made_by=partial(Refusing, refused="", in_full=True)),
        "a winner": World(),
    }
    reasons = {name: world.run().reason for name, world in ends.items()}
    assert {} == {name: reason for name, reason in reasons.items() if repeated(reason)}
    assert "no winner, because the time budget is spent before the seed was evaluated" == reasons["no time"]
    assert "no winner, because the candidate budget is spent before the seed was evaluated" == reasons["no candidates"]


def test_a_search_without_time_for_its_first_round_says_nothing_of_the_baseline() -> None:
    """It was cut short. One that tried all it had, or found a winner, or saw no hope, was not."""
    assert World(candidates=3, start=0.9).run().cut_short
    assert not World(settings=SearchSettings(win_margin=100.0)).run().cut_short
    assert not World().run().cut_short
    assert not World(start=0.05).run().cut_short


def test_every_reason_to_stop_is_a_clause() -> None:
    """It has a verb and agrees with its count, for one round and for several."""
    best = World().run().candidates[0]
    slow = replace(best, verdict=replace(best.verdict, timing=replace(best.verdict.timing, speedup=0.1)))
    at_once = SearchSettings(rounds=9, patience=1, hopeless_after=1)
    many = SearchSettings(rounds=2, patience=2, hopeless_after=2)
    about: dict[str, Any] = {"roofline_us": 0.0, "spent": None}
    found = [
        stop_reason(replace(at_once, rounds=1), best=best, rounds_done=1, flat_rounds=0, **about),
        stop_reason(many, best=best, rounds_done=2, flat_rounds=0, **about),
        stop_reason(at_once, best=slow, rounds_done=1, flat_rounds=0, **about),
        stop_reason(at_once, best=best, rounds_done=0, flat_rounds=1, **about),
        stop_reason(replace(many, rounds=9), best=best, rounds_done=0, flat_rounds=2, **about),
    ]
    assert [
        "1 round is done, the most it may take",
        "2 rounds are done, the most it may take",
        "the best kernel still runs at 0.10x the baseline after 1 round",
        "1 round brought no improvement",
        "2 rounds brought no improvement",
    ] == found


@pytest.mark.parametrize(
    ("kernel_us", "baseline_us", "stops"),
    [(100.0, 200.0, True), (90.0, 200.0, False), (100.0, 80.0, False), (200.0, 300.0, False)],
    ids=["at the roofline", "beyond it", "the baseline is beyond it", "far from it"],
)
def test_a_search_stops_at_a_roofline_that_nothing_broke(kernel_us: float, baseline_us: float, stops: bool) -> None:
    """A least time that the kernel or its baseline is below was measured wrongly, and is no reason to stop."""
    best = World().run().candidates[0]
    timing = replace(best.verdict.timing, kernel_us=kernel_us, baselines_us={"eager": baseline_us})
    at = replace(best, verdict=replace(best.verdict, timing=timing))
    reason = stop_reason(SearchSettings(rounds=9), best=at, roofline_us=100.0, rounds_done=0, flat_rounds=0, spent=None)
    assert stops == (reason == "the best kernel reaches 100% of the roofline"), reason


@pytest.mark.parametrize(
    ("reason", "once"),
    [
        ("a: a: b", "a: b"),
        ("a: b: a: b", "a: b"),
        ("it failed: KeyError: 'x'", "it failed: KeyError: 'x'"),
        ("one\n\n  two  three\n", "one; two three"),
        ("because x (x)", "because x"),
        ("because x (y)", "because x (y)"),
        ("a; a", "a"),
        ("", ""),
    ],
)
def test_what_errors_wrap_is_said_once_and_in_one_line(reason: str, once: str) -> None:
    """A clause that was said is not said again; nothing else is lost."""
    assert once == said_once(reason)


def test_the_examples_of_the_wording_hold() -> None:
    """Counts agree with their nouns."""
    assert 0 == doctest.testmod(wording).failed
    assert ["0 files", "1 file", "2 files"] == [plural(n, "file") for n in range(3)]


class Dead:
    """A child that died of its work."""

    alive = True

    def request(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        raise ChildFailed("its process crashed (SIGSEGV)", timed_out=False, output="")

    def close(self) -> None:
        self.alive = False


def test_a_baseline_that_fails_in_advance_names_its_region(caplog: pytest.LogCaptureFixture) -> None:
    """By its operators and the start of its digest, as the region's own line in the log does."""
    spec = TensorSpec(dtype="f32", shape=(8, 4), strides=(4, 1))
    node = Node(op="aten.relu.default", args=(Ref("i", 0),), outputs=(spec,))
    workload = Workload(inputs=(spec,), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(spec,), symbols=())
    caplog.set_level(logging.INFO)
    assert 0 == _compile(cast(Child, Dead()), workload, {}, {"threads": 1}, seconds=1.0)
    region = f"relu {workload.digest[:8]}"
    said = f"the baseline of region {region} is compiled when its search begins, not in advance: its process crashed (SIGSEGV)"
    assert [said] == [record.getMessage() for record in caplog.records]
