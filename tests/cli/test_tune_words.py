"""What `accelopt tune` says: of its model, of its numbers, of errors; in the words of the command line."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from accelopt_cache.kernel_store import Store
from accelopt_compile.cli import as_options, run
from accelopt_compile.cli.explaining import abridged
from accelopt_compile.cli.factory import factories
from accelopt_compile.cli.output import Output, plain
from accelopt_compile.cli.watching import Watching
from accelopt_compile.records import KernelSource
from tests.cli.test_runs import runs

__all__ = ["runs"]

CALL = {"kind": "call", "role": "planner", "model": "small-1", "problem": "", "tokens": 100, "usd": None}


def watching(*events: dict[str, Any], asks: bool = True) -> Watching:
    seen = Watching(Output(as_json=False, level=0), "a region", budget_s=100.0, asks=asks)
    for event in events:
        seen(event)
    return seen


def accepted(speedup: float, origin: str = "llm") -> dict[str, Any]:
    return {"kind": "verdict", "verdict": {"timing": {"speedup": speedup}}, "origin": origin, "effort": "quick"}


def test_failed_calls_are_shown_while_it_searches_and_at_the_end() -> None:
    """With their problem; the best kernel of the model and the winner's author are named."""
    failed = {**CALL, "problem": "connection", "tokens": 0}
    seen = watching(CALL, failed, failed, accepted(1.2), accepted(1.5, "mutation"))
    assert "3 calls, 2 failed: connection" in seen.line()
    expected = (
        "the language model small-1: 3 calls, 2 failed: connection; its best kernel 1.20x (quick timing); "
        "the winner is by the built-in proposer"
    )
    assert expected == seen.of_model("mutation")
    assert "connection 2, timeout 1" in watching(failed, {**failed, "problem": "timeout"}, failed).line()


def test_without_a_model_nothing_is_said_of_one() -> None:
    """The built-in proposer alone has no calls."""
    assert "" == watching(accepted(1.2, "mutation"), asks=False).of_model("mutation")


def test_a_cost_that_nobody_knows_is_no_zero() -> None:
    """Neither in the progress nor in the JSON."""
    seen = watching(CALL)
    assert "cost unknown" in seen.line() and "$" not in seen.line()
    assert seen.counts()["usd"] is None
    assert 0.5 == watching({**CALL, "usd": 0.5}).counts()["usd"]


def test_what_was_there_before_is_counted_in_silence(capsys: pytest.CaptureFixture[str]) -> None:
    """The first line after a resume goes on from it."""
    seen = watching({**CALL, "before": True}, {**accepted(1.2), "before": True})
    assert "" == capsys.readouterr().err
    assert "accepted 1" in seen.line() and "1 call " in seen.line()


def test_quick_and_final_timings_are_told_apart_only_where_they_differ() -> None:
    """By more than 5 %."""
    seen = watching(accepted(1.30))
    assert ("", "") == (seen.apart(1.28), seen.apart(0.0))
    assert "quick timings rank candidates" in seen.apart(1.10)


def unreachable() -> str:
    """An address of this machine where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


def test_a_server_that_cannot_be_reached_is_an_error_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, its address and the next step; with --json the error is the one document."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    address = unreachable()
    assert 1 == run(["tune", "abcd", "--model", "m", "--base-url", address, "--json"])
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert 1 == found["exit_code"] == said.err.count("\n")
    assert address in found["error"] and "--proposer builtin" in found["error"]


@pytest.mark.parametrize("address", ["not a url", "nonsense", "ftp://x/v1"])
def test_what_is_no_address_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where no model would ask it; in the option's own spelling."""
    assert 2 == run(["tune", "abcd", "--base-url", address])
    assert "error: --base-url: it" in capsys.readouterr().err


def test_a_wrong_option_is_a_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    """What the parser of the command line refuses, and what a command does."""
    assert 2 == run(["tune", "abcd", "--rouns", "3", "--json"])
    assert "--rouns" in json.loads(capsys.readouterr().out)["error"]
    assert 2 == run(["memory", "export", "--json"])
    assert "JSON Lines" in json.loads(capsys.readouterr().out)["error"]


def test_errors_speak_of_options() -> None:
    """As the command line spells them; what has no option is named by its variable."""
    told = as_options("budget_usd=1 needs the price of m: give prices=FILE, or budget_tokens=")
    assert "--budget-usd 1 needs the price of m: give --prices FILE, or --budget-tokens" == told
    assert "give --model, or ACCELOPT_PLANNER_MODEL" == as_options("set model=, or planner_model=")


def test_only_factories_of_the_module_itself_are_offered() -> None:
    """Public functions defined there that need no arguments."""
    import benchmarks.workloads.llama_prefill as workload

    assert {"build", "small"} <= set(factories(workload))
    assert {"Any", "Callable"}.isdisjoint(factories(workload))


def test_records_are_told_in_plain_words() -> None:
    """No dicts and lists of Python; what is empty is left out."""
    assert "slower 3, wrong 3" == plain({"slower": 3, "wrong": 3})
    assert "a, b" == plain({"planner": ["a", "b"], "executor": ["a", "b"]})
    assert ("", "", "x") == (plain({}), plain({"planner": []}), plain("x"))


def test_a_kernel_is_abridged_only_where_it_holds_the_library() -> None:
    """The library is one line; another text stays as it is."""
    from accelopt_backends.cpp.authored import LIBRARY, written

    source = written(f"{LIBRARY}\nint x = UNROLL;\n")
    assert f"{LIBRARY}\n\nint x = UNROLL;" == abridged(source, {}).strip()
    other = KernelSource(language="reference", text="x", origin="seed")
    assert "x" == abridged(other, {})


def test_listing_page_and_show_agree_on_the_time(runs: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """It is the time that processes worked on the run."""
    assert 0 == run(["runs", "ls", "--json"])
    listed = {line["id"]: line for line in json.loads(capsys.readouterr().out)}
    for one in runs.values():
        assert 0 == run(["runs", "show", one.id, "--json"])
        shown = json.loads(capsys.readouterr().out)
        assert (listed[one.id]["seconds"], listed[one.id]["usd"]) == (shown["seconds"], shown["usd"])
    assert listed[runs["asked"].id]["usd"] is None


def test_an_export_says_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json and a file."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    Store.open()
    assert 0 == run(["memory", "export", "--json", "-o", str(tmp_path / "pairs.jsonl")])
    assert {"pairs": 0, "experiences": 0, "file": str(tmp_path / "pairs.jsonl")} == json.loads(capsys.readouterr().out)
