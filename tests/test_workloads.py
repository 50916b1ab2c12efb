"""The workloads are examples that run."""

from __future__ import annotations

import importlib

import pytest

from benchmarks.workloads import NAMES


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", NAMES)
def test_a_small_workload_gives_the_same_finite_result_twice(name: str) -> None:
    """`small()` makes equal weights each time, and a call changes nothing that the next one sees."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    workload = importlib.import_module(f"benchmarks.workloads.{name}")
    module, inputs = workload.small()
    again, _ = workload.small()
    with torch.no_grad():
        first, second, other = module(*inputs), module(*inputs), again(*inputs)
    assert torch.isfinite(first).all()
    assert torch.equal(first, second)
    assert torch.equal(first, other)


def test_interleave_gives_every_variant_the_same_number_of_samples() -> None:
    """A comparison that runs out of time stops between rounds, never inside one."""
    from benchmarks.harness import interleave, speedup

    now = [0.0]

    def takes(seconds: float) -> None:
        now[0] += seconds

    variants = {"slow": lambda: takes(2.0), "fast": lambda: takes(1.0)}
    samples = interleave(variants, rounds=100, limit_s=12.0, clock=lambda: now[0])
    assert 5 == len(samples["slow"].seconds) == len(samples["fast"].seconds)
    assert 2.0 == speedup(samples["slow"], samples["fast"])
