"""Right kernels, written by hand in many ways or generated at every structure, are accepted on twenty seeds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from accelopt_backends.cpp import CppBackend
from accelopt_compile.evaluate import Evaluator

from .conftest import refusal
from .corpus import KEYS, Sample, samples
from .workloads import NAMES, task

SEEDS = [2**40 + 7919 * k for k in range(20)]
SAMPLES = samples("honest")
OPEN = {s.name: [pytest.mark.xfail(strict=True, reason=f"open: {s.header['open']}")] for s in SAMPLES if "open" in s.header}


def structures(name: str) -> Iterator[dict[str, str]]:
    """Everything that the grammar offers for a workload."""
    grammar = CppBackend().grammar(task(name).workload)
    for values in itertools.product(*grammar.values()):
        yield dict(zip(grammar, values, strict=True))


@pytest.mark.parametrize(
    ("evaluator", "sample"),
    [pytest.param(s.workload, s, id=f"{s.workload}-{s.name}", marks=OPEN.get(s.name, [])) for s in SAMPLES],
    indirect=["evaluator"],
)
def test_another_way_to_compute_is_accepted(evaluator: Evaluator, sample: Sample) -> None:
    """Order of summation, precision inside, online or in passes: all are right."""
    assert None is refusal(evaluator, sample.source, seeds=SEEDS, at_once=5)


@pytest.mark.parametrize("evaluator", NAMES, indirect=True)
def test_every_structure_of_the_grammar_is_accepted(evaluator: Evaluator, request: pytest.FixtureRequest) -> None:
    """What the built-in proposer can write is right, for every structural choice."""
    name = request.node.callspec.params["evaluator"]
    refused = {}
    for structure in structures(name):
        source = CppBackend().render(task(name).workload, structure)
        refused[str(structure)] = refusal(evaluator, source, seeds=SEEDS, at_once=20)
    assert dict.fromkeys(refused) == refused


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_a_header_can_be_read(sample: Sample) -> None:
    """Each file says how it computes what."""
    assert set(sample.header) <= KEYS
    assert {"honest", "workload"} <= set(sample.header)


def test_the_corpus_is_not_empty() -> None:
    """Every workload has a right kernel written by hand, so that its hostile ones differ from something that passes."""
    assert set(NAMES) == {s.workload for s in SAMPLES}
    assert len(SAMPLES) >= 80
