"""The region suite measures what it says: the same work on all sides, fairly interleaved."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from benchmarks import region_calls, region_cases  # noqa: E402
from benchmarks.region_cases import Case, Mode, Problem  # noqa: E402
from benchmarks.region_child import timed_adopted  # noqa: E402
from benchmarks.region_survey import regions_of  # noqa: E402
from benchmarks.region_timing import Plan, measure  # noqa: E402


def small(mode: Mode) -> tuple[Case, Problem]:
    """A layer norm of few rows in the given mode."""
    wrt = () if mode == "inference" else (0, 1)
    inputs = (torch.randn(6, 32), torch.randn(32))
    problem = Problem(function=lambda x, w: torch.nn.functional.layer_norm(x, (32,), w), inputs=inputs, wrt=wrt)
    return Case(family="layer_norm", name="small", dtype="f32", make=lambda: problem, mode=mode), problem


def tensors(results: object) -> list[torch.Tensor]:
    """All floating-point tensors of a nested result."""
    found = torch.utils._pytree.tree_leaves(results)
    return [t for t in found if isinstance(t, torch.Tensor) and t.is_floating_point()]


def test_there_are_at_least_44_functions_in_both_dtypes_and_each_family_has_a_floor() -> None:
    """No case is left without something to be held to."""
    every = region_cases.cases()
    names = {case.name for case in every}
    assert 44 <= len(names)
    assert {f"{name}-{dtype}" for name in names for dtype in ("f32", "bf16")} == {case.key for case in every}
    assert set(region_cases.FAMILIES) == {case.family for case in every}
    assert set(region_cases.QUICK) == {case.key for case in every if case.quick}


@pytest.mark.parametrize("mode", ["inference", "both", "backward"])
def test_the_replayed_call_computes_from_fresh_inputs_what_eager_computes(mode: Mode) -> None:
    """A replay that kept reading the recorded memory would give the old result."""
    case, problem = small(mode)
    compiled = region_calls.compiled("inductor", case, problem, backend="inductor")
    fresh = region_calls.fresh_inputs(problem, random.Random(0))
    for x in fresh.values():
        x.mul_(2).add_(1)
    if mode == "backward":  # reads what the recorded forward saved, beside the inputs
        fresh = region_calls.fresh_inputs(problem, random.Random(0))
    (eager,) = region_calls.eagers(case, problem)
    got = tensors(compiled.make(fresh)())
    with torch.set_grad_enabled(mode != "inference"):
        wanted = tensors(eager.make(fresh)())
    for tensor in wanted:
        assert any(tensor.shape == g.shape and torch.allclose(tensor, g, atol=1e-5) for g in got)


def test_a_function_that_writes_to_its_inputs_leaves_those_of_the_problem_alone() -> None:
    """Every block starts from the same values, whoever ran before."""

    def step(p: torch.Tensor, g: torch.Tensor) -> None:
        p.sub_(g)

    problem = Problem(function=step, inputs=(torch.ones(64, 64), torch.ones(64, 64)))
    case = Case(family="adamw", name="small", dtype="f32", make=lambda: problem)
    compiled = region_calls.compiled("inductor", case, problem, backend="inductor")
    fresh = region_calls.fresh_inputs(problem, random.Random(0))
    compiled.make(fresh)()
    assert 0.0 == fresh[region_calls.key_of(problem.inputs[0])].abs().max()
    assert 1.0 == problem.inputs[0].min()


def test_the_ratio_of_two_variants_is_that_of_their_times_with_equal_samples() -> None:
    """3 us over 1 us is 3, with no width where there is no noise; memory is made anew in each block."""
    now, made = [0], [0]

    def takes(ns: int) -> None:
        now[0] += ns

    def make() -> dict[str, object]:
        made[0] += 1
        return {"slow": lambda: takes(3000), "fast": lambda: takes(1000)}

    taken = measure(make, Plan(blocks=6, rounds=4), clock=lambda: now[0], generator=random.Random(0))  # type: ignore[arg-type]
    ratio = taken.ratio("slow", "fast")
    assert (3.0, 3.0, 3.0) == pytest.approx((ratio.ratio, ratio.low, ratio.high))
    assert 24 == len(taken.samples("slow").seconds) == len(taken.samples("fast").seconds)
    assert 7 == made[0]


def test_a_slow_case_is_measured_in_at_least_5_blocks_of_3() -> None:
    """Fewer would leave the bootstrap nothing to draw from."""
    assert (5, 3) == (Plan(limit_s=1.0).fitted(10.0).blocks, Plan(limit_s=1.0).fitted(10.0).rounds)


@pytest.mark.parametrize(("mode", "expected"), [("both", 2), ("backward", 1)])
def test_a_kernel_of_a_pass_that_is_not_timed_is_none_adopted(mode: Mode, expected: int) -> None:
    """Of a backward pass alone: the forward one only makes ready, and its kernel is not what a ratio of 0.97 is about."""
    case, _ = small(mode)
    compiled = [f for f in regions_of(case).found if f.workload is not None and not f.part]
    assert ["forward", "backward"] == [f.role for f in compiled]
    adopted = [{"workload": f.workload.digest, "outcome": "TUNED"} for f in compiled if f.workload is not None]
    assert expected == timed_adopted(case, adopted)
    assert 0 == timed_adopted(case, [{**region, "outcome": "BASELINE"} for region in adopted])
