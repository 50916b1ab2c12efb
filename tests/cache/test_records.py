"""What is put comes back, once, under a name that is its content; and what is chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from accelopt_cache import Store, record_id
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records import Record
from tests.cache.samples import TARGET, baseline, candidate, winner, workload


def best(store: Store, s0: int = 64, **options: object) -> Record | None:
    return store.best(workload().digest, TARGET, {"s0": s0}, **options)  # type: ignore[arg-type]


def test_a_record_comes_back_equal_in_another_store(store: Store, root: Path) -> None:
    """Every field survives the disk, the kernel's text included, and the id is the digest of the file."""
    record = winner()
    name = store.put(record, workload())
    again = Store.open(root, readonly=True)
    assert (record,) == again.winners(workload().digest, TARGET)
    assert workload() == again.workload(workload().digest)
    assert name == record_id(record) == record_id(again.winners(workload().digest, TARGET)[0])
    assert [(name, record)] == list(again.iter_records())
    assert again.verify_entry(name) is None


def test_records_lists_both_outcomes_and_winners_only_kernels(store: Store) -> None:
    """A baseline record is kept beside the winners, oldest first; other targets stay apart."""
    store.put(baseline())
    store.put(winner())
    store.put(winner(target="cpp-aarch64-neon"))
    assert (winner(), baseline()) == store.records(workload().digest, TARGET)
    assert (winner(),) == store.winners(workload().digest, TARGET)
    assert 3 == len(store.records(workload().digest))
    assert () == store.records(workload(16).digest)


def test_the_same_record_is_stored_once(store: Store, root: Path) -> None:
    """Equal content has one name, so that two searches that find the same do not add up."""
    assert store.put(winner(), workload()) == store.put(winner(), workload())
    assert 3 == len([p for p in (root / "v1").rglob("*") if p.is_file()])


def test_a_kernel_and_its_record_take_at_most_four_files(store: Store, root: Path) -> None:
    """A shared home has an inode quota."""
    store.put(winner(), workload())
    store.put(winner(us=9.0), workload())
    assert 4 == len([p for p in (root / "v1").rglob("*") if p.is_file()])


@pytest.mark.parametrize(
    "wrong",
    [
        replace(winner(), workload="../../etc"),
        replace(winner(), target="a/b"),
        replace(winner(), rung="guessed"),  # type: ignore[arg-type]
        replace(winner(), provenance={"object": object()}),
        replace(winner(), timing=None),
        replace(winner(us=float("nan"))),
        replace(winner(us=0.0)),
        winner(text="x" * (9 << 20)),
    ],
    ids=["workload", "target", "rung", "provenance", "timing", "nan", "zero", "huge"],
)
def test_what_could_not_be_read_back_is_refused(store: Store, wrong: Record) -> None:
    """A wrong record is a bug of the caller, reported where it is made and not when it is read."""
    with pytest.raises(InvalidRecord):
        store.put(wrong)
    assert [] == list(store.iter_records())


def test_a_record_is_not_stored_with_another_workload(store: Store) -> None:
    """The digest ties the two together."""
    with pytest.raises(InvalidRecord):
        store.put(winner(), workload(16))


def test_best_prefers_the_nearest_binding_then_the_fastest(store: Store) -> None:
    """A kernel measured near the wanted size beats a faster one measured far from it."""
    near, near_slow, far = winner(us=10.0, s0=64), winner(us=12.0, s0=64), winner(us=1.0, s0=256)
    for record in (near_slow, far, near):
        store.put(record)
    assert near == best(store, 70)
    assert far == best(store, 256)
    assert far == best(store, 1024)
    assert best(store, 1025) is None
    assert far == best(store, 1 << 20, max_distance=20.0)


def test_a_kernel_that_is_not_admitted_hides_no_other(store: Store) -> None:
    """The next one serves, as where a newer version's winner is refused by the screen of an older; or none does."""
    for us in (10.0, 20.0, 30.0):
        store.put(winner(us=us), workload())
    assert winner(us=20.0) == best(store, admit=lambda record: record != winner(us=10.0))
    assert None is best(store, admit=lambda record: False)


def test_best_never_serves_a_lower_rung_or_another_target(store: Store) -> None:
    """Only a kernel proven on the device is launched."""
    store.put(candidate())
    store.put(replace(candidate(), rung="compiled"))
    store.put(winner(target="cpp-x86_64-avx512"))
    assert best(store) is None


@pytest.mark.parametrize(("noise", "us", "expected"), [(0.0, 10.1, "old"), (0.0, 10.3, "new"), (0.05, 10.4, "old")])
def test_equally_fast_kernels_are_settled_by_age(store: Store, noise: float, us: float, expected: str) -> None:
    """Within the noise the older one stays, so that a near tie does not change results from run to run."""
    records = {
        "old": winner(text="old", us=us, created="2026-01-01"),
        "new": winner(text="new", us=10.0, created="2026-02-01", noise=noise),
    }
    for record in records.values():
        store.put(record)
    assert records[expected] == best(store)


def test_equally_old_ties_are_settled_by_name(store: Store) -> None:
    """Any number of processes choose the same kernel, in whatever order they were stored."""
    records = [winner(text=f"k{n}") for n in range(5)]
    for record in records:
        store.put(record)
    assert min(records, key=record_id) == best(store)


