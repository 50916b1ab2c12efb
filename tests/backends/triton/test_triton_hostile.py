"""Hostile Triton sources are refused by reading them; those that only a run shows are not (test_triton_wrong.py)."""

from __future__ import annotations

import pytest

from accelopt_backends.triton.arithmetic import SourceError
from accelopt_backends.triton.screening import screen
from accelopt_backends.triton.source import parse
from accelopt_compile.records import KernelSource, Stage
from tests.kernels.corpus import Sample, samples

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


def test_the_corpus_is_not_empty() -> None:
    """A glob that finds nothing must not look like a success."""
    assert len(READ) >= 100
    assert len(RUN) >= 15
