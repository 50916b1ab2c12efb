"""Who goes on to the next round, and which pairs teach."""

from __future__ import annotations

import pytest

from accelopt_compile.records import Candidate, Plan
from accelopt_compile.search.selection import Group, contenders, elitist_beam, paper_beam, pooled, speed, teaching_pairs
from tests.search.worlds import candidate

PLAN = Plan(text="a step")


def group(parent: Candidate, *speedups: float, first: int = 10) -> Group:
    children = tuple(candidate(first + i, speedup, parent=parent.id) for i, speedup in enumerate(speedups))
    return Group(parent=parent, plan=PLAN, children=children)


def test_an_elitist_beam_keeps_a_parent_that_is_still_among_the_best() -> None:
    """A fast parent outlives slower children."""
    fast, slow = candidate(0, 2.0), candidate(1, 1.0)
    beam = elitist_beam((fast, slow), [group(fast, 1.5, 1.2), group(slow, 0.5, first=20)], 2)
    assert [0, 10] == [c.id for c in beam]


def test_a_paper_beam_drops_a_parent_for_slower_children() -> None:
    """The paper's beam takes parents only where a plan gave no accepted kernel, and may get slower."""
    fast, slow = candidate(0, 2.0), candidate(1, 1.0)
    beam = paper_beam((fast, slow), [group(fast, 0.5), group(slow, 0.4, first=20)], 2)
    assert [10, 20] == [c.id for c in beam]


def test_a_paper_beam_fills_empty_slots_with_the_parents_of_failed_plans() -> None:
    """Each failed plan gives one slot to its parent, behind all children, so one parent may fill several."""
    a, b = candidate(0, 1.0), candidate(1, 0.9)
    groups = [group(a, 0.6), group(a), group(a), group(b), group(b, 0.5, first=20)]
    assert [10, 20, 0, 0, 1] == [c.id for c in paper_beam((a, b), groups, 6)]


def test_a_plan_sends_only_its_fastest_kernel_into_the_beam() -> None:
    """Two good attempts at one plan take one slot."""
    parent = candidate(0, 1.0)
    beam = elitist_beam((parent,), [group(parent, 1.5, 1.6), group(parent, 1.1, first=20)], 3)
    assert [11, 20, 0] == [c.id for c in beam]


def test_positive_pairs_are_the_fastest_attempts_beyond_the_threshold() -> None:
    """1.04 itself does not teach; the best come first and fill at most half of the places."""
    parent = candidate(0, 1.0)
    groups = [group(parent, 1.04), group(parent, 1.2, 1.1, first=20), group(parent, 1.5, first=30), group(parent, 1.3, first=40)]
    pairs = teaching_pairs(groups, 4)
    assert [(30, True), (40, True)] == [(p.fast.id, p.helped) for p in pairs]
    assert [parent, parent] == [p.slow for p in pairs]


def test_negative_pairs_show_the_slowest_attempt_of_a_plan_that_hurt() -> None:
    """A plan hurts when even its best attempt is below 1/1.15; its pair leads from its slowest attempt to the parent."""
    parent = candidate(0, 1.0)
    groups = [group(parent, 0.9, 0.5), group(parent, 0.8, 0.4, first=20), group(parent, 0.86, first=30)]
    pairs = teaching_pairs(groups, 8)
    assert [(21, 0, False), (30, 0, False)] == [(p.slow.id, p.fast.id, p.helped) for p in pairs]
    assert [2.5, 1.163] == [round(p.speedup, 3) for p in pairs]


def test_negative_pairs_fill_the_places_that_positive_ones_leave() -> None:
    """With one plan that helped, three of four places are for those that hurt."""
    parent = candidate(0, 1.0)
    groups = [group(parent, 2.0), *(group(parent, 0.5 - i / 100, first=20 + i) for i in range(5))]
    assert [True, False, False, False] == [p.helped for p in teaching_pairs(groups, 4)]


def test_plans_without_an_accepted_kernel_teach_nothing() -> None:
    """A rejected plan has no speedup to tell of."""
    assert () == teaching_pairs([group(candidate(0, 1.0))], 8)


def test_a_pair_that_cannot_be_true_teaches_nothing() -> None:
    """A tunable that made a kernel 99 times faster met a neighbour on the machine; the limit is the caller's."""
    slow, fast = candidate(1, 0.01), candidate(2, 1.0)
    groups = [Group(parent=slow, plan=Plan(text="tune"), children=(fast,))]
    assert 1 == len(teaching_pairs(groups, 8))
    assert () == teaching_pairs(groups, 8, believed=8.0)


def test_kernels_near_the_fastest_are_timed_again_unless_it_is_alone() -> None:
    """Tunings of one text among them; none where nothing is near."""
    kernels = [
        candidate(0, 1.0),
        candidate(1, 2.0, text="a"),
        candidate(2, 1.95, text="a"),
        candidate(3, 1.85),
        candidate(4, 1.7),
    ]
    assert [1, 2, 3] == [c.id for c in contenders(kernels, 4)]
    assert [1, 2] == [c.id for c in contenders(kernels, 2)]
    assert () == contenders([kernels[0], kernels[1]], 4)
    assert () == contenders(kernels, 0)


def test_two_timings_count_alike() -> None:
    """The geometric mean of what they say, and the blocks of both."""
    again = candidate(1, 0.5).verdict
    both = pooled(candidate(1, 2.0), again)
    assert 1.0 == speed(both)
    assert 10 == both.verdict.timing.blocks
    assert pytest.approx(100.0) == both.verdict.timing.kernel_us
