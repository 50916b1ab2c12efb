"""A worker that dies, hangs or meets a device fault costs one case, and the next one runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.gpu_process import Worker

HERE = Path(__file__).parent


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker([sys.executable, str(HERE / "dying_worker.py")], HERE)
    yield made
    made.end()


def test_a_worker_answers_and_stays(worker: Worker) -> None:
    first, again = (worker.ask({"op": "answer"}, 60) for _ in range(2))
    assert first["ok"]
    assert first["pid"] == again["pid"]


def test_a_death_is_the_answer_and_the_next_case_runs(worker: Worker) -> None:
    found = worker.ask({"op": "die"}, 60)
    assert not found["ok"]
    assert "ended with 3: an illegal memory access was encountered" in found["detail"]
    assert worker.ask({"op": "answer"}, 60)["ok"]


def test_a_hang_is_ended_and_the_next_case_runs(worker: Worker) -> None:
    worker.ask({"op": "answer"}, 60)
    found = worker.ask({"op": "hang"}, 0.5)
    assert "no answer in time, killed" in found["detail"]
    assert worker.ask({"op": "answer"}, 60)["ok"]


def test_a_device_fault_ends_the_process_that_had_it(worker: Worker) -> None:
    before = worker.ask({"op": "answer"}, 60)["pid"]
    assert "a device fault" == worker.ask({"op": "fault"}, 60)["detail"]
    assert before != worker.ask({"op": "answer"}, 60)["pid"]
