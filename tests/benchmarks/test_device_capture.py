"""What is stored is what a capture for a GPU that is not there gives."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from accelopt_compile.records import Workload
from benchmarks.absent_device import NoPretence, pretend
from benchmarks.device_workloads import DTYPES, workloads

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_a_capture_gives_the_stored_digests_again() -> None:
    """The child has no memory on any device, and yet the graphs of one."""
    command = [sys.executable, "-m", "benchmarks.device_workloads", "--child", "optimizer"]
    path = ":".join(str(ROOT / part) for part in ("", "backends", "cache"))
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path})
    assert 0 == done.returncode, done.stderr[-2000:]
    made = [json.loads(line) for line in done.stdout.splitlines()]
    digests = {Workload.from_json(one["workload"]).digest for one in made}
    assert set(DTYPES) == {one["dtype"] for one in made}
    assert {one.workload.digest for one in workloads() if one.kind == "optimizer"} <= digests


def test_a_process_that_has_torch_already_cannot_pretend() -> None:
    with pytest.raises(NoPretence, match="in a fresh process"):
        pretend()
