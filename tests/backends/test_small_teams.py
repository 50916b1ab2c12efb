"""Where OpenMP gives fewer threads than a kernel is told of, all of its work is done all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys; sys.path[:0] = {path!r}
from pathlib import Path
from tests.backends.seeds import BACKEND, fault
from tests.kernels.workloads import task
for name in ("gelu_silu", "softmax_f32", "column_sum", "cumsum", "topk", "attention", "adamw"):
    one = task(name)
    seed = BACKEND.seed(one.workload)
    finest = {{name: 1 if name == "GRAIN" else value for name, value in seed.defaults().items()}}
    if said := fault(seed, one.workload, one.binding, Path({folder!r}), tunables=finest, threads=4):
        print(name, said)
print("done")
"""


@pytest.mark.timeout(300)
def test_a_team_that_is_smaller_than_asked_for_leaves_nothing_undone(tmp_path: Path) -> None:
    """OMP_THREAD_LIMIT, here; OMP_DYNAMIC and a call from within another team do the same. Four slices, three threads."""
    program = PROGRAM.format(path=sys.path, folder=str(tmp_path))
    environment = {**os.environ, "OMP_THREAD_LIMIT": "3"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert "done\n" == done.stdout, done.stderr[-2000:]
