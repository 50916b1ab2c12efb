"""`accelopt memory ...` on a store with a few experiences."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accelopt_cache.kernel_store import Store
from accelopt_compile.cli import run
from accelopt_compile.cli.lessons import distinct_pairs
from accelopt_compile.records import Experience
from tests.cli.test_cache_commands import SOURCE, relu, winner

WORKLOAD = relu(4)

GOOD = Experience(
    backend="cpp",
    family="activation",
    arch="x86_64-avx2",
    workload=WORKLOAD.digest,
    change={},
    helped=True,
    speedup=1.5,
    title="Stream the stores",
    lesson="Write results past the cache with streaming stores.",
    slow="int slow;\nint common;\n",
    fast="int fast; // ``` fence\nint common;\n",
    origin={"model": "some-model", "plan": "Use streaming stores.", "run": "r1"},
)
HURT = replace(
    GOOD, helped=False, speedup=1.2, title="", lesson="Undo the transposition.", slow="int worse;", fast="int better;", origin={}
)
WRONG = replace(GOOD, family="norm bf16", speedup=3.0, title="Skip the sum", lesson="Do not add up.", fast=SOURCE)


@pytest.fixture
def ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Ids of a lesson that helped, one that hurt, and one whose kernel proved wrong."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    store = Store.open()
    record = store.put(winner(WORKLOAD), WORKLOAD)
    named = {"good": store.add_experience(GOOD), "hurt": store.add_experience(HURT), "wrong": store.add_experience(WRONG)}
    store.quarantine(record, "rerun numerics: 3 elements off")
    return named


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    """(exit code, the JSON on stdout) of a command."""
    code = run(["memory", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_ls_lists_what_is_in_use_and_says_what_is_not(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """The newest first; withdrawn ones only on request, with their reason."""
    code, found = answer(capsys, "ls")
    assert (0, [ids["hurt"], ids["good"]]) == (code, [line["id"] for line in found])
    assert {"model": "some-model", "plan": "Use streaming stores.", "run": "r1"} == found[1]["origin"]
    _, gone = answer(capsys, "ls", "--withdrawn")
    assert [(ids["wrong"], "rerun numerics: 3 elements off")] == [(line["id"], line["withdrawn"]) for line in gone]
    assert 0 == run(["memory", "ls"])
    text = capsys.readouterr().out
    assert "1 withdrawn" in text and "Stream the stores" in text and "Undo the transposition." in text


@pytest.mark.parametrize(
    ("option", "value", "count"),
    [("--backend", "cpp", 2), ("--backend", "triton", 0), ("--family", "activation", 2), ("--arch", "neon", 0)],
)
def test_lists_are_filtered(ids: dict[str, str], capsys: pytest.CaptureFixture[str], option: str, value: str, count: int) -> None:
    """By backend, family and architecture."""
    assert count == len(answer(capsys, "ls", option, value)[1])


def test_show_has_everything_and_the_way_from_slow_to_fast(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A few characters of the id are enough; the diff removes the slow lines and adds the fast ones."""
    code, found = answer(capsys, "show", ids["good"][:10])
    assert (0, GOOD.slow, GOOD.fast) == (code, found["slow"], found["fast"])
    assert ["--- slow", "+++ fast", "@@ -1,2 +1,2 @@", "-int slow;", "+int fast; // ``` fence"] == found["diff"].splitlines()[:5]
    assert 0 == run(["memory", "show", ids["wrong"]])
    text = capsys.readouterr().out
    assert "rerun numerics: 3 elements off" in text and "from model:" in text and "Do not add up." in text


