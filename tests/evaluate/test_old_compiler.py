"""A compiler that does not know the instructions of the processor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

COLUMNS = 56  # no other test compiles this one

PROGRAM = f"""
import torch._inductor.config as config
config.cpp.vec_isa_ok = True  # as the fork server says
config.cpp_cache_precompile_headers = False
from torch._inductor.cpu_vec_isa import pick_vec_isa
from tests.evaluate.workloads import softmax_workload
from accelopt_compile.evaluate.baseline import Baselines
before = bool(pick_vec_isa())
found = Baselines(softmax_workload({COLUMNS}), {{"s0": 8}}).prepare()
print(found["inductor"], before, bool(pick_vec_isa()))
"""

OLD = """#!/bin/sh
for a in "$@"; do case "$a" in -mavx*) echo "unknown option $a" >&2; exit 1;; esac; done
exec {compiler} "$@"
"""


def test_baseline_is_built_for_what_the_compiler_knows(tmp_path: Path) -> None:
    """Not for what the processor has: that would leave eager alone to be beaten, and a kernel could be slower than Inductor's."""
    old = tmp_path / "g++"
    old.write_text(OLD.format(compiler=shutil.which(os.environ.get("CXX", "g++"))))
    old.chmod(0o755)
    around = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TMPDIR": str(tmp_path), "CXX": str(old)}
    around.pop("TORCHINDUCTOR_VEC_ISA_OK", None)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=around, cwd=Path(__file__).parents[2], text=True, capture_output=True, timeout=200
    )
    assert "True True False" == run.stdout.strip(), run.stderr[-2000:]
