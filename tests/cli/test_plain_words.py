"""What the command line says when something is damaged, empty or interrupted: one thing, with the reason and the next step."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from accelopt_cache.kernel_store import Store
from accelopt_compile.cli import interrupted, run
from accelopt_compile.cli.rerun import Finding, Rerun
from accelopt_compile.cli.verify import stopped
from tests.cli.test_cache_commands import ids, relu, winner

__all__ = ["ids"]

COMMANDS = (["cache", "explain"], ["cache", "show"])


def blob(store: Path) -> Path:
    (path,) = (p for p in (store / "v1/blobs").rglob("*") if p.is_file())
    return path


def record(store: Path, record_id: str) -> Path:
    (path,) = (store / "v1/records").rglob(f"{record_id}*")
    return path


def workload_of_winner(store: Path, _: str) -> Path:
    (path,) = (store / "v1/workloads").rglob(f"{relu(4).digest}*")
    return path


PARTS: dict[str, Callable[[Path, str], Path]] = {
    "record": record,
    "source": lambda store, _: blob(store),
    "workload": workload_of_winner,
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[1])
@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_record_is_told_as_one_thing(
    ids: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], part: str
) -> None:
    """Exit code 1; one line with the file, the reason, the place of quarantine and the next step; nothing has moved yet."""
    path = PARTS[part](tmp_path / "store", ids["winner"])
    path.write_bytes(path.read_bytes() + b" ")
    assert 1 == run([*command, ids["winner"][:12]])
    said = capsys.readouterr().err
    assert 1 == said.count("is damaged") == said.count("\n")
    assert f"{path}: its digest is not its name" in said
    assert str(tmp_path / "store/v1/quarantine") in said
    assert f"accelopt cache verify {ids['winner'][:12]} --quarantine" in said
    assert "not in the store" not in said
    assert path.exists()


@pytest.mark.parametrize("command", [*COMMANDS, ["cache", "verify"]], ids=lambda command: command[1])
def test_a_record_in_quarantine_is_found_there(
    ids: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """Exit code 1, the reason of its note, where it lies, and how the region gets a kernel again."""
    path = blob(tmp_path / "store")
    path.write_text("tampered")
    assert 4 == run(["cache", "verify", ids["winner"], "--quarantine"])
    told = capsys.readouterr().out
    assert f"1 record moved to {tmp_path / 'store/v1/quarantine'}, with a note" in told
    assert not path.exists()
    assert 1 == run([*command, ids["winner"][:12]])
    said = capsys.readouterr().err
    assert str(tmp_path / f"store/v1/quarantine/{ids['winner']}.damaged.json") in said
    assert "its digest is not its name" in said and "accelopt prewarm" in said
    assert 1 == said.count("\n")


def test_explain_of_a_workload_names_its_damaged_records(
    ids: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are not passed over in silence beside those that are sound."""
    sound = Store.open().put(replace(winner(relu(4)), created="2026-11-28T00:00:00Z"), relu(4))
    path = record(tmp_path / "store", ids["winner"])
    path.write_bytes(b"{}")
    assert 0 == run(["cache", "explain", relu(4).digest, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert ([sound], [ids["winner"]]) == ([one["id"] for one in found["records"]], found["damaged"])
    assert any(str(path) in line for line in found["lines"])


@pytest.mark.parametrize("reason", ["the time budget is spent", "2 rounds brought no improvement"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[1])
def test_why_a_search_stopped_is_no_reason_to_trust(
    ids: dict[str, str], capsys: pytest.CaptureFixture[str], command: list[str], reason: str
) -> None:
    """It stands apart, in words of its own, behind what the kernel is trusted for."""
    name = Store.open().put(replace(winner(relu(4)), reason=reason), relu(4))
    assert 0 == run([*command, name])
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if reason in line]
    assert f"the search stopped because {reason}" in line
    assert not any(re.match(r"\s*because\b", line) for line in lines)


def test_why_there_is_no_kernel_is_told_of_a_baseline(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Its reason is the finding itself."""
    assert 0 == run(["cache", "explain", ids["baseline"]])
    assert "why none     no kernel was faster" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [["ls"], ["verify"], ["verify", "--all"], ["verify", "--rerun"], ["verify", "--quarantine"], ["ls", "--outcome", "winner"]],
    ids=" ".join,
)
@pytest.mark.parametrize("exists", [True, False])
def test_an_empty_store_says_how_it_fills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str], exists: bool
) -> None:
    """Exit code 0 and one line, which says whether its directory exists: a mistyped one does not."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    if exists:
        (tmp_path / "store").mkdir()
    assert 0 == run(["cache", *command])
    said = capsys.readouterr().out
    assert 1 == said.count("\n")
    assert (
        f"no {'records in' if exists else 'store at'} {tmp_path / 'store'}; it fills when" in said and "accelopt prewarm" in said
    )


@pytest.mark.parametrize("command", [["explain"], ["show"], ["rm", "--yes"], ["verify"]], ids=lambda command: command[0])
def test_a_name_in_an_empty_store_is_told_that_it_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """Not that a listing of nothing would help."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    assert 2 == run(["cache", *command, "abcd"])
    said = capsys.readouterr().err
    assert "'abcd'" in said and "it fills when" in said and "cache ls" not in said


def test_a_listing_without_rows_names_its_filters(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A store with records of other targets is not called empty."""
    assert 0 == run(["cache", "ls", "--target", "cpp-moon"])
    assert "no record fits --target cpp-moon; `accelopt cache ls` alone lists all\n" == capsys.readouterr().out


def test_counts_agree_with_their_words(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """With one record, and with two."""
    assert 0 == run(["cache", "verify"])
    assert "2 of 2 records are intact\n" == capsys.readouterr().out
    assert 2 == run(["cache", "explain", "zzzz"])
    assert "among the 2 records in" in capsys.readouterr().err
    assert 0 == run(["cache", "rm", ids["baseline"], "--yes"])
    assert "removed 1 record\n" == capsys.readouterr().out
    assert 0 == run(["cache", "verify"])
    assert "1 of 1 record is intact\n" == capsys.readouterr().out
    assert 2 == run(["cache", "explain", "zzzz"])
    assert "among the 1 record in" in capsys.readouterr().err


def test_no_message_of_the_command_line_glues_a_count_to_a_plural() -> None:
    """Counts go through `wording.plural`: an f-string with a length or a number and then a word in s is a mistake at 1."""
    glued = re.compile(
        r"\{(?:len\([^{}]*\)|[a-z_.]*(?:count|total|number|blocks|threads|cases|files\w*))\} (?!of\b|is\b)[a-z]+s\b"
    )
    folder = Path(run.__code__.co_filename).parent
    found = {p.name: glued.findall(p.read_text()) for p in folder.glob("*.py")}
    assert {} == {name: hits for name, hits in found.items() if hits}


def test_ctrl_c_in_a_rerun_says_what_was_done_and_what_is_left() -> None:
    """Nothing proven, something proven, something failed: what is done, what is left, what is kept, how to go on."""
    none = stopped(2, {"proven": 0, "failed": 0}, quarantine=True)
    assert none.startswith("interrupted after 0 of 2 records; 2 are left. Nothing is lost: no record was changed. Run again")
    some = stopped(3, {"proven": 1, "intact": 1, "failed": 0}, quarantine=True)
    assert some.startswith("interrupted after 2 of 3 records (1 proven, 1 intact); 1 is left. Nothing is lost: no record")
    failed = stopped(3, {"proven": 1, "failed": 1}, quarantine=True)
    assert "what failed is out of service, no other record was changed" in failed
    assert "no record was changed" in stopped(3, {"failed": 1}, quarantine=False)
    assert all("starts from the first record" in text for text in (none, some, failed))


def test_an_interrupted_rerun_keeps_what_it_found(ids: dict[str, str]) -> None:
    """Ctrl-C after the first answer: that one is told, the rest is not made up."""

    def press(_: Finding) -> None:
        raise KeyboardInterrupt

    work = Rerun(store=Store.open(readonly=True), jobs=1)
    work.run(list(ids.values()), press)
    assert (True, 1) == (work.interrupted, len(work.findings))


def test_ctrl_c_promises_only_what_a_command_keeps() -> None:
    """A search goes on where it was; anything else starts again."""
    assert "goes on from there" in interrupted(["prewarm", "a:b"]) and "goes on from there" in interrupted(["demo"])
    assert "starts again" in interrupted(["cache", "ls"]) and "starts again" in interrupted([])


def test_a_store_of_which_nothing_can_be_read_is_not_called_empty(
    ids: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It lists nothing, and says where to look."""
    for path in (p for p in (tmp_path / "store/v1/records").rglob("*") if p.is_file()):
        path.write_bytes(path.read_bytes()[:60])
    assert 0 == run(["cache", "ls"])
    said = capsys.readouterr().out
    assert "no record can be read; `accelopt cache verify` says what is damaged" in said
    assert "it fills when" not in said


@pytest.mark.parametrize(("option", "value"), [("--max-bytes", "-5"), ("--older-than-days", "-1"), ("--older-than-days", "nan")])
def test_gc_refuses_a_limit_that_is_none(
    ids: dict[str, str], capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    """An error that names it, before anything is looked at."""
    assert 2 == run(["cache", "gc", "--dry-run", option, value])
    said = capsys.readouterr().err
    assert option in said
