"""One evaluator per workload and module: starting one costs a second, judging a kernel a tenth of that."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from accelopt_backends.cpp import CppBackend
from accelopt_compile.evaluate import Evaluator, Limits, open_evaluator
from accelopt_compile.records import KernelSource, Rejected

from .workloads import task


@pytest.fixture(scope="session")
def cache_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache root of this test run, one for all workers: compiled baselines are found again there."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels-cache"
    root.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCELOPT_CACHE_DIR", str(root))
        yield root


@pytest.fixture(scope="module")
def evaluator(request: pytest.FixtureRequest, cache_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """Judges kernels for the workload that the test's parameter names."""
    wanted = task(request.param)
    with open_evaluator(
        wanted.workload,
        wanted.binding,
        backend=CppBackend(),
        threads=wanted.threads,
        seed=11,
        workdir=str(tmp_path_factory.mktemp("work")),
        limits=Limits(call_s=2.0),
    ) as opened:
        yield opened


def refusal(evaluator: Evaluator, source: KernelSource, *, seeds: Sequence[int], at_once: int) -> Rejected | None:
    """Why a kernel is rejected on inputs of these seeds, or None when it is right. Each verification deals its families of
    inputs out to `at_once` seeds."""
    for begin in range(0, len(seeds), at_once):
        verdict = evaluator.verify(source, source.defaults(), seeds=seeds[begin : begin + at_once])
        if isinstance(verdict, Rejected):
            return verdict
    return None
