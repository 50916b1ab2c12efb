"""What may be spent, and by whom."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from accelopt_compile.search import Budget, allot
from accelopt_compile.search.simulated import SimulatedClock


def test_a_slice_ends_with_its_whole() -> None:
    """A slice may not outlast the budget that it is a part of, in seconds or in candidates."""
    clock = SimulatedClock()
    whole = Budget(seconds=10, candidates=3, clock=clock)
    part = whole.slice(seconds=8)
    clock.advance(7)
    assert 1 == part.remaining_s
    other = whole.slice(seconds=8)
    assert 3 == other.remaining_s
    for _ in range(3):
        part.spend_candidate()
    assert "the candidate budget is spent" == other.spent()


def test_the_reserve_is_kept_back() -> None:
    """Nothing new starts once only the reserve is left."""
    clock = SimulatedClock()
    budget = Budget(seconds=10, clock=clock)
    clock.advance(7)
    assert (None, "the time budget is spent") == (budget.spent(), budget.spent(reserve_s=3))


def test_a_budget_without_limits_is_never_spent() -> None:
    """None is without limit."""
    clock = SimulatedClock()
    budget = Budget(clock=clock)
    clock.advance(1e9)
    assert budget.spent(reserve_s=100) is None


def test_hot_regions_get_more_and_cold_ones_nothing() -> None:
    """With time for two floors, the two hottest share it by cost."""
    assert {"a": 15.0, "b": 9.0, "c": 0.0} == allot({"a": 3, "b": 1, "c": 0.5}, 24, floor_s=6)


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1e6), max_size=12), st.floats(0, 1000))
def test_an_allotment_gives_away_all_and_no_more(costs: dict[str, float], total_s: float) -> None:
    """The slices sum to the total, none is negative, and a hotter region never gets less."""
    slices = allot(costs, total_s)
    assert set(costs) == set(slices)
    expected = total_s if any(costs.values()) else 0.0
    assert abs(expected - sum(slices.values())) <= 1e-6 * (1 + total_s)
    ordered = sorted(costs, key=lambda name: -costs[name])
    assert all(slices[a] >= slices[b] - 1e-9 or costs[a] == costs[b] for a, b in pairwise(ordered))


def test_what_an_earlier_process_spent_may_count_or_not() -> None:
    """A kept run has one budget over all its lives; a compile that goes on with a search has its own."""
    clock = SimulatedClock()
    whole = Budget(seconds=30, candidates=10, clock=clock)
    kept, gone_on = whole.slice(seconds=20), whole.slice(seconds=20, earlier=False)
    gone_on.carry(seconds=17, candidates=2)
    assert (20, 30, 8) == (gone_on.remaining_s, whole.remaining_s, whole.remaining_candidates)
    kept.carry(seconds=17, candidates=2)
    assert (3, 13) == (kept.remaining_s, whole.remaining_s)
