"""`accelopt runs ...` and `accelopt report` on a store with three runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accelopt_cache.kernel_store import Store
from accelopt_cache.run_store import Run
from accelopt_compile.cli import run as accelopt
from tests.report.runs import HOSTILE, Talker, killed, searched, small


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Run]:
    """A run that won, one by a model without a known price, and one that was killed."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    store = Store.open()
    asked = small()
    asked.proposer = Talker(clock=asked.clock, says=HOSTILE, usd=None)
    return {
        "won": searched(store, small()),
        "asked": searched(store, asked, proposer="llm", models={"planner": "small-1"}, name=HOSTILE),
        "killed": killed(store, small(), after=20),
    }


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    """(exit code, the JSON on stdout) of a command."""
    code = accelopt([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_ls_lists_the_newest_first(runs: dict[str, Run], capsys: pytest.CaptureFixture[str]) -> None:
    """With outcome, candidates, tokens and cost of each."""
    code, found = answer(capsys, "runs", "ls")
    assert (0, [runs[name].id for name in ("killed", "asked", "won")]) == (code, [line["id"] for line in found])
    assert ["unfinished", "winner", "winner"] == [line["outcome"] for line in found]
    assert (20, 0) == (found[0]["evaluated"], found[0]["tokens"])
    assert found[1]["tokens"] > 0 and found[1]["calls"] == found[1]["unpriced"]
    accelopt(["runs", "ls"])
    text = capsys.readouterr().out
    assert "unfinished" in text and "winner 4." in text and "unknown" in text
    assert "\u202e" not in text and "\x00" not in text


def test_show_says_what_happened_and_how_to_go_on(runs: dict[str, Run], capsys: pytest.CaptureFixture[str]) -> None:
    """For people and as JSON; the short form of an id is enough."""
    assert 0 == accelopt(["runs", "show", runs["killed"].id])
    text = capsys.readouterr().out
    for expected in ("unfinished", "quick timing", "round open", "goes on with this run by itself", "env threads:"):
        assert expected in text
    code, found = answer(capsys, "runs", "show", "last")
    assert (0, runs["killed"].id, True, 20) == (code, found["id"], found["resumable"], found["evaluated"])
    code, found = answer(capsys, "runs", "show", runs["asked"].id)
    assert ("winner", False, True) == (found["outcome"], found["resumable"], found["best"]["confirmed"])
    assert {"planner", "executor", "summarizer"} <= {cost["role"] for cost in found["costs"]}
    assert found["lessons"]


def test_a_run_that_is_worked_on_is_running_and_stays(runs: dict[str, Run], capsys: pytest.CaptureFixture[str]) -> None:
    """`rm` refuses it with the reason."""
    with runs["killed"].lock as mine:
        assert mine
        assert "running" == answer(capsys, "runs", "ls")[1][0]["outcome"]
        assert 2 == accelopt(["runs", "rm", "last", "--yes"])
        assert "worked on" in capsys.readouterr().err
    assert runs["killed"].path.exists()


def test_rm_removes_after_a_yes(runs: dict[str, Run], capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal and --yes it is a usage error, and nothing is gone."""
    assert 2 == accelopt(["runs", "rm", runs["won"].id])
    assert "--yes" in capsys.readouterr().err and runs["won"].path.exists()
    assert (0, {"removed": [runs["won"].id]}) == answer(capsys, "runs", "rm", runs["won"].id, "--yes")
    assert not runs["won"].path.exists()


def test_an_unknown_or_damaged_run_is_one_line(runs: dict[str, Run], capsys: pytest.CaptureFixture[str]) -> None:
    """2 for a name that is not there, 1 for a file that is not what it was; `ls` goes on without it."""
    assert 2 == accelopt(["runs", "show", "nothing"])
    assert "accelopt runs ls" in capsys.readouterr().err
    runs["won"].events_path.write_text("\x00")
    (runs["won"].path / "state.json").write_text("{")
    for command in (["runs", "show"], ["report"]):
        assert 1 == accelopt([*command, runs["won"].id])
        error = capsys.readouterr().err
        assert str(runs["won"].path / "state.json") in error and 1 == error.count("\n")
    runs["killed"].events_path.write_text('{"kind": "run"}\n')
    assert 0 == accelopt(["runs", "ls", "--json"])
    captured = capsys.readouterr()
    assert [runs["asked"].id, runs["won"].id] == [line["id"] for line in json.loads(captured.out)]
    assert str(runs["killed"].events_path) in captured.err


def test_report_writes_one_file(runs: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Named after the run, or as asked; where it cannot be written the message says so."""
    assert 0 == accelopt(["report", runs["won"].id])
    assert (tmp_path / f"accelopt-{runs['won'].id}.html").read_text().startswith("<!DOCTYPE html>")
    capsys.readouterr()
    code, found = answer(capsys, "report", "last", "-o", "page.html")
    assert (0, str(tmp_path / "page.html"), (tmp_path / "page.html").stat().st_size) == (code, found["file"], found["bytes"])
    assert 2 == accelopt(["report", "last", "-o", str(tmp_path / "absent" / "page.html")])
    assert "page.html cannot be written" in capsys.readouterr().err


def test_an_empty_store_has_no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what makes some, and looking at it creates nothing."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "none"))
    assert (0, []) == answer(capsys, "runs", "ls")
    assert 0 == accelopt(["runs", "ls"])
    assert f"only `accelopt tune` makes runs, and there is none in {tmp_path / 'none'}\n" == capsys.readouterr().out
    for command in (["report"], ["runs", "show"]):
        assert 2 == accelopt([*command, "last"])
        assert "no run 'last': only `accelopt tune` makes runs" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
