"""The store stays within its limits and loses what is worth least first."""

from __future__ import annotations

import os
import time
from pathlib import Path

from accelopt_cache import Store, collect
from tests.cache.samples import TARGET, baseline, experience, winner, workload


def age(root: Path, days: float, pattern: str = "*") -> None:
    """Make every matching file look as if it was last used `days` ago."""
    for path in (root / "v1").rglob(pattern):
        os.utime(path, (time.time() - days * 86400,) * 2, follow_symlinks=False)


def files(root: Path) -> int:
    return len([p for p in (root / "v1").rglob("*") if p.is_file() and p.parent.name != "locks"])


def test_a_store_within_its_limits_keeps_everything(store: Store, root: Path) -> None:
    """Also what is old, as long as no age is given."""
    store.put(winner(), workload())
    store.put(baseline())
    store.put_graph("g", {})
    store.add_experience(experience())
    age(root, 300)
    assert () == collect(store).removed


def test_leftovers_go_after_a_grace_period(store: Store, root: Path) -> None:
    """Temporaries, old quarantine, abandoned progress and sources that no record names; fresh ones stay."""
    keep = store.put(winner(), workload())
    gone = store.put(winner(text="gone", us=11.0), workload())
    bad = store.put(winner(text="bad", us=12.0), workload())
    store.save_progress("w", TARGET, {"round": 1})
    store.remove(gone)
    store.quarantine(bad, "bad")
    (root / "v1" / "tmp").mkdir()
    (root / "v1" / "tmp" / "x").write_text("x")
    (root / "v1" / "records" / ".tmp-x").write_text("x")
    assert () == collect(store).removed
    age(root, 40)
    report = collect(store)
    assert {"blobs": 2, "quarantine": 2, "runs": 1, "tmp": 1, "records": 1} == {
        kind: sum(name.startswith(f"v1/{kind}/") for name in report.removed)
        for kind in ("blobs", "quarantine", "runs", "tmp", "records")
    }
    assert 7 == len(report.removed)
    assert [keep] == [name for name, _ in Store.open(root).iter_records()]
    assert store.verify_entry(keep) is None


def test_a_dry_run_reports_and_removes_nothing(store: Store, root: Path) -> None:
    """What it names is what the real run removes."""
    for us in (10.0, 20.0, 30.0):
        store.put(winner(text=f"k{us}", us=us), workload())
    age(root, 1)
    before = files(root)
    dry = collect(store, max_files=5, dry_run=True)
    assert before == files(root)
    real = collect(store, max_files=5)
    assert (True, False) == (dry.dry_run, real.dry_run)
    assert dry.removed == real.removed
    assert 5 == real.files_after == files(root)
    assert real.freed_bytes == real.bytes_before - real.bytes_after > 0


def test_over_the_limit_the_beaten_go_before_the_winners(store: Store, root: Path) -> None:
    """Rebuildable files first, then records that another one beat; the best stays, with its source and workload."""
    best = store.put(winner(text="best", us=1.0), workload())
    for us in (10.0, 20.0, 30.0):
        store.put(winner(text=f"k{us}", us=us), workload())
    (root / "k.so").write_bytes(b"elf")
    store.put_built(TARGET, "key", root / "k.so")
    age(root, 1)
    report = collect(store, max_files=3)
    assert 3 == report.files_after
    assert store.built(TARGET, "key") is None
    assert [best] == [name for name, _ in Store.open(root).iter_records()]
    assert winner(text="best", us=1.0) == store.best(workload().digest, TARGET, {"s0": 64})


def test_winners_go_by_last_use(store: Store, root: Path) -> None:
    """A kernel that was served lately outlives one that was not; nothing it referred to is left behind."""
    used, unused = workload(8), workload(16)
    store.put(winner(unused), unused)
    store.put(winner(used, text="used"), used)
    age(root, 10)
    assert store.best(used.digest, TARGET, {"s0": 64}) is not None
    collect(store, older_than_days=5)
    assert [used.digest] == [record.workload for _, record in Store.open(root).iter_records()]
    assert store.workload(unused.digest) is None
    assert {"records": 1, "blobs/sha256": 1, "workloads": 1} == {
        kind: store.stats()["kinds"][kind]["files"] for kind in ("records", "blobs/sha256", "workloads")
    }


