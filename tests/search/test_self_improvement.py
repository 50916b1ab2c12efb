"""What was learned makes the next search shorter."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from accelopt_compile.records import Experience
from accelopt_compile.search import SearchResult, SearchSettings
from tests.search.worlds import World


def best_speed(result: SearchResult) -> float:
    return max(c.verdict.timing.speedup for c in result.candidates)


def candidates_to(result: SearchResult, speed: float) -> int:
    """Accepted kernels until one reaches `speed`; all of them and one more where none does."""
    speeds = [c.verdict.timing.speedup for c in result.candidates]
    return next((i + 1 for i, s in enumerate(speeds) if s >= speed), len(speeds) + 1)


def learned(family: str, preset: str) -> tuple[Experience, ...]:
    """The experiences of ten workloads of the family, each searched with those before it."""
    prior: tuple[Experience, ...] = ()
    for number in range(10):
        prior += (
            World(number=number, family=family, seed=number, prior=prior, settings=SearchSettings.preset(preset))
            .run()
            .experiences
        )
    return prior


@pytest.mark.sweep(2)
@pytest.mark.parametrize("preset", ["quick", "default"])
@pytest.mark.parametrize("family", ["norm", "softmax"])
def test_experience_of_ten_workloads_saves_two_fifths_of_the_candidates(family: str, preset: str) -> None:
    """To 95 % of the speed that a search without memory ends at, on six workloads never seen, two seeds each."""
    prior, settings, shares = learned(family, preset), SearchSettings.preset(preset), []
    for number in range(10, 16):
        for seed in (100, 200):
            cold = World(number=number, family=family, seed=seed, settings=settings).run()
            warm = World(number=number, family=family, seed=seed, settings=settings, prior=prior).run()
            goal = 0.95 * best_speed(cold)
            shares.append(candidates_to(warm, goal) / candidates_to(cold, goal))
    assert median(shares) <= 0.6
    assert sum(shares) / len(shares) <= 0.6


def test_experience_that_misleads_costs_little() -> None:
    """With the experiences of a family that works differently passed off as this one's, the search still ends near
    where it would have."""
    wrong = tuple(replace(e, family="norm") for e in learned("softmax", "default"))
    for number in range(10, 13):
        cold, misled = World(number=number).run(), World(number=number, prior=wrong).run()
        assert best_speed(misled) >= 0.85 * best_speed(cold)
