"""What a killed search leaves on disk, and when the next one goes on with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accelopt_cache.kernel_store import Store
from accelopt_compile.events import Log
from accelopt_compile.resuming import events_of, fleeting, state_of
from tests.search.worlds import World, experience

WORKLOAD, TARGET = "ab" * 32, "cpp-x86_64"
ABOUT: dict[str, Any] = {"environment": {"threads": "1"}, "settings": {"rounds": 3}}

VERDICT: dict[str, Any] = {
    "search": "s",
    "seconds": 1.0,
    "verdict": {"stage": "build", "reason": "it does not compile", "diagnosis": ""},
}


def opened(root: Path, about: dict[str, Any] = ABOUT) -> tuple[Log, bool]:
    return events_of(Store.open(root), WORKLOAD, TARGET, about)


def kinds(log: Log) -> list[str]:
    return [event["kind"] for event in log.events()]


def test_next_process_has_every_event(tmp_path: Path) -> None:
    """Events are on disk as they happen, and the next process appends to them; a line that was being written is cut off."""
    log, continued = opened(tmp_path)
    assert not continued
    log.append("verdict", key="a", **VERDICT)
    (file,) = tmp_path.glob("v1/runs/progress/*/*.jsonl")
    with file.open("a") as half:
        half.write('{"kind": "verd')
    again, continued = opened(tmp_path)
    assert continued
    again.append("verdict", key="b", **VERDICT)
    assert ["begun", "verdict", "verdict"] == kinds(again)


@pytest.mark.parametrize("other", [{"environment": {"threads": "2"}}, {"settings": {"rounds": 4}}])
def test_other_environment_or_settings_start_anew(tmp_path: Path, other: dict[str, Any]) -> None:
    """Times taken with other threads say nothing, and other settings ask for other plans."""
    opened(tmp_path)[0].append("verdict", key="a")
    log, continued = opened(tmp_path, ABOUT | other)
    assert not continued
    assert ["begun"] == kinds(log)


def test_damaged_events_start_anew(tmp_path: Path) -> None:
    """A file that is not ours any more is replaced, without an error."""
    opened(tmp_path)
    (file,) = tmp_path.glob("v1/runs/progress/*/*.jsonl")
    file.write_bytes(b"\xff\xfe not a log\n")
    log, continued = opened(tmp_path)
    assert not continued
    assert ["begun"] == kinds(log)


def test_unusable_root_keeps_events_in_memory(tmp_path: Path) -> None:
    """Where nothing can be written a search works all the same."""
    (tmp_path / "file").write_text("")
    log, continued = opened(tmp_path / "file")
    log.append("verdict", key="a")
    assert not continued
    assert ["verdict"] == kinds(log)


def test_a_state_too_large_to_keep_ends_no_search(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is said, and what was saved before stays."""
    store, world = Store.open(tmp_path), World()
    world.run()
    state = world.states[-1]
    save = fleeting(store, WORKLOAD, TARGET, {}).save
    save(state)
    before = state_of(store, WORKLOAD, TARGET)
    save(replace(state, prior=tuple(experience(slow="x" * 100_000, fast=str(i)) for i in range(100))))
    assert "the state of a search is not kept" in caplog.text
    assert before == state_of(store, WORKLOAD, TARGET) is not None


@pytest.mark.parametrize(
    ("outcome", "goes_on"), [("interrupted", True), ("winner", False), ("baseline", False), ("failed", False)]
)
def test_only_an_interrupted_search_is_gone_on_with(tmp_path: Path, outcome: str, goes_on: bool) -> None:
    """Ctrl-C loses no more than a kill does: events and state stay for the next process."""
    world = World()
    world.run()
    place = fleeting(Store.open(tmp_path), WORKLOAD, TARGET, ABOUT)
    place.log.append("verdict", key="a", **VERDICT)
    place.save(world.states[0])
    place.end({"outcome": outcome})
    again = fleeting(Store.open(tmp_path), WORKLOAD, TARGET, ABOUT)
    assert goes_on == (again.resume is not None) == ("verdict" in kinds(again.log))


def test_what_an_earlier_compile_spent_is_not_held_against_the_next(tmp_path: Path) -> None:
    """Each compile has a budget of its own; a search that a small one ends gets further with each."""
    world = World()
    world.run()
    place = fleeting(Store.open(tmp_path), WORKLOAD, TARGET, ABOUT)
    assert 0 < world.states[0].seconds
    place.save(world.states[0])
    place.end({"outcome": "interrupted"})
    again = fleeting(Store.open(tmp_path), WORKLOAD, TARGET, ABOUT).resume
    assert replace(world.states[0], seconds=0.0) == again


def test_search_that_ended_leaves_nothing(tmp_path: Path) -> None:
    """Clearing the progress takes the events along."""
    store = Store.open(tmp_path)
    log, _ = opened(tmp_path)
    log.append("verdict", key="a")
    store.save_progress(WORKLOAD, TARGET, {"round": 1})
    store.clear_progress(WORKLOAD, TARGET)
    assert [] == list(tmp_path.glob("v1/runs/progress/*/*"))
    assert state_of(store, WORKLOAD, TARGET) is None