def test_the_byte_limit_holds(store: Store, root: Path) -> None:
    """Allocated space is counted."""
    for number in range(20):
        store.put(winner(text=f"// {number} " + "x" * 50_000, us=10.0 + number), workload())
    age(root, 1)
    report = collect(store, max_bytes=200_000)
    assert report.bytes_after <= 200_000
    assert 1 <= len(list(Store.open(root).iter_records())) <= 4


def test_only_one_process_prunes(store: Store) -> None:
    """A second one leaves at once and says so; a read-only store is not pruned."""
    with store.claim("prune", "all"):
        assert "another process prunes" == collect(store).skipped
    assert "read-only" == collect(Store.open(readonly=True)).skipped


def test_any_single_missing_file_leaves_the_store_usable(store: Store, root: Path) -> None:
    """Delete one file at a time: puts and reads still work."""
    store.put(winner(), workload())
    for path in [p for p in root.rglob("*") if p.is_file()]:
        data = path.read_bytes()
        path.unlink()
        again = Store.open(root)
        again.winners(workload().digest, TARGET)
        again.put(winner(), workload())
        assert (winner(),) == Store.open(root).winners(workload().digest, TARGET)
        path.write_bytes(data)


def test_stats_count_by_kind_and_target(store: Store) -> None:
    """Plain numbers for `accelopt cache stats`."""
    store.put(winner(), workload())
    store.put(baseline())
    stats = store.stats()
    assert ({TARGET: 1}, 1) == ({t: n for t, n in stats["winners"].items() if n}, stats["baselines"])
    assert (2, 1, 1) == tuple(stats["kinds"][kind]["files"] for kind in ("records", "blobs/sha256", "workloads"))
    assert (4, True, "", 0) == (stats["files"], stats["writable"], stats["why"], stats["in_memory"])


def test_stats_say_whether_a_root_can_be_written_however_it_was_opened(store: Store, root: Path, tmp_path: Path) -> None:
    """Looking at a store opens it for reading alone; one that is not there says so."""
    store.put(winner(), workload())
    looked_at, absent = Store.open(root, readonly=True).stats(), Store.open(tmp_path / "absent", readonly=True).stats()
    assert (True, "") == (looked_at["writable"], looked_at["why"])
    assert (False, "is not there") == (absent["writable"], absent["why"])


def test_no_source_goes_while_a_record_cannot_be_read(store: Store, root: Path) -> None:
    """Nobody knows which one it refers to."""
    place = store.put(winner(), workload())
    (record,) = (root / "v1" / "records").rglob(f"{place}*")
    whole = record.read_bytes()
    record.write_text("{}")
    age(root, 1)
    assert () == collect(store).removed
    record.write_bytes(whole)
    assert store.verify_entry(place) is None


def test_what_a_compile_uses_stays(store: Store, root: Path) -> None:
    """Its graph, its built kernels and the verdicts that the baseline is best, as long as something asks for them; a look at a
    graph is no use of it."""
    store.put(baseline())
    store.put_graph("used", {"a": 1})
    store.put_graph("looked-at", {"a": 1})
    (root / "k.so").write_bytes(b"elf")
    store.put_built(TARGET, "used", root / "k.so")
    store.put_built(TARGET, "unused", root / "k.so")
    age(root, 10)
    store.stamp(baseline())
    store.graph("used", used=True)
    store.graph("looked-at")
    store.built(TARGET, "used")
    collect(store, older_than_days=5)
    again = Store.open(root)
    assert ("used",) == again.graphs()
    assert again.built(TARGET, "used") is not None
    assert again.built(TARGET, "unused") is None
    assert ["baseline"] == [record.outcome for _, record in again.iter_records()]


def test_compiled_baselines_count_and_go_first(store: Store, root: Path) -> None:
    """Nothing is lost with them but the time of a compiler."""
    keep = store.put(winner(), workload())
    compiled = root / "v1" / "baselines" / "native" / "ab" / "code.so"
    compiled.parent.mkdir(parents=True)
    compiled.write_bytes(b"x" * 100_000)
    assert {"files": 1, "bytes": 102_400} == store.stats()["kinds"]["baselines"]
    age(root, 1)
    report = collect(store, max_bytes=50_000)
    assert ("v1/baselines/native/ab/code.so",) == report.removed
    assert [keep] == [name for name, _ in Store.open(root).iter_records()]
