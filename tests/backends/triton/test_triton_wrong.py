"""Wrong Triton kernels that only a run shows fall in the interpreter, at the stage and for the reason that their header says."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from accelopt_backends.triton import TritonBackend
from accelopt_compile.evaluate import Evaluator, Limits, open_evaluator
from accelopt_compile.records import KernelSource, Rejected, Stage
from tests.kernels.corpus import Sample, samples
from tests.kernels.workloads import task

SAMPLES = [s for s in samples("triton_hostile", "*.py") if s.stages != (Stage.SCREEN,)]


@pytest.fixture(scope="module")
def evaluator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    wanted = task(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "triton-cache"))
        with open_evaluator(
            wanted.workload,
            wanted.binding,
            backend=TritonBackend(),
            threads=1,
            seed=11,
            workdir=str(tmp_path_factory.mktemp("work")),
            limits=Limits(call_s=3.0),
        ) as opened:
            yield opened


@pytest.mark.parametrize(
    ("evaluator", "sample"),
    [pytest.param(s.workload, s, id=f"{s.workload}-{s.name}") for s in SAMPLES],
    indirect=["evaluator"],
)
def test_a_wrong_kernel_falls_where_it_should(evaluator: Evaluator, sample: Sample) -> None:
    """Rejected at the stage where it is wrong, for the reason that an author of kernels needs to hear."""
    source = KernelSource(language="triton", text=sample.text, origin="llm")
    verdict = evaluator.verify(source, {}, seeds=[secrets.randbits(62)])
    assert isinstance(verdict, Rejected), verdict
    assert verdict.stage in sample.stages, verdict
    assert sample.header["reason"] in f"{verdict.reason} | {verdict.diagnosis}"
