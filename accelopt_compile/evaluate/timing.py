"""Timing that can be believed on a busy machine: blocks of randomly ordered pairs, fresh buffers per block, a bootstrap
over blocks. Nothing here imports torch; callables come from `Maker`s."""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accelopt_compile.records import Timing

Call = Callable[[], object]
Maker = Callable[[], Call]
"""Makes fresh buffers and gives a call that uses them."""
Clock = Callable[[], int]
"""Nanoseconds."""

SAMPLE_NS = 200_000
LONG_CALL_NS = 5_000_000
DRAWS = 2000


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


def wins(timing: Timing, minimum: float = 1.03) -> bool:
    """Whether a kernel is certainly faster than the better baseline: the low end of its interval is above `minimum`."""
    return timing.low > minimum


def clock_for(threads: int) -> Clock:
    """CPU time of the whole process for one thread (a neighbour on the core does not count), else wall clock."""
    return time.process_time_ns if threads == 1 else time.perf_counter_ns


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


def measure(
    ours: Maker,
    base: Maker,
    protocol: Protocol,
    *,
    clock: Clock,
    generator: random.Random,
    after_block: Callable[[Call], None] | None = None,
) -> Paired:
    """Time `ours` against `base` in the same process, interleaved. `after_block` sees our call after each block (it
    checks what the timed calls wrote)."""
    a, b = ours(), base()
    (repeat_a, took_a), (repeat_b, took_b) = repeats(a, clock), repeats(b, clock)
    pair_s = (repeat_a * took_a + repeat_b * took_b) / 1e9
    total = max(6, min(protocol.blocks * protocol.pairs, int(protocol.budget_s / max(pair_s, 1e-9))))
    blocks = max(3, min(protocol.blocks, total // 2))
    pairs = max(2, total // blocks)
    logs: list[float] = []
    all_a: list[float] = []
    all_b: list[float] = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        for block in range(blocks):
            if block % 2:
                b, a = base(), ours()
            else:
                a, b = ours(), base()
            a(), b()  # touch the fresh buffers
            times = [_pair(a, b, repeat_a, repeat_b, clock, generator) for _ in range(pairs)]
            log, block_a, block_b = _block(times, contended=clock is time.perf_counter_ns)
            logs.append(log)
            all_a.append(block_a)
            all_b.append(block_b)
            if after_block is not None:
                after_block(a)
    finally:
        if collecting:
            gc.enable()
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


def _pair(a: Call, b: Call, repeat_a: int, repeat_b: int, clock: Clock, generator: random.Random) -> tuple[float, float]:
    if generator.random() < 0.5:
        first = sample(a, repeat_a, clock)
        return max(first, 1.0), max(sample(b, repeat_b, clock), 1.0)
    second = sample(b, repeat_b, clock)
    return max(sample(a, repeat_a, clock), 1.0), max(second, 1.0)


def noise(maker: Maker, protocol: Protocol, *, clock: Clock, generator: random.Random) -> float:
    """How far an A/A measurement of `maker` against itself is from 1: the larger end of its interval, as a share."""
    paired = measure(maker, maker, protocol, clock=clock, generator=generator)
    return max(abs(paired.high - 1), abs(1 - paired.low))
