"""`accelopt demo` and `accelopt doctor` as a user runs them: in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")


def run(tmp_path: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ACCELOPT_CACHE_DIR": str(tmp_path / "store"), **settings}
    line = [sys.executable, "-m", "accelopt_compile.cli", *arguments]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.thorough
def test_a_demo_that_may_not_search_says_so_and_is_right_all_the_same(tmp_path: Path) -> None:
    """Without a budget and with an empty store every region is Inductor's: exit code 3, the reasons, no wrong result."""
    done = run(tmp_path, "demo", "--layers", "1", "--tokens", "16", "--budget-s", "0", "--json")
    assert done.returncode == 3, done.stderr
    assert "with Inductor first" not in done.stderr  # without a search nobody needs the baselines
    found = json.loads(done.stdout)
    regions = [region for graph in found["graphs"] for region in graph["regions"]]
    assert regions
    assert {"MISS", "BASELINE"} >= {region["outcome"] for region in regions}
    assert all(region["reason"] for region in regions)
    assert found["error"]["accelopt"] <= 1e-4
    assert {"eager", "inductor", "accelopt"} == set(found["median_ms"])
    assert {"inductor", "accelopt"} == set(found["warm_s"])


def test_doctor_reports_a_working_machine_as_json(tmp_path: Path) -> None:
    done = run(tmp_path, "doctor", "--json")
    found = json.loads(done.stdout)
    assert (0, True) == (done.returncode, found["ok"])
    assert {"state", "name", "value"} <= set(found["findings"][0])


def test_doctor_warns_of_a_store_that_cannot_be_made(tmp_path: Path) -> None:
    """Kernels work without one, they are only not kept: a warning, not a failure."""
    (tmp_path / "store").write_text("a file where a folder is needed")
    done = run(tmp_path, "doctor")
    assert done.returncode == 0
    assert "is not a directory" in done.stdout
