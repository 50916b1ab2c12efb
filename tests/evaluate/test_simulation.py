"""Where the device is not here: the same checks at sizes that a simulation stands, and an estimate in the place of a timing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from accelopt_backends.reference import ReferenceBackend
from accelopt_compile.evaluate import Evaluator, open_evaluator
from accelopt_compile.evaluate.cases import elements, trials
from accelopt_compile.evaluate.estimating import node_alone, unfused_us
from accelopt_compile.evaluate.simulation import CALLS, ELEMENTS, reduced, simulated_trials
from accelopt_compile.records import Accepted, Node, Ref, Rejected, Stage, TensorSpec, Workload
from tests.evaluate.conftest import softmax_workload

BINDING = {"s0": 100_000}
SEEDS = (5, 6, 7)


def test_free_sizes_are_cut_and_fixed_ones_stay() -> None:
    """Halved until all tensors are small; what is small already is left alone."""
    workload = softmax_workload(64)
    cut = reduced(workload, BINDING)
    assert elements(workload, cut) <= ELEMENTS
    assert 2 * elements(workload, cut) > ELEMENTS
    assert {"s0": 20} == reduced(workload, {"s0": 20})
    assert {"s0": 13} == reduced(softmax_workload(1 << 20), {"s0": 13})


@pytest.mark.parametrize("effort", ["quick", "full"])
def test_no_trial_is_too_large_for_a_simulation(effort: str) -> None:
    """Not the sizes drawn at random either, nor fourfold ones; and each is called twice, for what is not deterministic."""
    found = simulated_trials(softmax_workload(64), BINDING, effort, SEEDS)
    assert max(elements(softmax_workload(64), dict(t.case.binding)) for t in found) <= ELEMENTS
    assert {CALLS} == {t.calls for t in found}
    assert {1} == {t.threads for t in found}


def test_the_sizes_that_break_kernels_are_all_there() -> None:
    """0, 1, a prime, one more than a power of two; misalignment, fences, and the first case once more."""
    found = simulated_trials(softmax_workload(64), {"s0": 64}, "full", SEEDS)
    sizes = {dict(t.case.binding)["s0"] for t in found}
    assert {0, 1, 13, 64, 65} <= sizes
    assert any(t.shift for t in found)
    assert {"begin", "end"} <= {t.fence for t in found}
    assert found[0].case == found[-1].case


def test_every_family_of_the_device_is_tried_at_small_sizes() -> None:
    """What a simulation leaves out are calls, threads and large sizes, not inputs."""
    workload, binding = softmax_workload(16), {"s0": 64}
    here = {t.case.family for t in simulated_trials(workload, binding, "full", SEEDS)}
    assert {t.case.family for t in trials(workload, binding, "full", SEEDS, 1)} == here


def test_where_fixed_sizes_are_large_families_give_way() -> None:
    """Each size is tried once in any case, with its misalignment and fences; repetitions of a size go first."""
    large = softmax_workload(1 << 16)
    found = simulated_trials(large, {"s0": 64}, "full", SEEDS)
    assert len(found) < len(simulated_trials(softmax_workload(16), {"s0": 64}, "full", SEEDS)) / 2
    assert {0, 1, 9} <= {dict(t.case.binding)["s0"] for t in found}
    assert any(t.fence for t in found)


def test_a_region_without_fusion_takes_each_operator_s_roofline() -> None:
    """And views none: the softmax's five operators move more than the softmax."""
    workload, backend = softmax_workload(64), ReferenceBackend("reference-b")
    alone = unfused_us(backend, workload, {"s0": 64}, 1)
    assert alone == pytest.approx(1e6 * sum(backend.roofline(node_alone(workload, n), {"s0": 64}, 1).seconds for n in range(5)))
    assert alone > 1e6 * backend.roofline(workload, {"s0": 64}, 1).seconds
    spec = workload.inputs[0]
    view = Node(op="aten.view.default", args=(Ref("n", 4), ("s0", 64)), outputs=(spec,))
    viewed = replace(workload, nodes=(*workload.nodes, view), outputs=(Ref("n", 5),))
    assert alone == unfused_us(backend, viewed, {"s0": 64}, 1)


