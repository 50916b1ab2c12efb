"""Candidates: kernels that no device has decided on are kept, found, and never served."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accelopt_cache import Store, collect
from accelopt_cache.layout import split_record
from accelopt_cache.reuse import choose
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records import Record, Timing, timing_from_json
from tests.cache.samples import TARGET, baseline, candidate, experience, winner, workload
from tests.cache.test_prune import age, files


def test_a_candidate_is_kept_and_never_served(store: Store) -> None:
    """It is read back as it was, and neither the best kernel, nor a winner, nor part of the key of compiled graphs."""
    before = store.keyset(TARGET)
    name = store.put(candidate(us=0.001), workload())
    assert ((name, candidate(us=0.001)),) == store.candidates(workload().digest, TARGET)
    assert store.best(workload().digest, TARGET, {"s0": 64}) is None
    assert () == store.winners(workload().digest, TARGET)
    assert before == store.keyset(TARGET)
    assert store.verify_entry(name) is None


def test_a_candidate_beside_a_winner_changes_nothing(store: Store) -> None:
    """However fast somebody estimates it to be."""
    store.put(winner(us=10.0), workload())
    store.put(candidate(text="faster", us=0.001, created="2026-02-02"), workload())
    assert winner(us=10.0) == store.best(workload().digest, TARGET, {"s0": 64})


def test_nothing_but_a_device_proven_winner_is_ever_chosen() -> None:
    """Not even a record that no file could hold."""
    odd = [replace(winner(), rung="simulated"), replace(winner(), rung="compiled"), candidate(), baseline()]
    assert choose([(str(n), r) for n, r in enumerate(odd)], {"s0": 64}, environment=None, max_distance=9.0) is None


def test_the_outcome_is_in_the_name_of_the_file(store: Store, root: Path) -> None:
    """So that a listing tells winners, and a reader that knows no candidates passes them over."""
    name = store.put(candidate(), workload())
    (file,) = (root / "v1" / "records").rglob("*.json")
    assert f"{name}.candidate.json" == file.name
    assert (name, "candidate") == split_record(file.name)
    assert split_record(f"{name}.guess.json") is None


def _with(record: Record, **timing: Any) -> Record:
    assert record.timing is not None
    return replace(record, timing=replace(record.timing, **timing))


@pytest.mark.parametrize(
    "record",
    [
        replace(winner(), rung="simulated"),
        replace(winner(), rung="compiled"),
        replace(winner(), timing=candidate().timing),
        replace(candidate(), outcome="winner"),
        replace(candidate(), rung="device"),
        replace(candidate(), timing=winner().timing),
        replace(candidate(), errors=None),
        replace(candidate(), timing=None),
        replace(candidate(), source=None),
        replace(candidate(), rung="guessed"),  # type: ignore[arg-type]
        replace(baseline(), rung="simulated"),
        replace(baseline(), outcome="maybe"),  # type: ignore[arg-type]
        _with(candidate(), blocks=1),
        _with(candidate(), low=0.1),
        _with(candidate(), high=99.0),
        _with(candidate(), basis="felt"),
    ],
)
def test_what_no_search_leaves_is_refused(store: Store, record: Record) -> None:
    """A winner that ran nowhere, an estimate dressed as a measurement, a candidate of the device: neither stored nor read."""
    with pytest.raises(InvalidRecord):
        store.put(record)
    data = record.to_json()
    with pytest.raises(InvalidRecord):
        Record.from_json(json.loads(json.dumps(data)))


def test_a_measured_timing_is_written_as_before() -> None:
    """Without a basis: records of versions that knew no estimates read the same, and keep their names."""
    timing = winner().timing
    assert timing is not None
    assert "basis" not in timing.to_json()
    assert timing == timing_from_json(timing.to_json())
    estimate = candidate().timing
    assert estimate is not None
    assert "estimated" == estimate.to_json()["basis"]
    assert estimate == timing_from_json(estimate.to_json())


def test_a_forged_candidate_is_damage(store: Store, root: Path) -> None:
    """A file that was renamed into a winner is not served."""
    name = store.put(candidate(), workload())
    (file,) = (root / "v1" / "records").rglob("*.json")
    file.rename(file.with_name(f"{name}.json"))
    assert store.best(workload().digest, TARGET, {"s0": 64}) is None
    assert () == store.records(workload().digest)


def test_pruning_keeps_what_a_candidate_needs(store: Store, root: Path) -> None:
    """Its source and its workload; and no estimate beats a measurement at the same binding."""
    kept = {store.put(winner(us=10.0), workload()), store.put(candidate(text="estimated", us=1.0), workload())}
    age(root, 40)
    assert () == collect(store).removed
    assert kept == {name for name, _ in store.iter_records()}


def test_over_a_limit_candidates_go_before_baselines_and_winners(store: Store, root: Path) -> None:
    """A winner is worth a search and a device, a candidate a search."""
    store.put(winner(), workload())
    store.put(baseline(), workload())
    gone = store.put(candidate(text="estimated"), workload())
    age(root, 2)
    report = collect(store, max_files=files(root) - 1)
    assert any(gone in name for name in report.removed)
    assert {"winner", "baseline"} == {outcome for *_, outcome in store.walk()}


def test_statistics_count_candidates_by_target(store: Store) -> None:
    """Apart from winners."""
    store.put(winner(), workload())
    store.put(candidate(), workload())
    found = store.stats()
    assert ({TARGET: 1}, {TARGET: 1}, 0) == (found["winners"], found["candidates"], found["baselines"])


def test_a_lesson_from_estimates_is_another_one(store: Store) -> None:
    """It says what it rests on; a measured one is stored as it was before there were estimates."""
    measured, estimated = experience(), replace(experience(), basis="estimated")
    assert store.add_experience(measured) != store.add_experience(estimated)
    assert {"measured", "estimated"} == {e.basis for e in store.experiences("cpp")}
    with pytest.raises(InvalidRecord):
        store.add_experience(replace(experience(), basis="felt"))  # type: ignore[arg-type]


def test_an_estimate_is_a_timing_without_blocks() -> None:
    """What reads one back says what is wrong with it."""
    data = {
        "kernel_us": 1.0,
        "baselines_us": {"unfused": 2.0},
        "speedup": 2.0,
        "low": 2.0,
        "high": 2.0,
        "blocks": 0,
        "threads": 1,
    }
    assert Timing(**data, basis="estimated") == timing_from_json(data | {"basis": "estimated"})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="blocks or an interval"):
        timing_from_json(data | {"basis": "estimated", "blocks": 3})
