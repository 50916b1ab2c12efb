"""A compiler that was killed while it wrote a baseline's library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accelopt_compile.evaluate.baseline import Baselines
from tests.evaluate.workloads import softmax_workload

COLUMNS = 48  # no other test compiles this one, so nothing of it is in this process's memory

PROGRAM = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from tests.evaluate.workloads import softmax_workload
from accelopt_compile.evaluate.baseline import Baselines
assert Baselines(softmax_workload({COLUMNS}), {{"s0": 8}}).prepare()["inductor"]
"""


@pytest.mark.thorough
def test_torn_library_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty .so in Inductor's cache, which Inductor takes for compiled, costs one more compilation, not the baseline."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=200)
    libraries = list(tmp_path.glob("*/*.main.so"))
    assert libraries
    for library in libraries:
        library.write_bytes(b"")
    assert {"inductor": True, "why": ""} == Baselines(softmax_workload(COLUMNS), {"s0": 8}).prepare()
    assert all(library.stat().st_size > 0 for library in libraries)
