"""Every hostile or wrong Triton kernel falls where its header says: most by reading them, the others in the interpreter."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelopt_backends.triton import TritonBackend
from accelopt_backends.triton.screening import screen
from accelopt_backends.triton.source import SourceError, parse
from accelopt_compile.evaluate import Evaluator, Limits, open_evaluator
from accelopt_compile.records import KernelSource, Rejected, Stage
from tests.kernels.corpus import Sample, samples
from tests.kernels.workloads import task

SAMPLES = samples("triton_hostile", "*.py")
READ = [s for s in SAMPLES if s.stages == (Stage.SCREEN,)]
RUN = [s for s in SAMPLES if s.stages != (Stage.SCREEN,)]


def source_of(sample: Sample) -> KernelSource:
    try:
        tunables = dict(parse(sample.text).tunables)
    except SourceError:
        tunables = {}
    return KernelSource(language="triton", text=sample.text, tunables=tunables, origin="llm")


@pytest.mark.parametrize("sample", READ, ids=lambda s: s.name)
def test_a_hostile_source_is_refused_by_reading_it(sample: Sample) -> None:
    """The reason names what it does, the hint says what to write instead, and nothing of it was run."""
    refusals = screen(source_of(sample))
    assert any(sample.header["reason"] in r.reason for r in refusals), refusals
    assert all(r.hint and 0 < r.line <= sample.text.count("\n") + 1 for r in refusals)


@pytest.mark.parametrize("sample", RUN, ids=lambda s: s.name)
def test_what_only_a_run_shows_passes_the_screen(sample: Sample) -> None:
    """Wrong arithmetic is no matter for a reader: these reach the evaluator."""
    assert [] == list(screen(source_of(sample)))


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
    [pytest.param(s.workload, s, id=f"{s.workload}-{s.name}") for s in RUN],
    indirect=["evaluator"],
)
def test_a_wrong_kernel_falls_where_it_should(evaluator: Evaluator, sample: Sample) -> None:
    """Rejected at the stage where it is wrong, for the reason that an author of kernels needs to hear."""
    source = source_of(sample)
    verdict = evaluator.verify(source, source.defaults(), seeds=[secrets.randbits(62) for _ in range(3)])
    assert isinstance(verdict, Rejected), verdict
    assert verdict.stage in sample.stages, verdict
    assert sample.header["reason"] in f"{verdict.reason} | {verdict.diagnosis}"


def test_the_corpus_is_not_empty() -> None:
    """A glob that finds nothing must not look like a success."""
    assert len(READ) >= 100
    assert len(RUN) >= 15
