"""Who goes on, and who teaches. Two rules each stated in full in the notes (accelopt.md 1.5 and 1.6)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from accelopt_compile.records import Accepted, Candidate, Plan
from accelopt_compile.search.proposer import TeachingPair

HELPED = 1.04
"""A plan whose best attempt is faster than its parent by more than this teaches (t_pos)."""

HURT = 1.15
"""A plan whose best attempt is slower than its parent by more than this teaches what to undo (t_neg)."""


BELIEVED = 8.0
"""A factor between parent and child beyond which a quick timing met a neighbour, not an idea: two threads that wait for each
other while a core is taken made a tunable "99.55x faster"."""


NEAR = 0.9
"""Kernels of this share of the fastest one's speed, or more, are timed again before one of them is chosen: of many timings the
highest is the luckiest (a layer norm: 1.22x when it was chosen, 1.03x in full, and another had 1.71x)."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """One plan on one parent with its accepted kernels, tuned ones included."""

    parent: Candidate
    plan: Plan
    children: tuple[Candidate, ...]

    @property
    def fastest(self) -> Candidate | None:
        return max(self.children, key=speed, default=None)

    @property
    def slowest(self) -> Candidate | None:
        return min(self.children, key=speed, default=None)


def speed(candidate: Candidate) -> float:
    """What candidates are ranked by: speed over the better baseline, measured in pairs. Unlike the bare kernel time
    it does not move with the machine's clock between two evaluations."""
    return candidate.verdict.timing.speedup


def relative(child: Candidate, parent: Candidate) -> float:
    """The child's speed over its parent's."""
    return speed(child) / speed(parent)


def within_noise(a: Candidate, b: Candidate) -> bool:
    """Whether the intervals of two measured speeds overlap; what is estimated has no noise."""
    ours, theirs = a.verdict.timing, b.verdict.timing
    return ours.basis == theirs.basis == "measured" and ours.low <= theirs.high and theirs.low <= ours.high


def elitist_beam(parents: Sequence[Candidate], groups: Sequence[Group], width: int) -> tuple[Candidate, ...]:
    """The `width` fastest of the parents and of each group's fastest kernel, each text once, at its best numbers: two
    tunings of one text would be expanded into the same plans. Ties go to the older one."""
    return fastest_texts([*parents, *(fastest for group in groups if (fastest := group.fastest) is not None)], width)


def fastest_texts(candidates: Iterable[Candidate], count: int) -> tuple[Candidate, ...]:
    """The `count` fastest kernels of different source text, each at its best numbers; ties go to the older one."""
    by_text: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda c: (-speed(c), c.id)):
        by_text.setdefault(candidate.source.digest, candidate)
    return tuple(by_text.values())[:count]


def contenders(candidates: Iterable[Candidate], count: int) -> tuple[Candidate, ...]:
    """The `count` fastest kernels, several tunings of a text among them, as far as they are `NEAR` the fastest; none where
    that one is alone."""
    ranked = sorted(candidates, key=lambda c: (-speed(c), c.id))
    near = [c for c in ranked[:count] if speed(c) >= NEAR * speed(ranked[0])]
    return tuple(near) if len(near) > 1 else ()


def pooled(candidate: Candidate, again: Accepted) -> Candidate:
    """The candidate with what two timings say together."""
    first, second = candidate.verdict.timing, again.timing
    timing = replace(
        second,
        kernel_us=math.sqrt(first.kernel_us * second.kernel_us),
        speedup=math.sqrt(first.speedup * second.speedup),
        low=math.sqrt(first.low * second.low),
        high=math.sqrt(first.high * second.high),
        blocks=first.blocks + second.blocks,
    )
    return replace(candidate, verdict=replace(candidate.verdict, timing=timing))


def paper_beam(parents: Sequence[Candidate], groups: Sequence[Group], width: int) -> tuple[Candidate, ...]:
    """AccelOpt's rule: each group's fastest kernel, the `width` fastest of these; a group without an accepted kernel
    is represented by its parent, behind all others. A parent may so fill several slots, and a beam can get slower.
    `parents` only matters when there is no group at all."""
    fresh = [fastest for group in groups if (fastest := group.fastest) is not None]
    fillers = [group.parent for group in groups if not group.children]
    ranked = sorted(fresh, key=lambda c: -speed(c)) + fillers
    return tuple(ranked[:width]) if ranked else tuple(parents[:width])


def teaching_pairs(groups: Sequence[Group], limit: int, *, believed: float = math.inf) -> tuple[TeachingPair, ...]:
    """At most `limit` pairs of a round: first the plans that helped most (at most half of them), then those that hurt
    most. A plan that helped is shown by its fastest kernel, one that hurt by its slowest. What is apart by more than `believed`
    is left out."""
    helped, hurt = [], []
    for group in groups:
        if (fastest := group.fastest) is None or (slowest := group.slowest) is None:
            continue
        best = relative(fastest, group.parent)
        if best > HELPED:
            helped.append(TeachingPair(slow=group.parent, fast=fastest, plan=group.plan, helped=True, speedup=best))
        elif best < 1 / HURT:
            loss = relative(group.parent, slowest)
            hurt.append(TeachingPair(slow=slowest, fast=group.parent, plan=group.plan, helped=False, speedup=loss))
    helped, hurt = ([pair for pair in pairs if pair.speedup <= believed] for pairs in (helped, hurt))
    kept = sorted(helped, key=lambda pair: -pair.speedup)[: limit // 2]
    return (*kept, *sorted(hurt, key=lambda pair: -pair.speedup)[: limit - len(kept)])
