"""Right kernels, written by hand in many ways or generated at every structure, are accepted on twenty seeds (--thorough) or
five."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from accelopt_backends.cpp import CppBackend
from accelopt_compile.evaluate import Evaluator

from .conftest import refusal
from .corpus import KEYS, Sample, samples
from .workloads import NAMES, task

SAMPLES = samples("honest")


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> list[int]:
    return [2**40 + 7919 * k for k in range(20 if request.config.getoption("--thorough") else 5)]


def marks(sample: Sample) -> list[pytest.MarkDecorator]:
    """A right kernel that is refused today must be refused until that is settled."""
    if "open" in sample.header:
        return [pytest.mark.xfail(strict=True, raises=AssertionError, reason=f"open: {sample.header['open']}")]
    return []


def structures(name: str) -> Iterator[dict[str, str]]:
    """Everything that the grammar offers for a workload; one choice at a time where a build takes seconds."""
    grammar = CppBackend().grammar(task(name).workload)
    if name.startswith("attention"):
        yield {}
        yield from ({choice: value} for choice, values in grammar.items() for value in values[1:])
    else:
        yield from (dict(zip(grammar, values, strict=True)) for values in itertools.product(*grammar.values()))


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("evaluator", "sample"),
    [pytest.param(s.workload, s, id=f"{s.workload}-{s.name}", marks=marks(s)) for s in SAMPLES],
    indirect=["evaluator"],
)
def test_another_way_to_compute_is_accepted(evaluator: Evaluator, sample: Sample, seeds: list[int]) -> None:
    """Order of summation, precision inside, online or in passes: all are right."""
    assert None is refusal(evaluator, sample.source, seeds=seeds, at_once=10)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("evaluator", NAMES, indirect=True)
def test_every_structure_of_the_grammar_is_accepted(
    evaluator: Evaluator, request: pytest.FixtureRequest, seeds: list[int]
) -> None:
    """What the built-in proposer can write is right, for every structural choice."""
    name = request.node.callspec.params["evaluator"]
    refused = {}
    for structure in structures(name):
        source = CppBackend().render(task(name).workload, structure)
        refused[str(structure)] = refusal(evaluator, source, seeds=seeds, at_once=20)
    assert dict.fromkeys(refused) == refused


def test_headers_can_be_read() -> None:
    """Each file says how it computes what."""
    for sample in SAMPLES:
        assert {"honest", "workload"} <= set(sample.header) <= KEYS, sample.name


def test_the_corpus_is_not_empty() -> None:
    """Every workload has a right kernel written by hand, so that its hostile ones differ from something that passes."""
    assert set(NAMES) == {s.workload for s in SAMPLES}
    assert len(SAMPLES) >= 80