def test_an_operator_alone_reads_each_input_once() -> None:
    """Two arguments that are one tensor are one input; what is no tensor stays."""
    spec = TensorSpec(dtype="f32", shape=(4, 4), strides=(4, 1))
    square = Node(op="aten.mul.Tensor", args=(Ref("i", 1), Ref("i", 1)), outputs=(spec,))
    workload = Workload(inputs=(spec, spec), nodes=(square,), outputs=(Ref("n", 0),), output_specs=(spec,), symbols=())
    alone = node_alone(workload, 0)
    assert (Ref("i", 0), Ref("i", 0)) == alone.nodes[0].args
    assert 1 == len(alone.inputs)


# ---------------------------------------------------------------- with real processes


@pytest.fixture(scope="module")
def away(cache_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """Judges reference kernels for a device that is not here."""
    workdir = str(tmp_path_factory.mktemp("away"))
    backend = ReferenceBackend("reference-b")
    with open_evaluator(softmax_workload(), BINDING, backend=backend, threads=1, seed=3, workdir=workdir) as opened:
        yield opened


@pytest.mark.parametrize("effort", ["quick", "full"])
def test_a_right_kernel_gets_an_estimate(away: Evaluator, effort: str) -> None:
    """At the real sizes, of the kernel with its numbers, without blocks or an interval."""
    source = ReferenceBackend("reference-b").seed(softmax_workload())
    verdict = away.evaluate(source, {"REPEAT": 1}, effort=effort)  # type: ignore[arg-type]
    assert isinstance(verdict, Accepted)
    timing = verdict.timing
    assert ("estimated", 0) == (timing.basis, timing.blocks)
    assert timing.low == timing.speedup == timing.high
    assert timing.kernel_us == pytest.approx(3e6 * 100_000 * 1e-12)  # three passes at the reference's roofline
    assert {"unfused"} == set(timing.baselines_us) == set(away.baselines())
    assert away.checked_at == verdict.features["checked_at"] != BINDING


def test_nothing_is_timed_and_no_baseline_compiled(away: Evaluator) -> None:
    """A simulation's seconds are nobody's speed: an evaluator of one has no nursery."""
    assert away.simulated
    assert "" == away.inductor_failure
    assert len(away.pids()) <= 3  # the referee and two builders


@pytest.mark.parametrize(
    ("wrong", "stage"),
    [
        (("results = region(sizes, inputs)", "results = [r * 1.001 for r in region(sizes, inputs)]"), Stage.NUMERICS),
        (("output.copy_(result)", "output[:-1].copy_(result[:-1])"), Stage.NUMERICS),
        (("output.copy_(result)", "output.copy_(result); inputs[0].zero_()"), Stage.RUN),
        (("return 0", "return 1"), Stage.RUN),
        (("results = region", "while sizes[0] == 13: pass\n        results = region"), Stage.TIMEOUT),
    ],
)
def test_a_wrong_kernel_is_rejected_as_on_a_device(
    cache_root: Path, tmp_path: Path, wrong: tuple[str, str], stage: Stage
) -> None:
    """By the same screens, walls and judge."""
    from accelopt_compile.evaluate import Limits

    backend = ReferenceBackend("reference-b")
    seed = backend.seed(softmax_workload())
    assert wrong[0] in seed.text
    source = replace(seed, text=seed.text.replace(*wrong), origin="llm")
    with open_evaluator(
        softmax_workload(), BINDING, backend=backend, threads=1, seed=3, workdir=str(tmp_path), limits=Limits(call_s=2.0)
    ) as evaluator:
        verdict = evaluator.evaluate(source, source.defaults())
    assert isinstance(verdict, Rejected)
    assert stage == verdict.stage or (stage, verdict.stage) == (Stage.RUN, Stage.MUTATION)
