"""The pure part of timing on a device: rounds, order, medians, ratios."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from benchmarks.device_timing import Call, interleaved, ratio, report, rounds_for, spread


class Fake:
    """A clock whose calls take what they return, in microseconds, and that remembers who was called when."""

    def __init__(self) -> None:
        self.prepared = 0
        self.order: list[object] = []

    def prepare(self, call: Call) -> Call:
        self.prepared += 1
        return call

    def sample_us(self, call: Callable[[], object]) -> float:
        taken = call()
        self.order.append(taken)
        assert isinstance(taken, float)
        return taken


def test_rounds_fit_the_budget_and_are_never_too_few() -> None:
    assert (50, 10, 100) == (rounds_for(1000.0, 0.05), rounds_for(1e6, 1.0), rounds_for(1.0, 1.0))


def test_each_side_is_prepared_once_and_sampled_once_a_round() -> None:
    clock = Fake()
    taken = interleaved({"ours": lambda: 10.0, "eager": lambda: 20.0}, clock, budget_s=1.5e-3, generator=random.Random(1))
    assert 2 == clock.prepared
    assert ([10.0] * 50, [20.0] * 50) == (taken["ours"], taken["eager"])


def test_the_order_within_a_round_changes() -> None:
    clock = Fake()
    interleaved({"ours": lambda: 10.0, "eager": lambda: 20.0}, clock, budget_s=1.5e-3, generator=random.Random(1))
    rounds = list(zip(clock.order[2::2], clock.order[3::2], strict=True))
    assert {(10.0, 20.0), (20.0, 10.0)} == set(rounds)


def test_a_spread_has_the_median_and_the_quartiles() -> None:
    found = spread([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (3.0, 5) == (found.median_us, found.samples)
    assert found.low_us < 3.0 < found.high_us


def test_a_ratio_is_of_pairs_and_an_outlier_does_not_move_it() -> None:
    found = ratio([10.0] * 20, [20.0] * 19 + [2000.0], random.Random(1))
    assert 2.0 == pytest.approx(found.ratio)
    assert 2.0 == pytest.approx(found.low) == pytest.approx(found.high)


def test_a_report_compares_every_side_with_ours() -> None:
    found = report({"ours": [10.0, 11.0, 10.0], "eager": [30.0, 33.0, 30.0]}, "ours", random.Random(1))
    assert {"eager"} == set(found["over"])
    assert 3.0 == pytest.approx(found["over"]["eager"]["ratio"])
    assert 10.0 == found["sides"]["ours"]["median_us"]
