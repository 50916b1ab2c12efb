"""The table of whole models, and what a later run of the day keeps of an earlier one."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import harness, table


def row(commit: str) -> dict[str, object]:
    variants = {kind: {"median_s": 0.5, "worst_error": 1e-6} for kind in ("eager", "inductor", "accelopt")}
    return {"commit": commit, "measure": {"variants": variants, "over_inductor": 1.1, "over_eager": 1.2}}


def test_each_model_is_shown_with_the_commit_that_it_was_measured_at(tmp_path: Path) -> None:
    around = {"device": "CPU", "versions": {"torch": "2"}, "compiler": "g++", "commit": "new", "date": "2026-01-01", "threads": 2}
    found = {
        "environment": around,
        "workloads": {"bert": row("old"), "t5": row("new"), "cnn": {"failed": "tune", "commit": "new"}},
    }
    (tmp_path / "models-amd-epyc-2026-01-01.json").write_text(json.dumps(found))
    lines = table.render(tmp_path).splitlines()
    assert [line.split(" | ")[-1] for line in lines if line.startswith(("| bert", "| t5"))] == ["old |", "new |"]
    assert sum("failed" in line for line in lines) == 1


def test_a_later_run_of_the_day_finds_what_an_earlier_one_wrote(tmp_path: Path) -> None:
    assert {} == harness.of_today("models", quick=False, directory=tmp_path)
    harness.write_result("models", {"workloads": {"bert": row("old")}}, quick=False, directory=tmp_path)
    assert {"bert"} == set(harness.of_today("models", quick=False, directory=tmp_path)["workloads"])
    assert {} == harness.of_today("models", quick=True, directory=tmp_path)


def test_results_of_two_devices_stand_beside_each_other(tmp_path: Path) -> None:
    """The newest of each; none of a quick run."""
    around = {"versions": {"torch": "2"}, "compiler": "g++", "commit": "new", "threads": 2}
    for device, name, date in (
        ("Old", "a", "2026-01-01"),
        ("A", "a", "2026-01-02"),
        ("B", "b", "2026-01-01"),
        ("Q", "quick-a", "2026-01-02"),
    ):
        found = {"environment": {**around, "device": device, "date": date}, "workloads": {"bert": row("new")}}
        (tmp_path / f"models-{name}-{date}.json").write_text(json.dumps(found))
    titles = [line for line in table.render(tmp_path).splitlines() if line.startswith("Whole models")]
    assert ["A,", "B,"] == [title.split("(")[1].split()[0] for title in titles]


def test_processors_of_one_name_and_two_generations_are_two_devices() -> None:
    about = "processor\t: 0\ncpu family\t: {}\nmodel\t\t: {}\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\n"
    assert "AMD EPYC (family 25, model 17)" == harness.cpu_model(about.format(25, 17))
    assert "AMD EPYC (family 26, model 2)" == harness.cpu_model(about.format(26, 2))
    assert "Neoverse" == harness.cpu_model("model name : Neoverse\n")
    assert "" == harness.cpu_model("Hardware: none")
