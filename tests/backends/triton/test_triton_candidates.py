"""A model's kernel on the interpreter: from its answer to a candidate, by the search, screens, walls and judge of any kernel."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from accelopt_cache.kernel_store import Store
from accelopt_compile.cli import run
from accelopt_compile.config import settings_from
from accelopt_compile.llm.client import Request
from accelopt_compile.llm.scripted import ScriptedClient
from accelopt_compile.pipeline import bench_for
from accelopt_compile.search.budget import Budget
from accelopt_compile.sites import from_document
from accelopt_compile.tuning import tune
from tests.evaluate.conftest import softmax_workload


@pytest.mark.thorough
def test_a_search_with_a_scripted_model_leaves_candidates(tmp_path: Path) -> None:
    """The model answers with the backend's own kernel of another structure: right, so it is kept, with its author and run."""
    workload = softmax_workload(64)
    settings = {
        "backend": "triton",
        "cache_dir": str(tmp_path),
        "threads": 1,
        "model": "scripted",
        "proposer": "llm",
        "rounds": 1,
    }
    bench = bench_for(settings_from(call={**settings, "plans_per_candidate": 1, "attempts_per_plan": 1, "effort": "quick"}))
    other = next({name: values[1]} for name, values in bench.backend.grammar(workload).items() if len(values) > 1)
    kernel = bench.backend.render(workload, other)

    def answer(request: Request) -> str:
        if request.role == "planner":
            return '{"plans": ["Go over the rows in another way."]}'
        if request.role == "summarizer":
            return "NO LESSON"
        return f"```python\n{bench.backend.shown(kernel, kernel.defaults())}\n```"

    bench = replace(bench, client=ScriptedClient(answer), keep=True)
    found = tune(bench, workload, {"s0": 4096}, Budget(seconds=240, clock=time.monotonic))
    kept = [record for _, record in bench.store.iter_records()]
    assert {("candidate", "simulated")} == {(record.outcome, record.rung) for record in kept}
    assert found.candidates == len(kept)
    assert "llm" in {record.source.origin for record in kept if record.source is not None}
    assert {found.run} == {record.provenance["run"] for record in kept}
    assert {"registers", "shared_bytes"} <= set(kept[0].provenance["features"])
    assert bench.store.best(workload.digest, bench.target, {"s0": 4096}) is None


FACTORY = """
import torch
def made():
    return torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False), torch.nn.ReLU()).eval(), torch.randn(16, 64)
"""


def test_the_command_cuts_graphs_as_its_backend_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product with what comes after it is a region for this backend, and none for the one that would be taken by itself."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    (tmp_path / "a_product.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(str(tmp_path))
    torch._dynamo.reset()
    chosen = ["--backend", "triton", "--target", "triton-cuda-sm_80", "--region", "no-such-region"]
    assert 2 == run(["tune", "a_product:made", *chosen])
    store = Store.open()
    (digest,) = store.graphs()
    sites, _ = from_document(store.graph(digest)) or ((), {})
    (site,) = sites
    assert {"aten.mm.default", "aten.relu.default"} <= {node.op for node in site.workload.nodes}
