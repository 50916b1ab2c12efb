"""Timing that can be believed on a busy machine: blocks of randomly ordered pairs, fresh buffers per block, a bootstrap
over blocks. Nothing here imports torch. The samples come from a `Rig`, which may live in another process; every decision
is made from them here."""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

Call = Callable[[], object]
Maker = Callable[[], Call]
"""Makes fresh buffers and gives a call that uses them."""
Clock = Callable[[], int]
"""Nanoseconds."""

SAMPLE_NS = 200_000
LONG_CALL_NS = 5_000_000
DRAWS = 2000
HOPELESS = 8
HOPELESS_NS = 100_000_000
"""From this many times the base's on, and longer than any neighbour holds a core, one block says enough: thirty calls of 4 s
take a compile's whole budget twice over."""
SETTLING = 3
"""Calls of each side before the first sample of a block. With one, a result of 64 MB still got pages that nobody had touched, in
one sample of eight: quick timings of one kernel gave 1.06x to 2.63x, and 1.53x to 1.70x with three."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How much to measure. `budget_s` bounds the whole; blocks and pairs shrink to fit, never below 3 blocks of 2."""

    blocks: int
    pairs: int
    budget_s: float


QUICK = Protocol(blocks=6, pairs=4, budget_s=0.15)
FULL = Protocol(blocks=12, pairs=8, budget_s=3.0)


@dataclass(frozen=True, kw_only=True)
class Paired:
    """The result of one paired measurement: base time over ours, its interval, and the medians in microseconds."""

    ratio: float
    low: float
    high: float
    ours_us: float
    base_us: float
    blocks: int


def clock_for(threads: int) -> Clock:
    """CPU time of the whole process for one thread (a neighbour on the core does not count), else wall clock."""
    return time.process_time_ns if threads == 1 else time.perf_counter_ns


def contended(threads: int) -> bool:
    """Whether the clock for so many threads counts what a neighbour takes."""
    return clock_for(threads) is time.perf_counter_ns


def sample(call: Call, repeat: int, clock: Clock) -> float:
    """Nanoseconds per call over `repeat` calls."""
    begin = clock()
    for _ in range(repeat):
        call()
    return (clock() - begin) / repeat


def repeats(call: Call, clock: Clock) -> tuple[int, float]:
    """Calls per sample, so that a sample takes 200 us (one call if it takes over 5 ms); and ns per call, roughly."""
    call()
    took = max(sample(call, 1, clock), 1.0)
    if took < SAMPLE_NS:
        took = max(min(sample(call, max(1, int(SAMPLE_NS / 4 / took)), clock) for _ in range(2)), 1.0)
    return (1, took) if took > LONG_CALL_NS else (max(1, math.ceil(SAMPLE_NS / took)), took)


def bootstrap(values: Sequence[float], generator: random.Random, draws: int = DRAWS) -> tuple[float, float]:
    """95 % percentile interval of the mean of `values`."""
    count = len(values)
    means = sorted(sum(generator.choices(values, k=count)) / count for _ in range(draws))
    return means[int(0.025 * draws)], means[int(0.975 * draws) - 1]


def balanced(block_logs: Sequence[float]) -> Sequence[float]:
    """Blocks averaged two by two, from 6 blocks on. Who allocates first gets other pages (18 % between equal calls on 16 MiB
    tensors), so blocks take turns in that, and two together are free of it."""
    if len(block_logs) < 6:
        return block_logs
    return [(x + y) / 2 for x, y in zip(block_logs[::2], block_logs[1::2], strict=False)]


def decide(block_logs: Sequence[float], generator: random.Random) -> tuple[float, float, float]:
    """(ratio, low, high) from the log ratio of each block."""
    block_logs = balanced(block_logs)
    low, high = bootstrap(block_logs, generator)
    return math.exp(statistics.fmean(block_logs)), math.exp(low), math.exp(high)


Pairs = list[tuple[float, float]]
"""Nanoseconds a call of one sample of ours and one of the base."""


class Rig(Interface):
    """Two sides that can be timed against each other: ours and the base."""

    def repeats(self) -> tuple[tuple[int, float], tuple[int, float]]:
        """(calls per sample, ns per call roughly) of ours and of the base, on fresh buffers."""
        ...

    def block(self, number: int, order: Sequence[bool], counts: tuple[int, int]) -> Pairs:
        """One pair of samples for each of `order` (True: ours first), on buffers made fresh for this block."""
        ...


class Stopwatch(Interface):
    """The clock of a device, whose calls only launch."""

    def prepare(self, call: Call) -> Call:
        """`call`, warmed and as it can be launched with the least cost to the host; it gives what `call` gives."""
        ...

    def sample_us(self, call: Call) -> float:
        """Microseconds of one call on the device."""
        ...

    def after_us(self, call: Call, then: Call) -> float:
        """Microseconds of `then`, right after `call`."""
        ...


