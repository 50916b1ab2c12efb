"""Recorded runs of the agents come out again as they were, without a model and without a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.transcript import difference, replay

FOLDER = Path(__file__).parents[2] / "benchmarks" / "transcripts"
RUNS = sorted(path.parent for path in FOLDER.glob("*/frozen.json"))


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.name)
def test_a_recorded_run_comes_out_bit_for_bit(folder: Path) -> None:
    """Plans, sources, beams, lessons, verdicts and winner."""
    found = replay(folder)
    assert "" == found["differs"]
    assert found["calls"] > 0
    assert found["winner"] in ("llm", "seed", "mutation")


def test_there_are_runs_of_three_families() -> None:
    """One of them a fused norm or attention."""
    assert len(RUNS) >= 3


def test_a_difference_is_named() -> None:
    """The first event that differs, and in what."""
    recorded = [{"kind": "plans", "call": "0/0", "reply": [1]}, {"kind": "stop"}]
    assert "" == difference(recorded, recorded)
    assert "event 0 (plans 0/0, now plans 0/0): reply" == difference(recorded, [{**recorded[0], "reply": [2]}, recorded[1]])
    assert "2 events recorded, 1 now" == difference(recorded, recorded[:1])
