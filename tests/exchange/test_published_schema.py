"""The models of the published package (extra `flashinfer`) accept what is written; skipped where it is not installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from accelopt_backends.cpp import CppBackend
from accelopt_cache.kernel_store import Store
from accelopt_compile.cli.backends import backends
from accelopt_compile.exchange.dataset import export
from accelopt_compile.exchange.schema import definition_from
from accelopt_compile.records import Node, Ref, TensorSpec, Workload
from tests.exchange.exporting import DEFINITIONS, imported_into, record_of, seed_record

data = pytest.importorskip(
    "flashinfer_bench.data", reason="the extra `flashinfer` is not installed: pip install flashinfer-bench"
)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set with a winner for an imported definition, a candidate for another, and a winner that came from a model."""
    from accelopt_backends.cpp import toolchain

    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    store, target, records = Store.open(), toolchain.find().target, []
    for name, rung in (("rmsnorm_h128", "device"), ("softmax_v", "simulated")):
        found = imported_into(store, name)
        record = seed_record(CppBackend(), found, target=target, rung=rung)
        link = found.captures[0].whole
        assert link is not None
        records.append((store.put(record, link.workload), record))
    spec = TensorSpec(dtype="f32", shape=("s0", 8), strides=(8, 1))
    node = Node(op="aten.relu.default", args=(Ref("i", 0),), outputs=(spec,))
    relu = Workload(inputs=(spec,), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(spec,), symbols=("s0",))
    record = record_of(relu, CppBackend().seed(relu), {"s0": 5}, target=target)
    records.append((store.put(record, relu), record))
    assert ["", "", ""] == [one.why_not for one in export(records, store=store, backends=backends(), out=tmp_path / "out")]
    return tmp_path / "out"


def test_our_definitions_are_read_alike_by_both(tmp_path: Path) -> None:
    """Each test definition is valid there, and our reader finds the same axes, inputs and outputs."""
    for path in sorted(DEFINITIONS.glob("*.json")):
        theirs = data.Definition.model_validate_json(path.read_text())
        ours = definition_from(json.loads(path.read_text()))
        assert (theirs.var_axes, list(theirs.inputs), list(theirs.outputs)) == (
            list(ours.varying),
            list(ours.inputs),
            list(ours.outputs),
        )
        for line in path.with_suffix(".jsonl").read_text().splitlines():
            assert data.Trace.model_validate_json(line).is_workload_trace()


def test_a_written_folder_is_a_trace_set(written: Path) -> None:
    """The package loads all of it: definitions, solutions, workloads, traces, each under its definition."""
    loaded = data.TraceSet.from_path(str(written))
    assert 3 == len(loaded.definitions) == len(loaded.solutions) == len(loaded.workloads)
    assert 2 == len(loaded.traces)
    (trace,) = loaded.traces["rmsnorm_h128"]
    assert trace.is_successful()
    assert loaded.get_solution(trace.solution).definition == "rmsnorm_h128"
    assert (0.002, 0.009, 4.5) == (
        trace.evaluation.performance.latency_ms,
        trace.evaluation.performance.reference_latency_ms,
        trace.evaluation.performance.speedup_factor,
    )
    assert trace.evaluation.correctness.max_relative_error != trace.evaluation.correctness.max_relative_error  # NaN
    assert "rmsnorm_h128-0" == trace.workload.uuid


def test_a_solution_is_built_and_called_by_the_package(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own builder imports the module and calls `run` with inputs made for the definition."""
    import torch

    monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / "fib"))
    builder = pytest.importorskip("flashinfer_bench.compile.builders.python_builder").PythonBuilder()
    loaded = data.TraceSet.from_path(str(written))
    (solution,) = loaded.solutions["rmsnorm_h128"]
    definition = loaded.definitions["rmsnorm_h128"]
    runnable = builder.build(definition, solution)
    x, weight = torch.randn(3, 128, dtype=torch.bfloat16), torch.randn(128, dtype=torch.bfloat16)
    namespace: dict[str, object] = {}
    exec(definition.reference, namespace)
    torch.testing.assert_close(runnable(x, weight, 1e-5), namespace["run"](x, weight, 1e-5))  # type: ignore[operator]
