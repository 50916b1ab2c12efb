"""Timing of several variants of one case so that their ratios can be believed on a shared machine.

The rules of the search's own timing (`accelopt_compile.evaluate.timing`) for more than two sides: blocks with new
memory at a random place, in each block rounds in which every variant runs once in random order, samples of at least
200 us, medians of log ratios per block, a bootstrap over blocks.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accelopt_compile.evaluate.timing import Clock, decide, repeats, sample
from benchmarks.harness import Samples

Calls = Mapping[str, Callable[[], Any]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much to measure: `blocks` of `rounds`, fewer where `limit_s` does not allow it, never below 5 of 3."""

    blocks: int = 12
    rounds: int = 8
    limit_s: float = 12.0

    def fitted(self, round_s: float) -> Plan:
        """The plan for rounds that take this long."""
        total = max(15, min(self.blocks * self.rounds, int(self.limit_s / max(round_s, 1e-9))))
        blocks = max(5, min(self.blocks, total // 3))
        return Plan(blocks=blocks, rounds=max(3, total // blocks), limit_s=self.limit_s)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times faster: point and 95 % interval."""

    ratio: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        return {"ratio": round(self.ratio, 4), "low": round(self.low, 4), "high": round(self.high, 4)}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds per call of every variant, by block and round."""

    blocks: Sequence[Mapping[str, Sequence[float]]]

    def samples(self, name: str) -> Samples:
        return Samples(seconds=tuple(s for block in self.blocks for s in block[name]))

    def ratio(self, base: str, ours: str) -> Ratio:
        """Time of `base` over time of `ours`."""
        logs = [
            statistics.median(math.log(b / o) for b, o in zip(block[base], block[ours], strict=True)) for block in self.blocks
        ]
        return Ratio(**dict(zip(("ratio", "low", "high"), decide(logs, random.Random(0)), strict=True)))


def measure(make: Callable[[], Calls], plan: Plan, *, clock: Clock, generator: random.Random) -> Measured:
    """`make` gives one call per variant, on new memory each time."""
    calls = make()
    counts = _settled(calls, clock)
    round_s = sum(count * took for count, took in counts.values()) / 1e9
    plan = plan.fitted(round_s)
    blocks = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(plan.blocks):
            calls = None  # type: ignore[assignment]  # the old memory goes before the new comes
            calls = make()
            for call in calls.values():
                call()  # touch the fresh memory
            blocks.append(_block(calls, counts, plan.rounds, clock, generator))
    finally:
        if collecting:
            gc.enable()
    return Measured(blocks=blocks)


def _block(
    calls: Calls, counts: Mapping[str, tuple[int, float]], rounds: int, clock: Clock, generator: random.Random
) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in generator.sample(list(calls), len(calls)):
            taken[name].append(max(sample(calls[name], counts[name][0], clock), 1.0) / 1e9)
    return taken


def _settled(calls: Calls, clock: Clock) -> dict[str, tuple[int, float]]:
    """Calls per sample and nanoseconds per call of each variant, once two rounds of warming agree within 2 %, or after 10."""
    before: dict[str, tuple[int, float]] = {}
    for _ in range(10):
        now = {name: repeats(call, clock) for name, call in calls.items()}
        if before and all(abs(now[n][1] / before[n][1] - 1) < 0.02 for n in now):
            break
        before = now
        if sum(count * took for count, took in now.values()) > 1e9:
            break  # a round of over a second needs no more warming
    return now