def test_show_gives_a_terminal_no_orders(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a lesson was made to hold."""
    hostile = replace(GOOD, title="\x1b[2Jgone", lesson="\x1b]0;owned\x07 text\r", origin={"plan": "\x9b31m"})
    named = Store.open().add_experience(hostile)
    assert 0 == run(["memory", "show", named]) == run(["memory", "ls"])
    assert not set("\x1b\x07\r\x9b") & set(capsys.readouterr().out)


def test_search_puts_the_best_match_first_and_leaves_the_withdrawn_out(
    ids: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Words are those of title, lesson, plan and family."""
    code, found = answer(capsys, "search", "streaming", "stores", "sum")
    assert (0, [ids["good"]]) == (code, [line["id"] for line in found])
    assert found[0]["score"] > 0
    assert 0 == run(["memory", "search", "quaternion"])
    assert "none of 2 experiences speaks of 'quaternion'" in capsys.readouterr().out


def test_pairs_are_exported_from_slow_to_fast_each_once(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Also those whose step had hurt; not those that are withdrawn."""
    Store.open().add_experience(replace(GOOD, lesson="The same pair in other words.", slow=GOOD.slow + "\n"))
    assert 0 == run(["memory", "export"])
    written = capsys.readouterr()
    pairs = lines(written.out)
    assert {("int worse;", "int better;", 1.2, False), (GOOD.slow.strip(), GOOD.fast, 1.5, True)} == {
        (p["slow"].strip(), p["fast"], p["speedup"], p["helped"]) for p in pairs
    }
    expected = {"slow", "fast", "speedup", "lesson", "title", "family", "arch", "workload", "backend", "helped"}
    assert [expected] * 2 == [set(p) for p in pairs]
    assert "2 pairs of 4 experiences" in written.err


def test_chats_are_exported_with_the_workload_and_whole_kernels(
    ids: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """System, user with the workload and the slow kernel, assistant with the fast one in a fence that holds it."""
    place = tmp_path / "chat.jsonl"
    assert 0 == run(["memory", "export", "--format", "chat", "--min-speedup", "1.3", "-o", str(place)])
    (chat,) = lines(place.read_text())
    assert ["system", "user", "assistant"] == [m["role"] for m in chat["messages"]]
    _, user, assistant = (m["content"] for m in chat["messages"])
    assert "n0 = aten.relu.default(i0) -> f32[s0, 4]\nreturn n0: f32[s0, 4]" in user
    assert "```cpp\nint slow;\nint common;\n```" in user
    assert "````cpp\nint fast; // ``` fence\nint common;\n````" == assistant
    assert "" == capsys.readouterr().out


def test_no_pair_is_exported_that_has_no_two_kernels_or_is_the_wrong_way_round() -> None:
    """Missing and equal texts, and a fast kernel that is slower."""
    from accelopt_cache.experience_store import StoredExperience

    bad = [replace(GOOD, slow=""), replace(GOOD, slow=GOOD.fast), replace(GOOD, speedup=0.9)]
    entries = [StoredExperience(id=str(i), created="", experience=e) for i, e in enumerate([*bad, GOOD])]
    assert ["3"] == [entry.id for entry in distinct_pairs(entries, min_speedup=1.0)]


def test_rm_forgets_what_it_was_told_to(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Only with a yes."""
    assert 2 == run(["memory", "rm", ids["good"]])
    assert "--yes" in capsys.readouterr().err
    assert (0, {"removed": [ids["good"]]}) == answer(capsys, "rm", ids["good"][:12], ids["good"], "--yes")
    assert [ids["hurt"]] == [line["id"] for line in answer(capsys, "ls")[1]]


@pytest.mark.parametrize("command", [["show", "zzzz"], ["rm", "zzzz", "--yes"], ["show", ""]])
def test_an_unknown_id_is_a_usage_error_with_the_next_step(
    ids: dict[str, str], capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """The message names the value and the command that helps."""
    assert 2 == run(["memory", *command])
    error = capsys.readouterr().err
    assert f"no experience {command[1]!r}" in error and "accelopt memory ls" in error


def test_an_ambiguous_id_asks_for_more_characters(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """And names some that it could be."""
    store = Store.open()
    known = [store.add_experience(replace(GOOD, lesson=str(n))) for n in range(17)]
    start = next(c for c in "0123456789abcdef" if sum(name.startswith(c) for name in {*known, *ids.values()}) > 1)
    assert 2 == run(["memory", "show", start])
    assert "give more characters" in capsys.readouterr().err


def test_wrong_arguments_of_export_say_what_is_right(
    ids: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown format, and a file that cannot be written."""
    assert 2 == run(["memory", "export", "--format", "csv"])
    assert "`pairs` or `chat`" in capsys.readouterr().err
    assert 2 == run(["memory", "export", "-o", str(tmp_path / "nowhere" / "x.jsonl")])
    assert "cannot be written" in capsys.readouterr().err


def test_an_empty_memory_says_how_it_fills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command is an answer, not an error, and looking creates nothing."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    assert [0, 0, 0] == [run(["memory", *command]) for command in (["ls"], ["search", "x"], ["export"])]
    written = capsys.readouterr()
    assert (2, 1) == (written.out.count("accelopt demo"), written.err.count("accelopt demo"))
    assert [] == answer(capsys, "ls")[1]
    assert not (tmp_path / "store").exists()


def test_a_damaged_experience_is_skipped_with_a_warning(
    ids: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The others are listed; `show` of it says what to do."""
    (tmp_path / "store" / "v1" / "memory" / f"{ids['good']}.json").write_text("{")
    assert [ids["hurt"]] == [line["id"] for line in answer(capsys, "ls")[1]]
    assert any(ids["good"] in r.getMessage() for r in caplog.records if r.levelname == "WARNING")
    assert 2 == run(["memory", "show", ids["good"]])
    assert "is damaged" in capsys.readouterr().err


def test_an_export_goes_where_a_link_leads(ids: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is written, never put in its place: as root, `-o /dev/stdout` replaced the device for everybody."""
    (tmp_path / "link").symlink_to(tmp_path / "pairs.jsonl")
    assert 0 == run(["memory", "export", "-o", str(tmp_path / "link")])
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "pairs.jsonl").read_text().splitlines()[0])
