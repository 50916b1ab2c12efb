"""What the region suite claims, and how it survives its cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import region_report, table
from benchmarks.region_job import stream

FAMILIES = {
    "norm": {"floor": {"f32": 1.3, "bf16": 1.1}, "goal": {"f32": 1.6, "bf16": 1.3}},
    "copy": {"floor": {"f32": 1.0, "bf16": 1.0}, "goal": {"f32": 1.3, "bf16": 1.3}},
}


def case(family: str, ratio: float, *, adopted: int = 1, dtype: str = "f32", **more: Any) -> dict[str, Any]:
    about = {"family": family, "dtype": dtype, "adopted": adopted, "problems": [], "regions": [], "refused": {}}
    return {**about, "ratio": ratio, "low": ratio - 0.02, "high": ratio + 0.02, **more}


def test_a_family_meets_its_floor_by_its_geomean_and_its_worst_case_is_shown() -> None:
    """Geomean of 1.0 and 4.0 is 2.0; the case below the floor is counted, not hidden."""
    summed = region_report.summary({"a": case("norm", 1.0), "b": case("norm", 4.0)}, FAMILIES)
    (row,) = summed["families"]
    assert (2.0, True, 1.0, 1) == (row["geomean"], row["met"], row["worst"], row["below_floor"])
    assert {"case": "a", "ratio": 1.0} == summed["worst"]


def test_what_falls_back_to_inductor_meets_a_floor_of_never_slower_within_the_noise() -> None:
    """0.98 is Inductor against itself; 0.9 is slower, and listed as such."""
    assert region_report.summary({"a": case("copy", 0.98, adopted=0)}, FAMILIES)["families"][0]["met"]
    summed = region_report.summary({"a": case("copy", 0.9)}, FAMILIES)
    assert not summed["families"][0]["met"]
    assert {"a": 0.9} == summed["slower"]


def test_a_case_without_a_ratio_is_named_and_left_out_of_the_means() -> None:
    """A case that died counts as not measured, never as 1.0."""
    summed = region_report.summary({"a": case("norm", 2.0), "b": {"family": "norm", "dtype": "f32", "died": "-6"}}, FAMILIES)
    assert (1, 2.0, ["b"]) == (summed["cases"], summed["geomean"], summed["failed"])


def test_an_adopted_kernel_that_loses_in_a_fresh_process_is_listed() -> None:
    """Below 0.97 of its baseline in the second measurement."""
    cases = {"a": case("norm", 2.0, recheck={"ratio": 0.96}), "b": case("norm", 2.0, recheck={"ratio": 1.9})}
    summed = region_report.summary(cases, FAMILIES)
    assert ({"a": 0.96}, 0.96, 2) == (summed["recheck_below"], summed["recheck_worst"], summed["rechecked"])


def test_a_case_that_nothing_was_adopted_for_says_why() -> None:
    """The first line of each region's reason, or why there was no region."""
    tried = case("norm", 1.0, adopted=0, regions=[{"reason": "the seed was rejected: run\n\nand a trace", "outcome": "BASELINE"}])
    assert "the seed was rejected: run" == region_report.reason(tried)
    assert "no region: only views" == region_report.reason(case("norm", 1.0, adopted=0, refused={"only views": 3}))


def test_false_wins_are_counted_at_the_bounds_that_decide_adoption() -> None:
    """A low end of 1.04 passes 1.03 but not 1.05."""
    trials = [{"ratio": 1.06, "low": 1.04}, {"ratio": 0.99, "low": 0.97}]
    counted = region_report.false_wins(trials)
    assert (2, 1, 1, 0) == (counted["trials"], counted["over_1.00"], counted["over_1.03"], counted["over_1.05"])


def test_a_case_that_kills_its_process_costs_no_other_case_its_result() -> None:
    """The deadly case is reported with its exit status, and a new process goes on behind it."""
    found = list(stream({}, ["one", "deadly", "two"], {}, 60.0, module="tests.benchmarks.dying_child"))
    assert ["one", "deadly", "two"] == [result["case"] for result in found]
    assert "its process ended with -6" == found[1]["died"]
    assert [1.5, 1.5] == [found[0]["ratio"], found[2]["ratio"]]


def test_the_readme_table_shows_full_results_of_every_thread_count(tmp_path: Path) -> None:
    """One table per thread count and instruction level, none from a quick run; a missed floor is marked."""
    around = {"device": "CPU", "versions": {"torch": "2"}, "compiler": "g++", "commit": "abc", "date": "2026-01-01T00:00:00"}
    cases = {"a": case("norm", 1.2), "b": case("norm", 1.5, dtype="bf16")}
    files = {"regions-2t": (2, {}), "regions-1t-avx2": (1, {"level": "avx2"}), "regions-1t": (1, {}), "regions-quick-1t": (1, {})}
    for name, (threads, level) in files.items():
        data = {"environment": {**around, "threads": threads, **level}, "summary": region_report.summary(cases, FAMILIES)}
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    shown = table.render(tmp_path)
    titles = [line.partition(" functions at ")[2].partition(",")[0] for line in shown.splitlines() if " functions at " in line]
    assert ["1 thread", "2 threads", "1 thread with no more than AVX2 on all sides"] == titles
    assert 3 == shown.count("| norm | 1.20x | 1.20x | 1.3x missed | 1.50x | 1.50x | 1.1x | 2 of 2 |")
