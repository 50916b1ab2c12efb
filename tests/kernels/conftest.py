"""One evaluator per workload and module: starting one costs a second, judging a kernel a tenth of that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from accelopt_backends.cpp import CppBackend
from accelopt_compile.evaluate import Evaluator, Limits, open_evaluator
from accelopt_compile.records import KernelSource, Rejected

from .workloads import task


@pytest.fixture(scope="session")
def cache_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache root of this test run."""
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("cache")
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


def refusal(evaluator: Evaluator, source: KernelSource, tunables: Mapping[str, int], *, seeds: Sequence[int]) -> Rejected | None:
    """Why a kernel is rejected on inputs of these seeds, or None when it is right."""
    if hasattr(evaluator, "verify"):  # until it is merged everywhere: two seeds of the evaluator's own
        verdict = evaluator.verify(source, tunables, seeds=seeds, effort="full")
    else:
        verdict = evaluator.evaluate(source, tunables, effort="quick")
    return verdict if isinstance(verdict, Rejected) else None
