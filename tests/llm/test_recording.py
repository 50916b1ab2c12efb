"""Calls on disk: resumed, replayed, counted, damaged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accelopt_compile.errors import DamagedEntry
from accelopt_compile.llm.client import FATAL, Reply, Request, Usage
from accelopt_compile.llm.prices import Price, Prices
from accelopt_compile.llm.recording import ANSWERED, RecordingClient, ReplayClient, recorded_spending, set_aside_if_damaged
from accelopt_compile.llm.retrying import RETRIED
from accelopt_compile.llm.scripted import ScriptedClient
from accelopt_compile.llm.spending import MeteredClient, Spending

REQUEST = Request(role="planner", model="m", system="s", user="Plan.", call="0/0/0")
ANSWER = Reply(text="Fuse. \U0001f600\0", usage=Usage(prompt=10, cached=3, completion=5), usd=0.25, seconds=1.5, model="m-1")
SILENT = ScriptedClient(lambda _: pytest.fail("was asked"))


def record(path: Path, *replies: Reply) -> None:
    left = list(replies)
    client = RecordingClient(ScriptedClient(lambda _: left.pop(0)), path, clock=lambda: 7.0)
    for number in range(len(replies)):
        client.ask(replace(REQUEST, call=str(number)))


def test_a_line_holds_the_call(tmp_path: Path) -> None:
    """One JSON object a line, with the key it is found by and digests of what was read and written."""
    path = tmp_path / "calls" / "llm.jsonl"
    assert ANSWER == RecordingClient(ScriptedClient(lambda _: ANSWER), path, clock=lambda: 7.0).ask(REQUEST)
    (line,) = path.read_text().splitlines()
    data = json.loads(line)
    assert ["key", "at_s", "request", "prompt_digest", "reply", "reply_digest"] == list(data)
    assert (REQUEST.key, 7.0, REQUEST.prompt_digest, "Plan.") == (
        data["key"],
        data["at_s"],
        data["prompt_digest"],
        data["request"]["user"],
    )
    assert ANSWER == Reply.from_json(data["reply"])


def test_a_recorded_answer_is_not_asked_again(tmp_path: Path) -> None:
    """Resumed, the run gets the very reply; another call with the same prompt is another request."""
    path = tmp_path / "llm.jsonl"
    RecordingClient(ScriptedClient(lambda _: ANSWER), path).ask(REQUEST)
    resumed = RecordingClient(SILENT, path)
    assert ANSWER == resumed.ask(REQUEST)
    assert 1 == len(path.read_text().splitlines())
    assert "new" == RecordingClient(ScriptedClient(lambda _: "new"), path).ask(replace(REQUEST, call="0/0/1")).text


def test_an_answer_that_cannot_be_kept_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is paid for: a full disk must not cost the search as well."""
    path = tmp_path / "llm.jsonl"
    client = RecordingClient(ScriptedClient(lambda _: ANSWER), path)
    path.unlink(missing_ok=True)
    path.mkdir()
    assert [ANSWER, ANSWER] == [client.ask(replace(REQUEST, call=str(number))) for number in range(2)]
    assert 1 == caplog.text.count("calls are not recorded any more")


PROBLEMS = sorted(ANSWERED - {""} | FATAL | RETRIED | {"malformed", "bad_request"})


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_the_model_did_not_say_is_asked_again(tmp_path: Path, problem: str) -> None:
    """On resuming, the endpoint's troubles are tried anew, and the model's own word stands. A replay is what happened."""
    path = tmp_path / "llm.jsonl"
    failed = Reply(problem=problem, detail="why")
    RecordingClient(ScriptedClient(lambda _: failed), path).ask(REQUEST)
    assert failed == ReplayClient(path).ask(REQUEST)
    expected = failed if problem in ANSWERED else ANSWER
    assert expected == RecordingClient(ScriptedClient(lambda _: ANSWER), path).ask(REQUEST)
    assert expected == ReplayClient(path).ask(REQUEST)


def test_a_replay_asks_nobody(tmp_path: Path) -> None:
    """What is not in the recording is a problem, fatal, that names the call."""
    path = tmp_path / "llm.jsonl"
    record(path, ANSWER)
    missing = ReplayClient(path).ask(replace(REQUEST, call="9/9/9"))
    assert ("not_recorded", True) == (missing.problem, missing.fatal)
    assert "'9/9/9' of the planner to 'm' is not in it" in missing.detail
    assert "not_recorded" == ReplayClient(tmp_path / "none.jsonl").ask(REQUEST).problem


