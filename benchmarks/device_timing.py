"""Timing on a device by its own events: warmed, cold second-level cache, graph replay for short kernels, sides interleaved.

Each sample is one call after a buffer larger than the cache was overwritten, between two events of one stream. A short call is
recorded once as a graph and replayed, so that the host's launch cost is no part of it, on any side.
Sides take turns in random order, round by round. Reported are medians, quartiles, and the interval of the rounds' median ratio.
Everything here is pure; the clock is the evaluator's (`accelopt_compile.evaluate.devices`). Not covered: clocks that the device
changes meanwhile; they are recorded beside each case.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

LEAST_ROUNDS, MOST_ROUNDS = 10, 100
DRAWS = 2000
Call = Callable[[], object]


class Stopwatch(Protocol):
    """A device's clock."""

    def prepare(self, call: Call) -> Call:
        """`call` warmed, and as a replayed graph where it is short and can be recorded."""

    def sample_us(self, call: Call) -> float:
        """Microseconds of one call on cold caches."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Microseconds of one side: median and quartiles of `samples` calls."""

    median_us: float
    low_us: float
    high_us: float
    samples: int


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Time of a side over ours: the median of the rounds' ratios, with its 95 % interval (bootstrap over rounds)."""

    ratio: float
    low: float
    high: float


def rounds_for(round_us: float, budget_s: float) -> int:
    """Rounds that fit a budget, within [10, 100].

    >>> rounds_for(1000.0, 0.05), rounds_for(1e6, 1.0), rounds_for(1.0, 1.0)
    (50, 10, 100)
    """
    return max(LEAST_ROUNDS, min(MOST_ROUNDS, int(budget_s * 1e6 / max(round_us, 1e-3))))


def interleaved(
    sides: Mapping[str, Call], stopwatch: Stopwatch, *, budget_s: float, generator: random.Random
) -> dict[str, list[float]]:
    """Microseconds of each side, one sample a round, in an order drawn anew each round."""
    prepared = {name: stopwatch.prepare(call) for name, call in sides.items()}
    first = sum(stopwatch.sample_us(call) for call in prepared.values())
    taken: dict[str, list[float]] = {name: [] for name in prepared}
    for _ in range(rounds_for(first, budget_s)):
        for name in generator.sample(list(prepared), len(prepared)):
            taken[name].append(stopwatch.sample_us(prepared[name]))
    return taken


def spread(samples: Sequence[float]) -> Spread:
    low, median, high = statistics.quantiles(samples, n=4)
    return Spread(median_us=median, low_us=low, high_us=high, samples=len(samples))


def ratio(ours: Sequence[float], theirs: Sequence[float], generator: random.Random) -> Ratio:
    """How many times our time the other side took, round by round."""
    logs = [math.log(b / a) for a, b in zip(ours, theirs, strict=True)]
    draws = sorted(statistics.median(generator.choices(logs, k=len(logs))) for _ in range(DRAWS))
    low, high = draws[int(0.025 * DRAWS)], draws[int(0.975 * DRAWS) - 1]
    return Ratio(ratio=math.exp(statistics.median(logs)), low=math.exp(low), high=math.exp(high))


def report(taken: Mapping[str, Sequence[float]], ours: str, generator: random.Random) -> dict[str, Any]:
    """Plain JSON: the spread of each side, and each other side's ratio over `ours`."""
    sides = {name: asdict(spread(samples)) for name, samples in taken.items()}
    others = [name for name in taken if name != ours]
    ratios = {name: asdict(ratio(taken[ours], taken[name], generator)) for name in others} if ours in taken else {}
    return {"sides": sides, "over": ratios}
