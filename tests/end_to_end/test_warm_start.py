"""Second processes: what they find, and what they do when it is damaged or gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import planting
import pytest
import torch
from planting import Norm

PROGRAM = """
import json, sys, warnings; sys.path.insert(0, {tests!r})
import torch
from planting import Norm
from torch._dynamo.utils import counters
import accelopt_compile
torch.manual_seed(0)
model, x = Norm().eval(), torch.randn(6, 64)
with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    actual = torch.compile(model, backend="accelopt", options={options!r})(x)
    torch.testing.assert_close(model(x), actual)
stats = accelopt_compile.stats()
print(json.dumps({{
    "cached": counters["inductor"]["fxgraph_cache_hit"], "warm": stats["warm_graphs"], "calls": stats["calls"],
    "fallbacks": stats["fallbacks"], "replaced": counters["accelopt"]["replaced"], "problems": stats["problems"],
    "regions": stats["regions"], "warned": [str(w.message) for w in caught if "accelopt" in str(w.message)],
}}))
"""


def run(**options: Any) -> dict[str, Any]:
    """Compile and call `Norm` in a fresh process on the caches of this test."""
    script = PROGRAM.format(tests=str(Path(__file__).parent), options={"mode": "apply", **options})
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Winners in the store, and an Inductor cache of this test alone."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch.manual_seed(0)
    with torch.no_grad():
        planting.plant(Norm().eval(), torch.randn(6, 64))


def store() -> Path:
    return Path(os.environ["ACCELOPT_CACHE_DIR"])


def test_warm_start_captures_and_compiles_nothing(planted: None) -> None:
    """The second process knows the graph, takes Inductor's code from its cache, and runs the kernel."""
    cold, warm = run(), run()
    assert (0, 0) == (cold["cached"], cold["warm"])
    assert cold["replaced"] >= 1
    assert (1, 1, 0) == (warm["cached"], warm["warm"], warm["replaced"])
    assert cold["calls"] == warm["calls"] >= 1
    assert 0 == cold["fallbacks"] == warm["fallbacks"]


def test_inductors_own_cache_entries_stay_its_own(planted: None) -> None:
    """A graph compiled with kernels is not served to a process that asked for Inductor, nor the other way round."""
    run()
    assert {"calls": 0, "cached": 0} == {k: v for k, v in run(mode="off").items() if k in ("calls", "cached")}
    assert run()["calls"] >= 1


def test_damaged_build_is_built_again(planted: None) -> None:
    """A truncated shared library is noticed by its digest and rebuilt."""
    run()
    libraries = [p for p in store().rglob("*.so") if "launcher" not in p.name]
    assert libraries
    for library in libraries:
        library.write_bytes(library.read_bytes()[:100])
    again = run()
    assert again["calls"] >= 1
    assert 0 == again["fallbacks"]


def test_removed_records_give_the_region_back_to_inductor(planted: None) -> None:
    """When the kernels are gone, the cached graph that called them is not used."""
    run()
    for record in store().rglob("*.json"):
        if "records" in record.parts:
            record.unlink()
    gone = run()
    assert (0, 0) == (gone["calls"], gone["cached"])
    assert {"MISS"} == set(gone["regions"])


def test_damaged_graph_document_is_captured_again(planted: None) -> None:
    """A graph document that is not what was written costs a capture, nothing else."""
    run()
    for document in store().rglob("graphs/*.json"):
        document.write_text("{}")
    again = run()
    assert 0 == again["warm"]
    assert again["calls"] >= 1
    assert [] == again["problems"]
