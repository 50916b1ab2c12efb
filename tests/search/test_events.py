"""The run log on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelopt_compile.errors import DamagedEntry
from accelopt_compile.events import MemoryLog, RunLog, read_events


def test_a_log_opened_again_goes_on_where_it_was(tmp_path: Path) -> None:
    """Events of both processes are there, numbered through."""
    path = tmp_path / "run" / "log.jsonl"
    RunLog(path, clock=lambda: 1.0).append("seed", source="a")
    log = RunLog(path, clock=lambda: 2.0)
    log.append("verdict", key="k")
    assert [("seed", 1, 1.0), ("verdict", 2, 2.0)] == [(e["kind"], e["seq"], e["at_s"]) for e in log.events()]


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    """What a dying process half wrote is as if it had never been, to a reader and to the next writer."""
    path = tmp_path / "log.jsonl"
    RunLog(path).append("seed")
    with path.open("a") as file:
        file.write('{"seq":2,"kind":"verd')
    assert ["seed"] == [e["kind"] for e in read_events(path)]
    log = RunLog(path)
    log.append("round")
    assert ["seed", "round"] == [e["kind"] for e in log.events()]


@pytest.mark.parametrize("content", ["not json\n", '{"format": 99, "kind": "run"}\n', '{"format": 1, "kind": "run"}\n[]\n'])
def test_a_file_that_is_no_log_is_refused(tmp_path: Path, content: str) -> None:
    """Another format, or damage before the last line, is an error that names the file."""
    path = tmp_path / "log.jsonl"
    path.write_text(content)
    with pytest.raises(DamagedEntry, match=r"log\.jsonl"):
        list(RunLog(path).events())


def test_a_log_in_memory_gives_back_what_a_file_would(tmp_path: Path) -> None:
    """Tuples become lists in both."""
    memory, file = MemoryLog(), RunLog(tmp_path / "log.jsonl")
    for log in (memory, file):
        log.append("round", beam=(1, 2))
    assert [[1, 2]] == [e["beam"] for e in memory.events()] == [e["beam"] for e in file.events()]