def test_a_reproven_record_serves_before_one_that_must_be_proven(store: Store) -> None:
    """After a toolchain change the old record stays, and the one made in the new environment is chosen."""
    old, new = winner(us=5.0, environment={"compiler": "g++ 12"}), winner(us=9.0, environment={"compiler": "g++ 13"})
    store.put(old)
    assert old == best(store, environment={"compiler": "g++ 13"})
    store.put(new)
    assert new == best(store, environment={"compiler": "g++ 13"})
    assert old == best(store, environment={"compiler": "g++ 12"})
    assert best(store, environment={"compiler": "g++ 12", "isa": "avx512"}) is not None


def test_a_record_timed_here_serves_before_a_nearer_one_timed_elsewhere(store: Store) -> None:
    """What may be launched at once is never hidden by what may not."""
    elsewhere, here = winner(us=5.0, s0=64, environment={"threads": "8"}), winner(us=9.0, s0=128, environment={"threads": "2"})
    store.put(elsewhere)
    store.put(here)
    assert here == best(store, environment={"threads": "2"})
    assert elsewhere == best(store)


def test_a_later_baseline_in_this_environment_demotes_an_old_winner(store: Store) -> None:
    """A winner that lost its advantage is not proven again at every start."""
    store.put(winner(environment={"compiler": "g++ 12"}))
    store.put(baseline(environment={"compiler": "g++ 13"}))
    assert best(store, environment={"compiler": "g++ 13"}) is None
    assert winner(environment={"compiler": "g++ 12"}) == best(store, environment={"compiler": "g++ 12"})


@pytest.mark.parametrize(
    ("at", "created", "serves"),
    [
        (16, "2025-12-31", False),  # nearer
        (64, "2026-01-02", False),  # as near, and later
        (64, "2025-12-31", True),  # a later search found the winner
        (128, "2026-01-02", True),  # farther
    ],
)
def test_a_winner_serves_where_no_search_nearer_by_found_the_baseline_better(
    store: Store, at: int, created: str, serves: bool
) -> None:
    """A winner of 64 rows, asked for 32, all in one environment."""
    here = {"threads": "2"}
    store.put(winner(s0=64, environment=here))
    store.put(baseline(s0=at, created=created, environment=here))
    assert serves == (best(store, s0=24 if at == 16 else 32, environment=here) is not None)
    assert best(store, s0=64, environment={"threads": "8"}) is not None


def test_the_keyset_follows_the_winners_of_its_target_only(store: Store) -> None:
    """Compiled graphs are keyed by it: it changes when a kernel comes or goes, and for nothing else."""
    empty = store.keyset(TARGET)
    store.put(baseline())
    store.put(winner(target="cpp-aarch64-neon"))
    assert empty == store.keyset(TARGET)
    first = store.put(winner())
    one = store.keyset(TARGET)
    assert empty != one
    second = store.put(winner(us=9.0))
    assert one != store.keyset(TARGET)
    store.remove(second)
    assert one == store.keyset(TARGET)
    store.quarantine(first, "wrong result")
    assert empty == store.keyset(TARGET)


def test_the_snapshot_token_follows_every_record(store: Store) -> None:
    """Equal tokens mean that there is nothing new to read."""
    before = store.snapshot_token()
    assert before == store.snapshot_token()
    store.put(baseline())
    assert before != store.snapshot_token()


def test_a_removed_record_stays_away_when_a_copy_comes_back(store: Store, root: Path) -> None:
    """A tombstone outlives a merge with an older copy; only a new put lifts it."""
    name = store.put(winner())
    (path,) = (root / "v1" / "records").rglob("*.json")
    copy = path.read_bytes()
    assert store.remove(name)
    assert not store.remove(name)
    path.write_bytes(copy)
    assert () == Store.open(root).winners(workload().digest, TARGET)
    store.put(winner())
    assert (winner(),) == store.winners(workload().digest, TARGET)


def test_a_quarantined_kernel_is_out_of_use_for_every_process(store: Store, root: Path) -> None:
    """A kernel that failed at run time is skipped by all, and its file kept for people to look at."""
    store.quarantine(store.put(winner()), "segmentation fault")
    assert best(Store.open(root)) is None
    (place, reason), *more = store.quarantined("")
    assert ([], "failed", "segmentation fault") == (more, place.name.split(".")[1], reason)


def test_a_path_outside_the_store_is_never_quarantined(store: Store, tmp_path: Path) -> None:
    """Only what lies in the store can be moved."""
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert not store.quarantine(other, "no")
    assert not store.quarantine("../other.json", "no")
    assert other.exists()


def test_a_store_copied_to_another_place_serves(store: Store, root: Path, tmp_path: Path) -> None:
    """Nothing in it is absolute; a symbolic link as the root is followed."""
    store.put(winner(), workload())
    root.rename(tmp_path / "moved")
    (tmp_path / "link").symlink_to(tmp_path / "moved")
    assert winner() == best(Store.open(tmp_path / "moved"))
    assert winner() == best(Store.open(tmp_path / "link"))


def test_reading_a_readonly_store_writes_nothing(store: Store, root: Path) -> None:
    """Serving must not touch a shared, read-only cache; what is put then stays in the process."""
    store.put(winner(), workload())

    def state() -> list[tuple[str, float]]:
        return sorted((str(p), p.lstat().st_mtime_ns) for p in root.rglob("*"))

    before = state()
    again = Store.open(root, readonly=True)
    assert winner() == best(again)
    again.put(winner(us=1.0))
    again.put_graph("g", {"a": 1})
    assert winner(us=1.0) == best(again)
    assert {"a": 1} == again.graph("g")
    assert before == state()
    assert winner() == best(Store.open(root))
