"""A GPU check's order, its time, its table; and what it finds out about a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accelopt_compile.records import Node, Ref, TensorSpec, Workload
from benchmarks.device_workloads import DeviceWorkload, sample, table, work, workloads
from benchmarks.gpu_machine import device_state, missing, parsed_state
from benchmarks.gpu_plan import STEPS, deadline_s, smallest_first
from benchmarks.gpu_plan import table as check_table


def stored(width: int, dtype: str = "bf16", op: str = "aten.neg.default") -> DeviceWorkload:
    spec = TensorSpec(dtype=dtype, shape=("s0", width), strides=(width, 1))
    workload = Workload(
        inputs=(spec,), nodes=(Node(op=op, args=(Ref("i", 0),), outputs=(spec,)),), outputs=(Ref("n", 0),), output_specs=(spec,),
        symbols=("s0",),
    )  # fmt: skip
    return DeviceWorkload(kind="llama", call="train", dtype=dtype, workload=workload, binding={"s0": 4})


def test_a_workload_survives_its_file() -> None:
    one = stored(8)
    assert one == DeviceWorkload.from_json(one.to_json())


def test_a_name_says_where_a_workload_was_met() -> None:
    one = stored(8)
    assert f"llama-train-pointwise-{one.workload.digest[:8]}-bf16" == one.name


def test_work_counts_the_elements_that_are_computed() -> None:
    assert 32 == work(stored(8))


def test_a_sample_takes_the_smallest_of_each_group() -> None:
    assert [8, 8] == [one.workload.inputs[0].shape[1] for one in sample([stored(64), stored(8), stored(8, "f32")], 1)]


def test_every_family_comes_before_any_comes_twice() -> None:
    order = smallest_first([stored(16), stored(8), stored(64, "f32")])
    assert [(8, "bf16"), (64, "f32"), (16, "bf16")] == [(o.workload.inputs[0].shape[1], o.dtype) for o in order]


def test_the_shares_of_the_steps_are_the_whole_time() -> None:
    assert 1.0 == sum(step.share for step in STEPS)
    now = 0.0
    for step in STEPS:
        now = deadline_s(step.name, now, 480.0)
    assert 480.0 == now


def test_a_step_that_ends_early_leaves_its_time_to_the_others() -> None:
    assert deadline_s("time", 10.0, 480.0) - 10.0 > 0.30 * 480.0


def case(**more: Any) -> dict[str, Any]:
    return {"step": "time", "name": "norm", "ok": True, "detail": "", **more}


def test_a_table_without_a_device_says_so_first() -> None:
    text = check_table({"cases": [case(sides=["ours"])], "steps": {}, "on_device": False})
    assert text.startswith("THERE WAS NO GPU")
    assert "Nothing was timed" in text


def test_a_table_shows_medians_and_the_gain_over_the_best_other_side() -> None:
    sides = {name: {"median_us": us} for name, us in (("ours", 10.0), ("eager", 40.0), ("inductor", 15.0))}
    text = check_table({"cases": [case(sides=sides, roofline_us=5.0)], "steps": {"time": "complete"}, "on_device": True})
    assert "1.50x" in text
    assert "THERE WAS NO GPU" not in text


def test_a_failed_case_is_in_the_table() -> None:
    text = check_table({"cases": [case(ok=False, detail="wrong on normal inputs")], "steps": {}, "on_device": True})
    assert "FAILED norm : wrong on normal inputs" in text


def test_what_is_missing_is_named_by_its_package() -> None:
    assert ["some-package"] == missing({"json": "json", "no_such_module_here": "some-package"})


def test_the_drivers_tool_is_read_field_by_field() -> None:
    state = parsed_state("Some GPU, 580.1, 96.0, 1980, 2619, 1980, 31, 75.1, Enabled, 0x0")
    assert ("580.1", "1980") == (state["driver_version"], state["clocks.sm"])
    assert {} == parsed_state("no devices were found")


def test_a_machine_without_the_tool_has_no_state(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert {} == device_state()


def test_the_stored_workloads_are_many_distinct_and_of_all_kinds() -> None:
    """The first proof asks for 60 of seven kinds of model in three dtypes, and for the 14 problems."""
    found = workloads()
    models = [one for one in found if one.kind not in ("optimizer", "nkibench")]
    assert len(found) == len({one.workload.digest for one in found})
    assert len(models) >= 60
    assert {"llama", "gpt2", "bert", "t5", "moe", "vit", "resnet"} == {one.kind for one in models}
    assert {"f32", "bf16", "f16"} == {one.dtype for one in models}
    assert "workloads:" in table(found)
