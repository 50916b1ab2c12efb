"""Runs on disk: found again, gone on with by one process at a time, and whole whoever is killed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from accelopt_cache import Store, collect
from accelopt_cache.prune import RUNS_KEPT
from accelopt_cache.run_store import Run, RunStore
from accelopt_compile.errors import DamagedEntry, InvalidRecord, UsageError
from tests.cache.conftest import Child
from tests.cache.samples import TARGET, winner, workload
from tests.cache.test_prune import age

ABOUT: dict[str, Any] = {
    "workload": workload().digest,
    "target": TARGET,
    "binding": {"s0": 64},
    "settings": {"rounds": 3},
    "proposer": "llm",
    "models": {"planner": "small-1"},
    "environment": {"threads": "1"},
}
DONE = {"outcome": "winner", "speedup": 1.5}


def made(store: Store, **given: Any) -> Run:
    run = store.runs.create(ABOUT | given)
    assert run is not None
    return run


def clocked(store: Store) -> RunStore:
    """A run store whose clock goes on by a second a run."""
    times: Iterator[datetime] = (datetime(2026, 11, 28, tzinfo=timezone.utc) + timedelta(seconds=n) for n in range(1000))
    return RunStore(store.files, now=lambda: next(times), token=lambda: "abcd")


def test_a_run_is_named_by_time_and_workload_and_found_again(store: Store, root: Path) -> None:
    """The directory holds what the caller gave, and format, id and time of creation."""
    run = made(store)
    assert re.fullmatch(rf"\d{{8}}-\d{{6}}-{workload().digest[:8]}-[0-9a-f]{{4}}", run.id)
    assert root / "v1" / "runs" / run.id == run.path
    found = Store.open(root).runs.open(run.id)
    assert {**ABOUT, "format": 1, "id": run.id, "created": run.about["created"]} == found.about
    assert (None, None) == (found.load_state(), found.result())


def test_state_and_result_come_back(store: Store, root: Path) -> None:
    """What is saved last counts; a result must name its outcome."""
    run = made(store)
    assert run.save_state({"round": 1}) and run.save_state({"round": 2}) and run.finish(DONE)
    again = Store.open(root).runs.open("last")
    assert ({"round": 2}, DONE) == (again.load_state(), again.result())
    with pytest.raises(InvalidRecord, match="outcome"):
        run.finish({})


def test_runs_are_listed_newest_first_and_progress_is_none_of_them(store: Store) -> None:
    """Directories of other names are left alone."""
    runs = clocked(store)
    ids = [run.id for _ in range(3) if (run := runs.create(ABOUT)) is not None]
    store.save_progress("w", TARGET, {})
    assert ids[::-1] == [run.id for run in store.runs.list()]


def test_a_start_of_an_id_names_one_run_or_is_an_error(store: Store) -> None:
    """The message says what was asked, and what there is."""
    runs = clocked(store)
    first, second = runs.create(ABOUT), runs.create(ABOUT)
    assert first is not None and second is not None
    assert second.id == store.runs.open(second.id[:16]).id
    with pytest.raises(UsageError, match="the start of 2 runs"):
        store.runs.open("2026")
    with pytest.raises(UsageError, match=r"no run 'x' among the 2"):
        store.runs.open("x")
    with pytest.raises(UsageError, match="no run"):
        store.runs.open("")


@pytest.mark.parametrize(
    "other",
    [{"binding": {"s0": 65}}, {"settings": {}}, {"proposer": "builtin"}, {"models": {}}, {"environment": {}}, {"target": "x"}],
)
def test_only_a_run_of_the_same_search_is_unfinished(store: Store, other: dict[str, Any]) -> None:
    """What differs in anything that decides a search is another search; the seed or the name do not."""
    run = made(store, seed=1)
    found = store.runs.unfinished(ABOUT | {"seed": 2})
    assert found is not None and run.id == found.id
    assert store.runs.unfinished(ABOUT | other) is None


@pytest.mark.parametrize(("outcome", "again"), [("winner", False), ("baseline", False), ("failed", False), ("interrupted", True)])
def test_a_run_that_has_ended_is_not_gone_on_with(store: Store, outcome: str, again: bool) -> None:
    """An interrupted one is."""
    made(store).finish({"outcome": outcome})
    assert again == (store.runs.unfinished(ABOUT) is not None)


def test_a_run_is_worked_on_by_one_process(store: Store, child: Child) -> None:
    """While another process has it, nobody waits for it, goes on with it or removes it; once that is killed it is free."""
    run = made(store)
    worker = child("hold-run", run.id)
    assert worker.stdout is not None and "True" == worker.stdout.readline().strip()
    with run.lock as mine:
        assert not mine
    holder = run.holder
    assert holder is not None and worker.pid == holder.pid
    assert (True, None, False) == (run.busy, store.runs.unfinished(ABOUT), store.runs.remove(run))
    worker.kill()
    worker.wait()
    assert (False, None) == (run.busy, run.holder)
    with run.lock as mine:
        assert mine
    assert store.runs.unfinished(ABOUT) is not None


def test_a_killed_process_leaves_a_whole_state(store: Store, child: Child) -> None:
    """Killed in the middle of saving, five times: what is there is one of the states that were saved."""
    run = made(store)
    for _ in range(5):
        writer = child("save-forever", run.id)
        assert writer.stdout is not None and "ready" == writer.stdout.readline().strip()
        while run.load_state() is None:
            pass
        writer.kill()
        writer.wait()
        state = run.load_state()
        assert state is not None
        assert str(state["number"] % 10) * 300_000 == state["text"]


@pytest.mark.parametrize("name", ["run.json", "state.json", "result.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 7}', b'{"outcome": NaN}', b"\xff"])
def test_damage_names_the_file(store: Store, root: Path, name: str, content: bytes) -> None:
    """Each file of a run is checked as it is read."""
    run = made(store)
    run.save_state({"round": 1})
    run.finish(DONE)
    (run.path / name).write_bytes(content)

    def read() -> object:
        found = Store.open(root).runs.open(run.id)
        return found.load_state(), found.result()

    if (name, content) == ("state.json", b'{"format": 7}'):
        assert ({"format": 7}, DONE) == read()  # an object: what it says is for the search to judge
        return
    with pytest.raises(DamagedEntry, match=re.escape(str(run.path / name))):
        read()


def test_a_damaged_run_does_not_hide_the_others(store: Store, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It costs one warning that names it."""
    good, bad = made(store), made(store)
    (bad.path / "run.json").write_text(json.dumps({**bad.about, "id": good.id}))
    assert [good.id] == [run.id for run in Store.open(root).runs.list()]
    assert 1 == len(caplog.records) and bad.id in caplog.text


