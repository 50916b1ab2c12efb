"""Second processes: what they find, and what they do when it is damaged or gone."""

from __future__ import annotations

import json
import os
import shutil
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


def run(root: Path, **options: Any) -> dict[str, Any]:
    """Compile and call `Norm` in a fresh process on the caches under `root`."""
    script = PROGRAM.format(tests=str(Path(__file__).parent), options={"mode": "apply", **options})
    environment = {
        **os.environ,
        "ACCELOPT_CACHE_DIR": str(root / "accelopt"),
        "TORCHINDUCTOR_CACHE_DIR": str(root / "inductor"),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=250, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The caches that a first process leaves, and what it saw. Nothing may change them: take `caches`."""
    root = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setenv("ACCELOPT_CACHE_DIR", str(root / "accelopt"))
        torch.manual_seed(0)
        planting.plant(Norm().eval(), torch.randn(6, 64))
    return root, run(root)


@pytest.fixture
def caches(first: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of the caches that a first process left."""
    shutil.copytree(first[0], tmp_path / "caches")
    return tmp_path / "caches"


def test_first_process_puts_the_kernel_in(first: tuple[Path, dict[str, Any]]) -> None:
    """The process that compiles captures the graph, replaces the region, and calls the kernel."""
    seen = first[1]
    assert (0, 0, 0) == (seen["cached"], seen["warm"], seen["fallbacks"])
    assert seen["replaced"] >= 1
    assert seen["calls"] >= 1


def test_warm_start_captures_and_compiles_nothing(caches: Path) -> None:
    """The second process knows the graph, takes Inductor's code from its cache, and calls the kernel."""
    warm = run(caches)
    assert (1, 1, 0, 0) == (warm["cached"], warm["warm"], warm["replaced"], warm["fallbacks"])
    assert warm["calls"] >= 1


def test_damaged_files_cost_time_only(caches: Path) -> None:
    """A truncated shared library is noticed by its digest and rebuilt, a damaged graph document captured again."""
    libraries = [path for path in caches.rglob("accelopt/**/*.so") if "launcher" not in path.name]
    documents = list(caches.rglob("graphs/*.json"))
    assert libraries and documents
    for path in (*libraries, *documents):
        path.write_bytes(path.read_bytes()[:40])
    again = run(caches)
    assert (0, 0) == (again["warm"], again["fallbacks"])
    assert again["calls"] >= 1
    assert [] == again["problems"]


@pytest.mark.thorough
def test_without_kernels_it_is_inductors_own_graph(caches: Path) -> None:
    """The cached graph that calls kernels serves neither mode "off" nor a store whose kernels are gone; those two share
    the entry that Inductor makes alone."""
    alone = run(caches, mode="off")
    assert (0, 0) == (alone["calls"], alone["cached"])
    for path in (caches / "accelopt").rglob("records/**/*.json"):
        path.unlink()
    gone = run(caches)
    assert (0, 1) == (gone["calls"], gone["cached"])
    assert {"MISS"} == set(gone["regions"])
