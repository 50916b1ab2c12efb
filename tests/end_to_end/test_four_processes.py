"""Four real processes on one store: one search per workload, nobody waits unless told to, and a killed one loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accelopt_backends.base import Ready
from accelopt_backends.cpp import CppBackend
from accelopt_cache.kernel_store import Store
from accelopt_compile.events import read_events

pytestmark = pytest.mark.timeout(240)

SEARCH = {"mode": "tune", "budget_s": 150, "rounds": 1, "plans_per_candidate": 1, "threads": 1}


class Worker:
    """One process of `worker.py`."""

    def __init__(self, caches: Path) -> None:
        environment = {
            **os.environ,
            "ACCELOPT_CACHE_DIR": str(caches / "accelopt"),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "OMP_NUM_THREADS": "1",
        }
        program = [sys.executable, str(Path(__file__).parent / "worker.py")]
        self.process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def tell(self, store: Path, **options: Any) -> None:
        """Have the model compiled on this store; the answer is read later."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({**SEARCH, "cache_dir": str(store), **options}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process ended with {self.process.wait()}"
        found: dict[str, Any] = json.loads(line)
        return found

    def compiled(self, store: Path, **options: Any) -> dict[str, Any]:
        self.tell(store, **options)
        return self.answer()


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Worker]]:
    """Four processes with torch imported, for all tests here: starting them is most of the time."""
    caches = tmp_path_factory.mktemp("caches")
    workers = [Worker(caches) for _ in range(4)]
    for worker in workers:
        worker.answer()
    yield workers
    for worker in workers:
        worker.process.kill()
        worker.process.wait()


def regions(answer: dict[str, Any]) -> list[dict[str, Any]]:
    assert [] == [graph["problem"] for graph in answer["graphs"] if graph["problem"]] == answer["warned"]
    return [region for graph in answer["graphs"] for region in graph["regions"]]


def searched(answer: dict[str, Any]) -> list[str]:
    """The workloads that a process searched."""
    return [region["workload"] for region in regions(answer) if region["seconds"] > 0]


def planning_s(answer: dict[str, Any]) -> float:
    """How long our layer kept a compile: capture, looking up, and searches or waiting for them."""
    return float(sum(graph["seconds"] for graph in answer["graphs"]))


def target() -> str:
    ready = CppBackend().probe()
    assert isinstance(ready, Ready)
    return ready.target


def test_one_searches_the_others_do_not_wait_and_all_launch_the_same(four: list[Worker], tmp_path: Path) -> None:
    """All four compile at once. Each workload is searched by one process; who comes second has Inductor's code, says whose
    search it is, and is not kept by it. The next compile of all four calls the same kernels."""
    for worker in four:
        worker.tell(tmp_path)
    first = [worker.answer() for worker in four]
    workloads = {region["workload"] for answer in first for region in regions(answer)}
    assert 2 == len(workloads)
    assert dict.fromkeys(workloads, 1) == Counter(digest for answer in first for digest in searched(answer))
    store = Store.open(tmp_path)
    assert [1, 1] == [len(store.records(digest, target())) for digest in workloads]

    pids = {str(worker.process.pid) for worker in four}
    others = [answer for answer in first if not searched(answer)]
    assert 2 <= len(others)
    assert min(map(planning_s, others)) < min(planning_s(answer) for answer in first if searched(answer))
    for answer in others:
        assert {"MISS"} == {region["outcome"] for region in regions(answer)}
        assert all("is tuning this region" in region["reason"] for region in regions(answer))
        assert all(any(pid in region["reason"] for pid in pids) for region in regions(answer))
        assert [] == answer["called"]

    for worker in four:
        worker.tell(tmp_path, mode="apply")
    again = [worker.answer() for worker in four]
    assert [{"HIT"}] * 4 == [{region["outcome"] for region in regions(answer)} for answer in again]
    assert [again[0]["called"]] * 4 == [answer["called"] for answer in again]
    assert 2 == len(again[0]["called"])


@pytest.mark.thorough
def test_with_wait_all_come_back_with_the_winners(four: list[Worker], tmp_path: Path) -> None:
    """With `wait` nobody searches twice either, and the first compile of each process already calls the kernels."""
    for worker in four[:2]:
        worker.tell(tmp_path, wait=True)
    answers = [worker.answer() for worker in four[:2]]
    assert {1} == set(Counter(digest for answer in answers for digest in searched(answer)).values())
    assert {"TUNED", "HIT"} == {region["outcome"] for answer in answers for region in regions(answer)}
    assert answers[0]["called"] == answers[1]["called"]
    assert 2 == len(answers[0]["called"])


@pytest.mark.thorough
def test_killed_while_searching(four: list[Worker], tmp_path: Path) -> None:
    """SIGKILL after two verdicts: the store is whole, the claim is free, and the next process appends to the search: the
    first verdicts stay as they are and no kernel is evaluated twice."""
    victim, heir = four[3], four[2]
    victim.tell(tmp_path)
    log = _followed(tmp_path, lambda events: len(verdicts(events)) >= 2)
    victim.process.send_signal(signal.SIGKILL)
    victim.process.wait()
    before = read_events(log)
    digest = log.parent.name
    store = Store.open(tmp_path)
    assert store.holder(digest, target()) is None
    assert [] == store.files.names("v1/quarantine")
    assert () == tuple(store.records(digest, target()))

    heir.tell(tmp_path)
    seen = before
    while log.exists() and heir.process.poll() is None:
        seen = max(seen, _read(log), key=len)
        time.sleep(0.01)
    answer = heir.answer()
    assert before == seen[: len(before)]
    assert len(before) < len(seen)
    assert {1} == set(Counter(event["key"] for event in verdicts(seen)).values())
    assert digest in searched(answer)
    (record,) = store.records(digest, target())
    assert record.provenance["evaluated"] >= len(verdicts(before))
    assert [] == store.files.names("v1/quarantine")
    assert store.load_progress(digest, target()) is None


def verdicts(events: list[Any]) -> list[Any]:
    return [event for event in events if event["kind"] == "verdict"]


def _read(log: Path) -> list[Any]:
    try:
        return list(read_events(log))
    except FileNotFoundError:
        return []


def _followed(root: Path, enough: Any) -> Path:
    """The events of the first search under `root`, once there are enough."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for log in root.glob("v1/runs/progress/*/*.jsonl"):
            if enough(_read(log)):
                return log
        time.sleep(0.01)
    raise AssertionError("no search got that far")
