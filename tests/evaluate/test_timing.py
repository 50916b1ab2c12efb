"""Timing decisions: no win without a difference, a win where there is one. On synthetic clocks, so nothing is raced."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from accelopt_compile.evaluate.timing import FULL, QUICK, LocalRig, Protocol, bootstrap, decide, measure, noise, repeats
from accelopt_compile.records import Timing


class World:
    """A clock that only advances when a call says so. A call costs `us`, times noise: per call, and per fresh buffer."""

    def __init__(self, seed: int, *, jitter: float = 0.0, placement: float = 0.0, first: float = 1.0) -> None:
        self.random = random.Random(seed)
        self.jitter, self.placement, self.first = jitter, placement, first
        self.now = 0.0
        self.made = 0

    def clock(self) -> int:
        return int(self.now)

    def maker(self, us: float) -> object:
        def make() -> object:
            here = us * math.exp(self.random.gauss(0, self.placement)) * (1.0 if self.made % 2 else self.first)
            self.made += 1

            def call() -> None:
                spike = 20 * us if self.random.random() < 0.002 else 0.0
                self.now += 1000 * (here * math.exp(self.random.gauss(0, self.jitter)) + spike)

            return call

        return make


def measured(world: World, ours_us: float, base_us: float, protocol: Protocol = FULL) -> Timing:
    ours, base = world.maker(ours_us), world.maker(base_us)
    rig = LocalRig(ours, base, world.clock)  # type: ignore[arg-type]
    p = measure(rig, protocol, contended=False, generator=world.random)
    return Timing(
        kernel_us=p.ours_us,
        baselines_us={"eager": p.base_us},
        speedup=p.ratio,
        low=p.low,
        high=p.high,
        blocks=p.blocks,
        threads=1,
    )


def test_equal_kernels_hardly_ever_win() -> None:
    """A/A on a noisy machine (3 % jitter, 2 % placement, spikes): at most 1 of 60 is called a win of 3 %."""
    false_wins = sum(measured(World(seed, jitter=0.03, placement=0.02), 300, 300).gains(1.03) for seed in range(60))
    assert false_wins <= 1


def test_a_true_win_is_seen() -> None:
    """A kernel 1.25 times as fast is a win on the same noisy machine, nearly always."""
    seen = sum(measured(World(seed, jitter=0.03, placement=0.02), 240, 300).gains(1.03) for seed in range(20))
    assert seen >= 19


def test_quick_ranks_what_is_clearly_faster() -> None:
    """The quick protocol's point estimate tells 1.2 from 1.0."""
    for seed in range(20):
        fast = measured(World(seed, jitter=0.03, placement=0.02), 250, 300, QUICK)
        same = measured(World(100 + seed, jitter=0.03, placement=0.02), 300, 300, QUICK)
        assert fast.speedup > same.speedup


def test_a_hopeless_kernel_costs_one_block() -> None:
    """Seconds a call, where the base takes a millisecond: thirty calls would be a compile's whole budget."""
    world = World(1)
    found = measured(world, 4e6, 1e3, QUICK)
    assert 1 == found.blocks
    assert 0.001 > found.high
    assert 9 * 4e9 > world.now


def test_a_slow_kernel_is_measured_as_any_other() -> None:
    """What a neighbour took of a short call must not end its measurement."""
    assert QUICK.blocks == measured(World(1), 300, 3, QUICK).blocks


def test_the_interval_holds_the_estimate() -> None:
    """low <= ratio <= high, also with three blocks."""
    for logs in ([0.1, 0.1, 0.1], [0.0, 0.5, -0.2], [0.01 * k for k in range(12)]):
        ratio, low, high = decide(logs, random.Random(1))
        assert low - 1e-12 <= ratio <= high + 1e-12


def test_bootstrap_of_a_constant_is_that_constant() -> None:
    """No spread, no interval."""
    assert (2.0, 2.0) == bootstrap([2.0] * 5, random.Random(1))


def test_short_calls_are_repeated_and_long_ones_are_not() -> None:
    """A sample takes at least 200 us; a call over 5 ms is a sample of its own."""
    world = World(1)
    short, long = world.maker(2)(), world.maker(9000)()  # type: ignore[operator]
    assert repeats(short, world.clock)[0] >= 100
    assert 1 == repeats(long, world.clock)[0]


def test_noise_is_small_without_noise_and_larger_with() -> None:
    """The A/A self-test reads 0 on a quiet clock and at least 1 % on one whose buffers differ by 5 %."""

    def of(world: World) -> float:
        rig = LocalRig(world.maker(300), world.maker(300), world.clock)  # type: ignore[arg-type]
        return noise(measure(rig, QUICK, contended=False, generator=world.random))

    assert of(World(1)) < 0.001
    assert of(World(1, placement=0.05)) > 0.01


def test_who_allocates_first_does_not_matter() -> None:
    """Buffers made first are 30 % slower in this world: equal kernels still measure as equal, without a wider interval."""
    for protocol in (QUICK, FULL):
        found = measured(World(4, first=1.3), 300, 300, protocol)
        assert abs(found.speedup - 1) < 0.01
        assert found.high - found.low < 0.02


def timed(speedup: float, low: float, *, eager_us: float = 100.0, inductor_us: float = 100.0) -> Timing:
    baselines = {"eager": eager_us, "inductor": inductor_us}
    kernel_us = min(baselines.values()) / speedup
    return Timing(kernel_us=kernel_us, baselines_us=baselines, speedup=speedup, low=low, high=2 * speedup, blocks=12, threads=1)


def test_winning_needs_the_low_end() -> None:
    """A high point estimate with a low end below the minimum is no win; on average it is one."""
    assert not timed(1.5, 1.01).gains(1.03)
    assert timed(1.5, 1.01).gains(1.03, surely=False)
    assert timed(1.5, 1.2).gains(1.03)


def test_a_kernel_level_with_eager_is_a_gain_where_inductor_is_slow() -> None:
    """Inductor's code would run in its place. Slower than eager, or not surely faster than Inductor's, is none."""
    assert timed(1.0, 0.96, inductor_us=220).gains(1.03)
    assert not timed(0.95, 0.94, inductor_us=220).gains(1.03)
    assert not timed(1.0, 0.96, inductor_us=105).gains(1.03)
    assert not timed(1.0, 0.96, eager_us=220).gains(1.03)
    assert not timed(1.0, 0.96, inductor_us=220).gains(2.2)


def test_what_is_level_with_eager_says_so() -> None:
    """A speedup of 1.00x alone would read as if nothing were gained."""
    assert timed(1.0, 0.96, inductor_us=220).level_with_eager
    assert 2.2 == timed(1.0, 0.96, inductor_us=220).over_inductor
    assert not timed(1.2, 1.1, inductor_us=220).level_with_eager
    assert not timed(1.0, 0.96, eager_us=220).level_with_eager


def test_no_sample_pays_for_memory_that_nobody_had_touched() -> None:
    """A side's first three results in a block may each lie elsewhere, on pages that are made by touching them."""
    world = World(0)

    def fresh() -> Callable[[], None]:
        steady = world.maker(10_000)()  # type: ignore[operator]
        touched = iter([9000, 9000, 9000])

        def call() -> None:
            world.now += 1000 * next(touched, 0)
            steady()

        return call

    rig = LocalRig(fresh, world.maker(10_000), world.clock)  # type: ignore[arg-type]
    paired = measure(rig, QUICK, contended=False, generator=random.Random(3))
    assert paired.high < 1.01
    assert paired.low > 0.99