def test_without_texts_only_digests_are_kept(tmp_path: Path) -> None:
    """Neither prompt nor answer is in the file; what was spent is; the answer cannot be replayed and is asked again."""
    path = tmp_path / "llm.jsonl"
    secret = replace(ANSWER, text="my answer", detail="my answer cut", problem="truncated")
    RecordingClient(ScriptedClient(lambda _: secret), path, keep_texts=False).ask(replace(REQUEST, user="my model"))
    assert [] == [word for word in ("my model", "my answer") if word in path.read_text()]
    assert 0.25 == recorded_spending(path).total().usd
    asked = replace(REQUEST, user="my model")
    assert "recorded without its texts" in ReplayClient(path).ask(asked).detail
    assert "new" == RecordingClient(ScriptedClient(lambda _: "new"), path).ask(asked).text


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    """A run that died while it wrote is resumed from its last whole line; readers skip the torn one."""
    path = tmp_path / "llm.jsonl"
    record(path, ANSWER, ANSWER)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert (1, whole[:-20]) == (recorded_spending(path).total().calls, path.read_bytes())
    RecordingClient(ScriptedClient(lambda _: ANSWER), path, clock=lambda: 7.0).ask(replace(REQUEST, call="1"))
    assert whole == path.read_bytes()


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "no JSON": lambda line: b"{" + line,
    "a list": lambda line: b"[]\n",
    "another text": lambda line: line.replace(b"Fuse", b"Lose"),
    "another prompt": lambda line: line.replace(b"Plan.", b"Plot."),
    "a field missing": lambda line: line.replace(b'"usage"', b'"sausage"'),
    "no UTF-8": lambda line: b"\xff" + line,
    "nesting": lambda line: b"[" * 100_000 + b"\n",
    "an empty line": lambda line: b"\n" + line,
    "a number": lambda line: b"5\n",
    "a number of many digits": lambda line: b'{"key": ' + b"1" * 5000 + b"}\n",
    "a reply that is a list": lambda line: edited(line, reply=[]),
    "no time": lambda line: edited(line, at_s="x"),
    "a time beyond measure": lambda line: edited(line, at_s=10**400),
    "a text of numbers": lambda line: edited(line, reply={"text": 5}),
    "a list of texts": lambda line: edited(line, reply={"text": ["x"]}),
    "half a surrogate pair": lambda line: edited(line, reply={"text": "\ud800"}),
    "usage in words": lambda line: edited(line, reply={"usage": {"prompt": "x"}}),
    "usage below nothing": lambda line: edited(line, reply={"usage": {"prompt": -1}}),
    "usage that is true": lambda line: edited(line, reply={"usage": {"completion": True}}),
    "usage that is a text": lambda line: edited(line, reply={"usage": "x"}),
    "a price in words": lambda line: edited(line, reply={"usd": "x"}),
    "an endless price": lambda line: edited(line, reply={"usd": float("inf")}),
    "seconds in words": lambda line: edited(line, reply={"seconds": "x"}),
    "a role that is none": lambda line: edited(line, request={"role": 5}),
}


def edited(line: bytes, **fields: Any) -> bytes:
    """A line with other values, at any depth."""
    return json.dumps(_merged(json.loads(line), fields)).encode() + b"\n"


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    return {**old, **{name: _merged(old.get(name), value) for name, value in new.items()}}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_elsewhere_is_an_error(tmp_path: Path, damage: str) -> None:
    """A file that is damaged before its last line, or changed, is refused by name and line."""
    path = tmp_path / "llm.jsonl"
    record(path, ANSWER, ANSWER)
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(DAMAGE[damage](first) + second)
    for opened in (lambda: RecordingClient(SILENT, path), lambda: ReplayClient(path), lambda: recorded_spending(path)):
        with pytest.raises(DamagedEntry, match=r"llm\.jsonl: line 1 is not a recorded call"):
            opened()


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_recording_is_set_aside(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    """A run that goes on begins a new one, says so, and keeps the old."""
    path = tmp_path / "calls.jsonl"
    record(path, ANSWER)
    set_aside_if_damaged(path)
    assert path.exists()
    damaged = DAMAGE[damage](path.read_bytes())
    path.write_bytes(damaged)
    with caplog.at_level("WARNING"):
        set_aside_if_damaged(path)
    assert (False, damaged) == (path.exists(), (tmp_path / "calls.jsonl.damaged").read_bytes())
    assert "calls.jsonl.damaged" in caplog.text
    record(path, ANSWER)
    assert 1 == recorded_spending(path).total().calls


def test_threads_write_whole_lines_and_ask_once(tmp_path: Path) -> None:
    """Eight threads with equal requests make one call of each, and every line is whole."""
    path = tmp_path / "llm.jsonl"
    asked: list[str] = []

    def script(request: Request) -> str:
        asked.append(request.call)
        time.sleep(0.005)
        return request.call * 5000

    client = RecordingClient(ScriptedClient(script), path)
    requests = [replace(REQUEST, call=str(number // 4)) for number in range(160)]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(client.ask, requests))
    assert [request.call * 5000 for request in requests] == [reply.text for reply in replies]
    assert (40, 40) == (len(asked), recorded_spending(path).total().calls)


def test_a_resumed_run_pays_only_for_what_is_new(tmp_path: Path) -> None:
    """Totals carried from the file and new calls share one limit; what is answered from the file is not paid twice."""
    path = tmp_path / "llm.jsonl"
    prices = Prices({"m": Price(prompt=0, cached=0, completion=100.0)})
    script = ScriptedClient(lambda _: Reply(text="x", usage=Usage(prompt=10, completion=100)))

    def run(calls: int) -> tuple[list[str], float]:
        spending = Spending(prices=prices, usd=0.035)
        spending.carry(recorded_spending(path))
        client = RecordingClient(MeteredClient(script, spending), path)
        replies = [client.ask(replace(REQUEST, call=str(number), max_tokens=100)) for number in range(calls)]
        return [reply.problem for reply in replies], spending.usd

    assert (["", ""], pytest.approx(0.02)) == run(2)
    assert (["", "", "", "budget", "budget"], pytest.approx(0.03)) == run(5)
    assert (["", "", "", "budget"], pytest.approx(0.03)) == run(4)