def test_a_log_that_is_a_link_is_not_written_through(store: Store, tmp_path: Path) -> None:
    """Whoever gets the lock finds a place for plain files."""
    run = made(store)
    (tmp_path / "precious").write_text("precious")
    run.events_path.symlink_to(tmp_path / "precious")
    with run.lock as mine:
        assert mine and not run.events_path.is_symlink()
    assert "precious" == (tmp_path / "precious").read_text()


def test_nothing_is_created_where_nothing_can_be_written(root: Path, tmp_path: Path) -> None:
    """A root that is not there, that may only be read, or that is a file gives no run, and no error."""
    (tmp_path / "file").write_text("")
    assert Store.open(tmp_path / "file").runs.create(ABOUT) is None
    assert Store.open(tmp_path / "absent", readonly=True).runs.create(ABOUT) is None
    run = made(Store.open(root))
    reader = Store.open(root, readonly=True)
    assert (None, None) == (reader.runs.create(ABOUT), reader.runs.unfinished(ABOUT))
    assert [run.id] == [r.id for r in reader.runs.list()]
    found = reader.runs.open(run.id)
    assert (False, False, False) == (found.save_state({}), found.finish(DONE), reader.runs.remove(found))


def test_a_root_that_vanishes_ends_no_search(store: Store, root: Path) -> None:
    """What cannot be kept any more is not, without an error."""
    run = made(store)
    with run.lock as mine:
        assert mine
        shutil.rmtree(root)
        assert (False, False) == (run.save_state({}), run.finish(DONE))
        assert (None, None, None) == (run.load_state(), run.result(), store.runs.create(ABOUT))
    assert () == store.runs.list()


def test_what_could_not_be_read_back_is_not_created(store: Store) -> None:
    """A run without a digest of its workload, or with what is not JSON."""
    for wrong in ({"workload": "no digest"}, {"models": None}, {"seed": float("nan")}, {"seed": object()}):
        with pytest.raises(InvalidRecord):
            store.runs.create(ABOUT | wrong)
    assert () == store.runs.list()


def test_a_removed_run_is_gone(store: Store) -> None:
    """With all its files."""
    run = made(store)
    run.events_path.write_text("{}\n")
    assert store.runs.remove(run)
    assert (False, ()) == (run.path.exists(), store.runs.list())


def test_prune_takes_runs_as_a_whole_and_leaves_those_in_use(store: Store, root: Path) -> None:
    """One young file keeps a run, and so does a process that works on it."""
    young, busy, old = made(store), made(store), made(store)
    for run in (young, busy, old):
        run.save_state({})
    with busy.lock as mine:
        assert mine
        age(root, 200)
        young.save_state({"round": 2})
        report = collect(store)
    assert (f"v1/runs/{old.id}",) == report.removed
    assert {young.id, busy.id} == {run.id for run in store.runs.list()}
    assert 2 == store.stats()["kinds"]["runs"]["files"]


def test_prune_keeps_a_bounded_number_of_runs(store: Store, root: Path) -> None:
    """The newest ones; and a store that must shrink loses runs before records."""
    runs = clocked(store)
    ids = [run.id for _ in range(RUNS_KEPT + 3) if (run := runs.create(ABOUT)) is not None]
    age(root, 1)
    assert {f"v1/runs/{run_id}" for run_id in ids[:3]} == set(collect(store).removed)
    kept = store.put(winner(), workload())
    collect(store, max_files=3)
    assert ((), [kept]) == (store.runs.list(), [name for name, _ in store.iter_records()])
