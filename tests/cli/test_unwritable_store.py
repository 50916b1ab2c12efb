"""What commands say of a store that can be read and not written: an error that names it, and nothing that was not done."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from accelopt_cache.kernel_store import Store
from accelopt_compile.cli import run
from tests.cache.samples import experience
from tests.cli.test_cache_commands import ids

__all__ = ["ids"]

DEFINITIONS = Path(__file__).parents[1] / "exchange/definitions"


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """The folder and all in it, readable alone: by permissions, or, since root writes all the same, by a mount."""
    if os.geteuid():
        folders = [folder, *(p for p in folder.rglob("*") if p.is_dir())]
        for one in folders:
            one.chmod(0o500)
        yield
        for one in folders:
            one.chmod(0o700)
        return
    for options in (["--bind", str(folder)], ["-o", "remount,ro,bind"]):
        if subprocess.run(["mount", *options, str(folder)], check=False).returncode:
            pytest.skip("cannot mount")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def held(ids: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The ids in the store, an experience's too."""
    monkeypatch.setenv("ACCELOPT_LOG", "")  # which -q sets
    return {**ids, "experience": Store.open().add_experience(experience())}


@pytest.mark.parametrize(
    "command",
    [
        ["cache", "rm", "winner", "--yes"],
        ["memory", "rm", "experience", "--yes"],
        ["cache", "gc", "--yes"],
        ["cache", "verify", "--quarantine"],
        ["cache", "promote", "--all"],
        ["prewarm", "not_there:build"],
        ["tune", "not_there:build"],
        ["cache", "import", str(DEFINITIONS / "softmax_v.json"), str(DEFINITIONS / "softmax_v.jsonl"), "-q"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_store_that_cannot_be_written_is_an_error_and_nothing_is_claimed(
    held: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """Exit code 1, one line that names the store; what was to go is still there."""
    with unwritable(tmp_path / "store"):
        assert 1 == run([held.get(word, word) for word in command])
    said = capsys.readouterr()
    assert "" == said.out
    assert said.err.startswith(f"accelopt: error: nothing was done: the store {tmp_path / 'store'} cannot be written")
    assert 1 == said.err.count("\n")
    store = Store.open(readonly=True)
    assert {held["winner"], held["baseline"]} == {i for i, _ in store.iter_records()}
    assert [held["experience"]] == store.experience_ids()


def test_an_error_of_a_store_that_cannot_be_written_is_json_too(
    held: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one document on stdout names the store."""
    with unwritable(tmp_path / "store"):
        assert 1 == run(["cache", "rm", held["winner"], "--yes", "--json"])
    assert str(tmp_path / "store") in json.loads(capsys.readouterr().out)["error"]


def test_what_could_not_be_removed_is_named(held: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a folder of the store belongs to somebody else: exit code 1, and it is not called forgotten."""
    with unwritable(tmp_path / "store/v1/memory"):
        assert 1 == run(["memory", "rm", held["experience"], "--yes"])
    said = capsys.readouterr()
    assert ("", True) == (said.out, f"could not be removed from {tmp_path / 'store'} ({held['experience'][:12]})" in said.err)


def test_a_record_that_can_only_be_buried_is_removed(held: dict[str, str], tmp_path: Path) -> None:
    """Its tombstone is enough: no later process is served it."""
    with unwritable(tmp_path / "store/v1/records"):
        assert 0 == run(["cache", "rm", held["winner"], "--yes"])
    assert [held["baseline"]] == [i for i, _ in Store.open(readonly=True).iter_records()]


def test_records_are_proven_again_where_nothing_can_be_taken_out_of_service(
    held: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--rerun` takes out what fails where that can be done; asked for, it is an error where it cannot."""
    with unwritable(tmp_path / "store"):
        assert 0 == run(["cache", "verify", "--rerun", "--json"])
        assert 2 == json.loads(capsys.readouterr().out)["checked"]
        assert 1 == run(["cache", "verify", "--rerun", "--quarantine"])


def test_what_stays_in_service_is_not_said_to_have_moved(
    held: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged record in a folder of somebody else's."""
    (path,) = (tmp_path / "store/v1/records").rglob(f"{held['winner']}*")
    path.write_bytes(b"{}")
    with unwritable(tmp_path / "store/v1/records"):
        assert 4 == run(["cache", "verify", "--quarantine"])
    said = capsys.readouterr().out
    assert "1 of 1 could not be taken out of service" in said and "moved to" not in said
