"""One evaluator with a native backend for the whole module: starting one costs seconds, judging a kernel does not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelopt_compile.evaluate import Evaluator, Limits, open_evaluator

sys.path.insert(0, str(Path(__file__).parent))  # the child imports the test backend by its module name

from native_backend import NativeBackend

from tests.evaluate.workloads import softmax_workload


@pytest.fixture(scope="session")
def cache_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache root of this test run, as the user would set it."""
    root = tmp_path_factory.mktemp("cache")
    before = os.environ.get("ACCELOPT_CACHE_DIR")
    os.environ["ACCELOPT_CACHE_DIR"] = str(root)
    os.environ["ACCELOPT_TEST_SECRET"] = "not for kernels"
    yield root
    del os.environ["ACCELOPT_TEST_SECRET"]
    if before is None:
        del os.environ["ACCELOPT_CACHE_DIR"]
    else:
        os.environ["ACCELOPT_CACHE_DIR"] = before


@pytest.fixture(scope="module")
def evaluator(cache_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """Judges kernels for a softmax of 100 rows of 64 columns, one thread."""
    with open_evaluator(
        softmax_workload(),
        {"s0": 100},
        backend=NativeBackend(),
        threads=1,
        seed=11,
        workdir=str(tmp_path_factory.mktemp("work")),
        limits=Limits(call_s=2.0),
    ) as opened:
        yield opened
