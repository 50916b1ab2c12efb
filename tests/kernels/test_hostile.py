"""Every hostile or wrong kernel of the folder falls, at the stage and for the reason that its header says."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import pytest

from accelopt_backends.cpp import CppBackend
from accelopt_compile.errors import ToolchainFailed
from accelopt_compile.evaluate import Evaluator
from accelopt_compile.records import Rejected, Stage

from .corpus import FOLDER, KEYS, Sample, header, samples
from .workloads import NAMES

SAMPLES = samples("hostile")
TRITON = sorted((FOLDER / "triton_hostile").glob("*.py"))


OPEN_SEEDS = (11, 12, 13)
"""A hole that stands open is looked at on the same draw each time: another may show it by luck, which does not close it."""


class NotCaught(Exception):
    """A kernel that is known to be wrong passed, or fell for a reason that has nothing to do with it."""


def marks(sample: Sample) -> list[pytest.MarkDecorator]:
    """An open hole must fail until it is closed."""
    if "open" in sample.header:
        return [pytest.mark.xfail(strict=True, raises=NotCaught, reason=f"open: {sample.header['open']}")]
    return []


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("evaluator", "sample"),
    [pytest.param(s.workload, s, id=f"{s.workload}-{s.name}", marks=marks(s)) for s in SAMPLES],
    indirect=["evaluator"],
)
def test_a_hostile_kernel_falls_where_it_should(evaluator: Evaluator, sample: Sample) -> None:
    """Rejected at the stage where it is wrong, for the reason that an author of kernels needs to hear."""
    if Stage.CHEAT in sample.stages:  # what only timing shows
        verdict: object = evaluator.evaluate(sample.source, {}, effort="full")
    else:
        seeds = OPEN_SEEDS if "open" in sample.header else [secrets.randbits(62) for _ in range(3)]
        verdict = evaluator.verify(sample.source, {}, seeds=seeds)
    stage, said = (verdict.stage, f"{verdict.reason} | {verdict.diagnosis}") if isinstance(verdict, Rejected) else (None, "")
    if "open" in sample.header and (stage not in sample.stages or sample.header["reason"] not in said):
        raise NotCaught(verdict)
    assert stage in sample.stages, verdict
    assert sample.header["reason"] in said


@pytest.mark.parametrize("sample", [s for s in SAMPLES if "object" in s.header], ids=lambda s: s.name)
def test_the_object_alone_gives_it_away(sample: Sample, tmp_path: Path) -> None:
    """Were its text to pass, what the compiler makes of it would not be loaded."""
    with pytest.raises(ToolchainFailed, match=re.escape(sample.header["object"])):
        CppBackend().build(sample.source, {}, str(tmp_path))


def test_headers_can_be_read() -> None:
    """Each file says what it does, on which workload, and where it must fall."""
    for sample in SAMPLES:
        assert {"attack", "workload", "stage", "reason"} <= set(sample.header) <= KEYS, sample.name
        assert sample.workload in NAMES
        assert set(sample.header["stage"].split()) <= set(Stage.__members__)


def test_triton_headers_can_be_read() -> None:
    """The same header; where they fall is tested beside their backend."""
    for path in TRITON:
        found = header(path.read_text())
        assert {"attack", "workload", "stage", "reason"} == set(found), path
        assert found["stage"] in Stage.__members__


def test_the_corpus_is_not_empty() -> None:
    """A glob that finds nothing must not look like a success."""
    assert len(SAMPLES) >= 200
    assert len(TRITON) >= 12
    assert len({s.workload for s in SAMPLES}) >= 20