class DeviceRig:
    """Both sides on a device, by its clock: a sample is one call."""

    def __init__(self, ours: Maker, base: Maker, stopwatch: Stopwatch) -> None:
        self._ours, self._base, self._stopwatch = ours, base, stopwatch
        self.last: Call | None = None

    def repeats(self) -> tuple[tuple[int, float], tuple[int, float]]:
        taken = [1e3 * self._stopwatch.sample_us(self._stopwatch.prepare(make())) for make in (self._ours, self._base)]
        return (1, taken[0]), (1, taken[1])

    def block(self, number: int, order: Sequence[bool], counts: tuple[int, int]) -> Pairs:
        sides = {ours: self._ours() if ours else self._base() for ours in ((False, True) if number % 2 else (True, False))}
        self.last = sides[True]
        ready = {ours: self._stopwatch.prepare(call) for ours, call in sides.items()}
        pairs = []
        for first in order:
            taken = {ours: 1e3 * self._stopwatch.sample_us(ready[ours]) for ours in (first, not first)}
            pairs.append((taken[True], taken[False]))
        return pairs


class LocalRig:
    """Both sides in this process."""

    def __init__(self, ours: Maker, base: Maker, clock: Clock) -> None:
        self._ours, self._base, self._clock = ours, base, clock
        self.last: Call | None = None
        self._held: dict[bool, object] = {}

    def repeats(self) -> tuple[tuple[int, float], tuple[int, float]]:
        a, b = self._ours(), self._base()
        return repeats(a, self._clock), repeats(b, self._clock)

    def block(self, number: int, order: Sequence[bool], counts: tuple[int, int]) -> Pairs:
        collecting = gc.isenabled()
        gc.disable()
        try:
            if number % 2:
                b, a = self._base(), self._ours()
            else:
                a, b = self._ours(), self._base()
            for _ in range(SETTLING):  # in the way of the samples, so that all memory that they will get is touched
                self._pair(a, b, (1, 1), True)
            self.last = a
            return [self._pair(a, b, counts, first) for first in order]
        finally:
            self._held = {}
            if collecting:
                gc.enable()

    def _pair(self, a: Call, b: Call, counts: tuple[int, int], ours_first: bool) -> tuple[float, float]:
        calls = {True: (a, counts[0]), False: (b, counts[1])}
        taken = {ours: self._sample(ours, *calls[ours]) for ours in (ours_first, not ours_first)}
        return taken[True], taken[False]

    def _sample(self, ours: bool, call: Call, repeat: int) -> float:
        """As `sample`, but the last result lives until this side's next turn. Without that the other side's outputs get the
        memory that this side wrote last: after stores past the caches that made a baseline a third slower than by itself."""
        self._held.pop(ours, None)
        result: object = None
        begin = self._clock()
        for _ in range(repeat):
            result = None  # freed before the next call, as in a program
            result = call()
        taken = (self._clock() - begin) / repeat
        self._held[ours] = result
        return max(taken, 1.0)


def measure(
    rig: Rig,
    protocol: Protocol,
    *,
    contended: bool,
    generator: random.Random,
    after_block: Callable[[int, int], None] | None = None,
) -> Paired:
    """Time our side of `rig` against the base, interleaved. `contended` says that the clock runs while others hold the
    processor. `after_block` is told the number of each block and how many there are (it checks what the calls wrote)."""
    (repeat_a, took_a), (repeat_b, took_b) = rig.repeats()
    pair_s = (repeat_a * took_a + repeat_b * took_b) / 1e9
    hopeless = took_a > max(HOPELESS * took_b, HOPELESS_NS)
    total = max(2 if hopeless else 6, min(protocol.blocks * protocol.pairs, int(protocol.budget_s / max(pair_s, 1e-9))))
    blocks = max(1 if hopeless else 3, min(protocol.blocks, total // 2))
    pairs = max(2, total // blocks)
    logs: list[float] = []
    all_a: list[float] = []
    all_b: list[float] = []
    for number in range(blocks):
        order = [generator.random() < 0.5 for _ in range(pairs)]
        times = rig.block(number, order, (repeat_a, repeat_b))
        log, block_a, block_b = _block(times, contended=contended)
        logs.append(log)
        all_a.append(block_a)
        all_b.append(block_b)
        if after_block is not None:
            after_block(number, blocks)
    ratio, low, high = decide(logs, generator)
    ours_us, base_us = statistics.median(all_a) / 1e3, statistics.median(all_b) / 1e3
    return Paired(ratio=ratio, low=low, high=high, ours_us=ours_us, base_us=base_us, blocks=blocks)


def _block(times: Sequence[tuple[float, float]], *, contended: bool) -> tuple[float, float, float]:
    """(log ratio, our ns, base ns) of one block: medians; on the wall clock the fastest of each side.

    Threads of OpenMP wait for each other by spinning. When a neighbour takes one core, a 25 us kernel with two threads
    takes 4 to 15 ms in most samples, and a median then claims a 500-fold win over it; the fastest sample does not.
    """
    if contended:
        ours, base = min(x for x, _ in times), min(y for _, y in times)
        return math.log(base / ours), ours, base
    ours, base = (statistics.median(pair[k] for pair in times) for k in (0, 1))
    return statistics.median(math.log(y / x) for x, y in times), ours, base


def noise(paired: Paired) -> float:
    """How far an A/A measurement, of one side against itself, is from 1: the larger end of its interval, as a share."""
    return max(abs(paired.high - 1), abs(1 - paired.low))
