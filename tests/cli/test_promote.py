"""`accelopt cache ...` on candidates, and `cache promote` where their device is not here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from accelopt_backends.reference import DEVICE_VARIABLE, ReferenceBackend
from accelopt_cache.kernel_store import Store
from accelopt_compile.cli import run
from accelopt_compile.cli.promote import code_of
from accelopt_compile.records import Record
from tests.cli.test_cache_commands import relu, winner

TARGET = "reference-b"


def candidate(text: str = "") -> Record:
    """The reference kernel of a relu, for a device that is not here."""
    measured = winner(relu(4))
    assert measured.timing is not None
    estimate = replace(measured.timing, basis="estimated", baselines_us={"unfused": 3.0}, low=1.5, high=1.5, blocks=0)
    seed = ReferenceBackend(TARGET).seed(relu(4))
    return replace(
        measured,
        outcome="candidate",
        rung="simulated",
        target=TARGET,
        timing=estimate,
        source=replace(seed, text=seed.text + text),
        tunables=seed.defaults(),
        reason="the time is up",
    )


@pytest.fixture
def ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Ids of a candidate and of a winner in the store that the commands see."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.delenv(DEVICE_VARIABLE, raising=False)
    store = Store.open()
    return {"candidate": store.put(candidate(), relu(4)), "winner": store.put(winner(relu(4)), relu(4))}


def test_promote_refuses_where_the_device_is_not_here(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """It says what waits for what, what is here, and what to do; nothing is changed, and --json holds the same."""
    assert 1 == run(["cache", "promote", "--all"])
    told = capsys.readouterr().err
    assert "1 candidate cannot be decided here: reference-b: no device of that kind is here, only its simulation" in told
    assert "Devices here: " in told
    assert "reference. Nothing was changed" in told
    assert "`accelopt cache promote --all --cache-dir DIR`" in told
    assert 1 == run(["cache", "promote", ids["candidate"][:12], "--json"])
    assert 1 == json.loads(capsys.readouterr().out)["exit_code"]
    assert ["candidate", "winner"] == sorted(outcome for *_, outcome in Store.open().walk())


def test_promote_takes_candidates_and_nothing_else(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A winner is none; neither names nor --all is a question, not a wish for everything."""
    assert 2 == run(["cache", "promote", ids["winner"][:12]])
    assert "is a winner: only candidates wait for their device" in capsys.readouterr().err
    assert 2 == run(["cache", "promote"])
    assert "name candidates, or take all of them with --all" in capsys.readouterr().err
    assert 2 == run(["cache", "promote", "--all", ids["candidate"]])


def test_promote_of_an_empty_store_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is nothing to decide, and how candidates come about is said."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "empty"))
    assert 0 == run(["cache", "promote", "--all"])
    assert "no candidates in" in capsys.readouterr().out


def test_candidates_of_a_language_that_nobody_writes_here_wait(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """As after a downgrade: named, not lost."""
    store = Store.open()
    store.remove(ids["candidate"])
    source = candidate().source
    assert source is not None
    store.put(replace(candidate(), source=replace(source, language="brainwave")), relu(4))
    assert 1 == run(["cache", "promote", "--all"])
    assert "no backend here writes 'brainwave'" in capsys.readouterr().err


def test_ls_says_what_is_estimated(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Winners first; a candidate has no speedup, and its time is called what it is."""
    assert 0 == run(["cache", "ls"])
    _, first, second = capsys.readouterr().out.splitlines()
    assert "1.50x" in first
    assert "candidate  estimated 2.0 us" in second
    assert 0 == run(["cache", "ls", "--outcome", "candidate", "--json"])
    (record,) = json.loads(capsys.readouterr().out)
    assert ("candidate", "simulated", "estimated") == (record["outcome"], record["rung"], record["timing"]["basis"])


def test_show_and_explain_never_give_an_estimate_for_a_measurement(
    ids: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither "95 %" nor a bare factor; and who decides."""
    assert 0 == run(["cache", "show", ids["candidate"]])
    shown = capsys.readouterr().out
    assert "simulated: never launched" in shown
    assert "estimated 1.500x the region without fusion" in shown
    assert "95 %" not in shown
    assert "the search stopped because the time is up" in shown
    assert 0 == run(["cache", "explain", ids["candidate"]])
    explained = capsys.readouterr().out
    assert "nobody knows: estimated 1.50x the region without fusion, not timed" in explained
    assert "`accelopt cache promote` on a machine with reference-b decides on it" in explained
    assert 0 == run(["cache", "explain", ids["candidate"], "--json"])
    assert not json.loads(capsys.readouterr().out)["trusted"]


def test_explain_on_the_device_says_that_it_decides(
    ids: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DEVICE_VARIABLE, TARGET)
    assert 0 == run(["cache", "explain", ids["candidate"]])
    assert "decides on it, the device is here" in capsys.readouterr().out


def test_verify_rerun_says_that_a_candidate_was_proven_in_simulation(
    ids: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody takes it for proven on its device."""
    assert 0 == run(["cache", "verify", ids["candidate"], "--rerun"])
    assert "1 of 1 record: 1 proven; 1 in simulation, not on its device" in capsys.readouterr().out


def test_verify_rerun_proves_a_candidate_again_in_simulation(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A right one stays, a wrong one goes to quarantine; a winner of an absent device is skipped and named."""
    assert 0 == run(["cache", "verify", "--all", "--rerun", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [ids["candidate"]] == found["proven"]
    assert {ids["winner"]} == set(found["skipped"])
    store = Store.open()
    source = candidate().source
    assert source is not None
    wrong = replace(source, text=source.text.replace("output.copy_(result)", "output.copy_(result + 1)"))
    bad = store.put(replace(candidate(), source=wrong), relu(4))
    assert 4 == run(["cache", "verify", bad, "--rerun", "--json"])
    assert [bad] == list(json.loads(capsys.readouterr().out)["failed"])
    assert store.quarantined(bad)


def test_stats_and_doctor_count_candidates(ids: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Beside winners, not among them."""
    assert 0 == run(["cache", "stats", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {TARGET: 1} == found["candidates"]
    assert 1 == sum(found["winners"].values())


@pytest.mark.parametrize(
    ("outcomes", "stages", "code"),
    [
        (["winner"], [], 0),
        (["winner"], ["build"], 0),
        (["winner"], ["numerics"], 4),
        (["failed"], ["build", "timeout"], 1),
        (["failed"], ["build", "numerics"], 4),
        (["baseline", "winner"], ["slower"], 3),
        (["baseline", "undecided"], [], 1),
    ],
)
def test_only_a_wrong_kernel_is_a_failed_verification(outcomes: list[str], stages: list[str], code: int) -> None:
    """One that this toolchain cannot build, or that took too long, says nothing of the others."""
    done = [{"outcome": outcome, "refused": {}} for outcome in outcomes]
    done.append({"outcome": "winner", "refused": {stage: {"stage": stage} for stage in stages}})
    assert code == code_of(done)
