"""A run that is killed at any moment: the next process ends with the same winner, and pays for no answer twice that it has."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest

from accelopt_cache.kernel_store import Store
from accelopt_compile.llm.client import Reply, Request
from accelopt_compile.llm.recording import RecordingClient, recorded_calls
from accelopt_compile.llm.scripted import ScriptedClient
from accelopt_compile.records import Verdict, canonical_json, sha256_text
from accelopt_compile.resuming import Place, kept
from accelopt_compile.search import SearchResult, SearchSettings
from accelopt_compile.search.agents import AgentProposer
from accelopt_compile.search.simulated import SimulatedEvaluator
from accelopt_compile.search.simulated_model import SimulatedModel
from accelopt_compile.search.state import candidate_json
from tests.report.runs import about
from tests.search.test_agents import MODELS
from tests.search.worlds import World

KILLS = 20
SETTINGS = SearchSettings(rounds=3, patience=0, hopeless_after=0)
FORK = multiprocessing.get_context("fork")


class Slow(SimulatedEvaluator):
    """Takes some real time, so that there is a moment to die in."""

    def evaluate(self, *given: object, **named: object) -> Verdict:
        time.sleep(0.004)
        return super().evaluate(*given, **named)  # type: ignore[arg-type]


def work(root: Path, paid: Path, session: int) -> None:
    """One process: begins a run, or goes on with the one that is there. Every answer that is paid for is written down."""

    def answer(request: Request) -> Reply:
        time.sleep(0.01)
        with paid.open("a") as file:
            file.write(json.dumps([session, request.key]) + "\n")
        return SimulatedModel(faults=0.1)(request)

    store = Store.open(root)
    with kept(store, about(World(settings=SETTINGS))) as place:
        result = searched(place, ScriptedClient(answer))
        place.end({"outcome": "winner", "winner": name_of(result), "evaluated": result.evaluated})


def searched(place: Place, client: ScriptedClient) -> SearchResult:
    assert place.calls is not None
    world = World(
        proposer=AgentProposer(RecordingClient(client, place.calls), models=MODELS),
        settings=SETTINGS,
        log=place.log,
        made_by=Slow,
    )
    world.states = Saving(place)
    return world.run(resume=place.resume)


class Saving(list):  # type: ignore[type-arg]
    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place

    def append(self, state: object) -> None:
        self.place.save(state)  # type: ignore[arg-type]


def name_of(result: SearchResult) -> str:
    assert result.best is not None
    return sha256_text(canonical_json(json.loads(json.dumps(candidate_json(result.best)))))


def run_once(root: Path, paid: Path, session: int, *, kill_after_s: float | None = None) -> float:
    """Seconds that a process worked, until its end or its death."""
    began = time.monotonic()
    process = FORK.Process(target=work, args=(root, paid, session))
    process.start()
    assert process.pid is not None
    if kill_after_s is not None:
        process.join(kill_after_s)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    assert kill_after_s is not None or 0 == process.exitcode
    return time.monotonic() - began


def answers(root: Path) -> set[str]:
    """Keys of the answers that the store's only run has recorded."""
    paths = [run.calls_path for run in Store.open(root).runs.list() if run.calls_path.exists()]
    return {call.key for path in paths for call in recorded_calls(path)}


def asked(paid: Path, session: int) -> list[str]:
    lines = [json.loads(line) for line in paid.read_text().splitlines()] if paid.exists() else []
    return [key for number, key in lines if number == session]


@pytest.mark.thorough
def test_a_run_killed_at_twenty_moments_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """Same winner after each kill; no recorded answer is paid for again; one run in the store."""
    whole = run_once(tmp_path / "whole", tmp_path / "whole.paid", 0)
    expected = only_result(tmp_path / "whole")["winner"]
    rng, in_the_middle = random.Random(4), 0
    for kill in range(KILLS):
        root, paid = tmp_path / f"store{kill}", tmp_path / f"paid{kill}"
        run_once(root, paid, 1, kill_after_s=rng.uniform(0.02, 0.98) * whole)
        known = answers(root)
        in_the_middle += bool(known)
        if not any(run.result() for run in Store.open(root).runs.list()):  # it was quicker than the kill
            run_once(root, paid, 2)
        assert expected == only_result(root)["winner"]
        assert set() == known & set(asked(paid, 2))
    assert in_the_middle >= KILLS // 2


def only_result(root: Path) -> dict[str, object]:
    (run,) = Store.open(root).runs.list()
    result = run.result()
    assert result is not None
    return result
