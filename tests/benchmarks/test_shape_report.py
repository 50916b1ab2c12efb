"""What is kept of `check_shapes`, and what counts as shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import harness, shape_report


def kind(**other: Any) -> dict[str, Any]:
    """Of one kind of calls; right unless told otherwise."""
    worst = {"inductor": {"l2": 2e-7, "peak": 4e-7}, "accelopt": {"l2": 1e-7, "peak": 2e-7}}
    right = {"graphs": {"accelopt": 2, "inductor": 2}, "calls": 9, "fallbacks": 0, "problems": [], "tensors": 5, "wrong": []}
    return {**right, "worst": worst, **other}


def variant(shapes: int = 20, **other: Any) -> dict[str, Any]:
    return {"shapes": shapes, "seconds": 1.0, "inference": kind(), "training": kind(), **other}


def test_every_kind_of_fault_is_a_failure() -> None:
    """A wrong tensor, one graph more, a fallback, a problem, no launch at all, a process that died."""
    assert [] == shape_report.failures(variant())
    assert ["the process failed"] == shape_report.failures({"failed": "Killed"})
    faults = {"wrong": [{}], "graphs": {"accelopt": 3, "inductor": 2}, "fallbacks": 1, "problems": ["declined"]}
    for name, value in faults.items():
        assert 1 == len(shape_report.failures(variant(training=kind(**{name: value})))), name
    assert ["no kernel was launched"] == shape_report.failures(variant(inference=kind(calls=0), training=kind(calls=0)))


def test_only_a_right_variant_with_as_many_shapes_is_skipped_on_resume() -> None:
    """What is absent, has fewer shapes or failed is run again."""
    assert shape_report.is_shown(variant(), 20)
    assert not shape_report.is_shown(variant(6), 20)
    assert not shape_report.is_shown(variant(inference=kind(wrong=[{}])), 20)
    assert not shape_report.is_shown({"failed": "Killed"}, 20)
    assert not shape_report.is_shown(None, 20)


def test_a_variant_is_put_beside_the_others_and_replaces_itself(tmp_path: Path) -> None:
    """The file grows by variants, each with its commit; another device's facts start it anew."""
    path = shape_report.path_of("shapes", tmp_path)
    shape_report.record(path, "bert fp32 static", variant(3))
    shape_report.record(path, "t5 fp32 static", variant())
    shape_report.record(path, "bert fp32 static", variant())
    found = shape_report.known(path, harness.environment())
    assert {"bert fp32 static": 20, "t5 fp32 static": 20} == {name: one["shapes"] for name, one in found.items()}
    assert {harness.environment()["commit"]} == {one["commit"] for one in found.values()}
    assert {} == shape_report.known(path, {**harness.environment(), "device": "another"})


def test_the_page_shows_what_failed(tmp_path: Path) -> None:
    """A row a variant; the sentence of all devices counts faults."""
    path = shape_report.path_of("shapes", tmp_path)
    shape_report.record(path, "bert fp32 static", variant(training=kind(wrong=[{}])))
    shape_report.record(path, "t5 fp32 static", {"failed": "Killed"})
    result = json.loads(path.read_text())
    table = shape_report.table(result)
    assert "1 of 10" in table and "2.0e-07 / 1.0e-07" in table and "failed" in table
    said = shape_report.sentence([result])
    assert "2 variants" in said and "1 of 10 tensors" in said and "2 variants with any fault" in said
