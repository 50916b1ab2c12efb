"""Runs whose files were damaged or edited: started anew, never believed, never a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from accelopt_cache.kernel_store import Store
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.events import Log, MemoryLog
from accelopt_compile.records import KernelSource, Rejected, Stage, Verdict
from accelopt_compile.resuming import events_of, kept
from accelopt_compile.search import SearchSettings, SearchState
from accelopt_compile.search.simulated import SimulatedEvaluator
from accelopt_compile.search.trials import Effort, trial_key
from tests.search.worlds import World

SETTINGS = SearchSettings(patience=2)
WORKLOAD, TARGET = "ab" * 32, "cpp-x86_64"
ABOUT: dict[str, Any] = {"environment": {"threads": "1"}, "settings": {"rounds": 3}}
RUN = {"workload": WORKLOAD, "target": TARGET, "proposer": "llm", "binding": {}, "models": {}, **ABOUT}

REJECTED = {"stage": "build", "reason": "it does not compile", "diagnosis": ""}
TIMING = {"kernel_us": 1.0, "baselines_us": {"eager": 2.0}, "speedup": 2.0, "low": 1.9, "high": 2.1, "blocks": 5, "threads": 1}
ACCEPTED = {"errors": {"worst_share": 0.1, "cases": 1}, "timing": TIMING, "features": {}}
VERDICT: dict[str, Any] = {"kind": "verdict", "search": "s", "key": "a", "seconds": 1.0, "verdict": REJECTED}
CALL: dict[str, Any] = {"search": "s", "call": "0"}

DAMAGE: dict[str, dict[str, Any]] = {
    "verdict without search": {name: value for name, value in VERDICT.items() if name != "search"},
    "verdict without key": {name: value for name, value in VERDICT.items() if name != "key"},
    "verdict null": {**VERDICT, "verdict": None},
    "verdict of no stage": {**VERDICT, "verdict": {**REJECTED, "stage": "x"}},
    "seconds a text": {**VERDICT, "seconds": "1"},
    "seconds huge": {**VERDICT, "seconds": 10**400},
    "timing a text": {**VERDICT, "verdict": {**ACCEPTED, "timing": "x"}},
    "speedup a text": {**VERDICT, "verdict": {**ACCEPTED, "timing": {**TIMING, "speedup": "9"}}},
    "speedup infinite": {**VERDICT, "verdict": {**ACCEPTED, "timing": {**TIMING, "speedup": float("inf")}}},
    "timed against nothing": {**VERDICT, "verdict": {**ACCEPTED, "timing": {**TIMING, "baselines_us": {}}}},
    "plans without call": {"kind": "plans", "search": "s", "reply": []},
    "attempts of numbers": {"kind": "attempts", **CALL, "reply": [5]},
    "fix of nothing": {"kind": "fix", **CALL, "reply": {}},
    "lesson a text": {"kind": "lesson", **CALL, "reply": "x"},
    "fill of no round": {"kind": "fill", "search": "s", "round": "x", "parents": 1},
}
"""Events that are JSON and yet none that a search wrote."""


def put(log: Log, event: Mapping[str, Any]) -> None:
    log.append(event["kind"], **{name: value for name, value in event.items() if name != "kind"})


@pytest.mark.parametrize("damage", DAMAGE)
def test_events_that_no_search_wrote_start_a_search_anew(tmp_path: Path, damage: str) -> None:
    """Up front, before anything of the log is used."""
    store = Store.open(tmp_path)
    log, _ = events_of(store, WORKLOAD, TARGET, ABOUT)
    put(log, VERDICT)
    assert events_of(store, WORKLOAD, TARGET, ABOUT)[1]
    put(log, DAMAGE[damage])
    again, continued = events_of(store, WORKLOAD, TARGET, ABOUT)
    assert (False, ["begun"]) == (continued, [event["kind"] for event in again.events()])


@pytest.mark.parametrize("damage", DAMAGE)
def test_events_that_no_search_wrote_start_a_run_anew(tmp_path: Path, damage: str) -> None:
    """Its state goes with the events that led to it."""
    store = Store.open(tmp_path)
    with kept(store, RUN) as place:
        assert place.run is not None
        put(place.log, DAMAGE[damage])
        place.run.save_state({"round": 1})
        first = place.run.id
    with kept(store, RUN) as place:
        assert place.run is not None
        kinds = [event["kind"] for event in place.log.events()]
        assert (first, None, None, ["begun"]) == (place.run.id, place.resume, place.run.load_state(), kinds)


def edits(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """States that no search saves, by what is wrong with them."""
    *others, last = state["candidates"]
    timed = {**last["verdict"], "timing": {**last["verdict"]["timing"], "speedup": "9"}}
    numbers = ("seed", "round", "evaluated", "duplicates", "flat_rounds", "seconds")
    return {
        "a beam too far": {"beam": [len(state["candidates"])]},
        "a beam before the first": {"beam": [-1]},
        "a huge beam": {"beam": [10**30]},
        "no candidates": {"candidates": [], "beam": []},
        "shuffled candidates": {"candidates": state["candidates"][::-1]},
        "a parent to come": {"candidates": [*others, {**last, "parent": last["id"]}]},
        "a speedup in words": {"candidates": [*others, {**last, "verdict": timed}]},
        "infinite tunables": {"candidates": [*others, {**last, "tunables": {"A": float("inf")}}]},
        "fewer than none rejected": {"rejected": {"build": -1}},
        "seconds huge": {"seconds": 10**400},
        **{f"{name} infinite": {name: float("inf")} for name in numbers},
        **{f"{name} no number": {name: float("nan")} for name in numbers},
        **{f"{name} negative": {name: -5} for name in numbers if name != "seed"},
    }


def test_an_edited_state_is_refused() -> None:
    """Whatever in it is out of range, out of order or no number: InvalidRecord, which starts a search anew."""
    world = World(candidates=20)
    world.run()
    state = world.states[-1].to_json()
    believed = []
    for name, edit in edits(state).items():
        try:
            SearchState.from_json({**state, **edit})
            believed.append(name)
        except InvalidRecord:
            continue
    assert [] == believed


@dataclass(kw_only=True)
class Refusing(SimulatedEvaluator):
    """Refuses the kernel that nobody rendered."""

    def evaluate(self, source: KernelSource, tunables: Mapping[str, int], *, effort: Effort = "quick") -> Verdict:
        if source.text != EVIL.text:
            return super().evaluate(source, tunables, effort=effort)
        self.evaluations.append((source.text, (), effort))
        return Rejected(stage=Stage.BUILD, reason="it defines no kernel")


EVIL = KernelSource(language="cpp", text="int evil;\n", origin="llm")


def test_a_forged_full_verdict_adopts_no_kernel() -> None:
    """A kernel written into the state, with its full verdict written into the log, is evaluated all the same."""
    log = MemoryLog()
    world = World(settings=SETTINGS, log=log)
    world.run()
    state = world.states[-1].to_json()
    verdict = {**state["candidates"][-1]["verdict"]}
    verdict["timing"] = {**verdict["timing"], "speedup": 99.0, "low": 98.0, "high": 100.0, "kernel_us": 1e5}
    forged = {**state["candidates"][-1], "source": EVIL.to_json(), "tunables": {}, "verdict": verdict}
    state["candidates"].append({**forged, "id": len(state["candidates"]), "parent": 0})
    name = next(e["search"] for e in log.events() if e["kind"] == "verdict")
    log.append("verdict", search=name, key=trial_key(EVIL, {}, "full"), seconds=1.0, verdict=verdict, effort="full")
    again = World(settings=SETTINGS, log=log, made_by=Refusing)
    result = again.run(resume=SearchState.from_json(state))
    assert (EVIL.text, (), "full") in again.evaluator.evaluations
    assert result.best is not None and EVIL != result.best.source
