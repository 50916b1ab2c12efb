"""Every hostile or wrong kernel of the folder falls, at the stage and for the reason that its header says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accelopt_backends.cpp import CppBackend
from accelopt_compile.errors import ToolchainFailed
from accelopt_compile.evaluate import Evaluator
from accelopt_compile.records import Rejected, Stage

from .corpus import FOLDER, KEYS, Sample, header, samples
from .workloads import NAMES

WALLS: frozenset[str] = frozenset()
"""Walls that stand: "object" (CppBackend.build reads what it built), "text" (the screen reads tokens, not lines). What waits
for another is skipped, and not run: it could do what it says."""

SAMPLES = samples("hostile")
TRITON = sorted((FOLDER / "triton_hostile").glob("*.py"))


class StillAccepted(Exception):
    """A kernel that is known to be wrong passed."""


def marks(sample: Sample) -> list[pytest.MarkDecorator]:

    if "wall" in sample.header and sample.header["wall"] not in WALLS:
        return [pytest.mark.skip(reason=f"waits for the {sample.header['wall']} wall")]
    if "open" in sample.header:
        return [pytest.mark.xfail(strict=True, raises=StillAccepted, reason=f"open: {sample.header['open']}")]
    return []


@pytest.mark.parametrize(
    ("evaluator", "sample"),
    [pytest.param(s.workload, s, id=f"{s.workload}-{s.name}", marks=marks(s)) for s in SAMPLES],
    indirect=["evaluator"],
)
def test_a_hostile_kernel_falls_where_it_should(evaluator: Evaluator, sample: Sample) -> None:
    """Rejected at the stage where it is wrong, for the reason that an author of kernels needs to hear."""
    verdict = evaluator.evaluate(sample.source, {}, effort="full")
    if not isinstance(verdict, Rejected):
        raise StillAccepted(verdict.errors)
    assert sample.stage == verdict.stage, verdict
    assert sample.header["reason"] in f"{verdict.reason} | {verdict.diagnosis}"


@pytest.mark.skipif("object" not in WALLS, reason="waits for the object wall")
@pytest.mark.parametrize("sample", [s for s in SAMPLES if "object" in s.header], ids=lambda s: s.name)
def test_the_object_alone_gives_it_away(sample: Sample, tmp_path: Path) -> None:
    """Were its text to pass, what the compiler makes of it would not be loaded."""
    with pytest.raises(ToolchainFailed, match=re.escape(sample.header["object"])):
        CppBackend().build(sample.source, {}, str(tmp_path))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_a_header_can_be_read(sample: Sample) -> None:
    """Each file says what it does, on which workload, and where it must fall."""
    assert set(sample.header) <= KEYS
    assert {"attack", "workload", "stage", "reason"} <= set(sample.header)
    assert sample.workload in NAMES
    assert sample.header["stage"] in Stage.__members__
    assert sample.header.get("wall", "text") in ("object", "text")


@pytest.mark.parametrize("path", TRITON, ids=lambda p: p.stem)
def test_a_triton_header_can_be_read(path: Path) -> None:
    """Sources for a backend to come: data, with the same header."""
    found = header(path.read_text())
    assert {"attack", "workload", "stage", "reason"} == set(found)
    assert found["stage"] in Stage.__members__


def test_the_corpus_is_not_empty() -> None:
    """A glob that finds nothing must not look like a success."""
    assert len(SAMPLES) >= 200
    assert len(TRITON) >= 12
    assert len({s.workload for s in SAMPLES}) >= 20
