"""What a measured speedup is worth once a reader, another clock and new content have been asked. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from accelopt_compile.evaluate import timing

CLOCKS_APART = 1.6
"""By how much the host's clock may see less of a speedup than the runner's: calls are few, and neighbours disturb both."""
NO_GAIN = 1.1
"""A speedup below this is none."""
MEMORY_APART = 1.9
"""A gain that is real may be larger on what lies in the nearest cache, but not by so much."""
UNNOTICED = 0.02
"""A difference below this share of the base's time is the noise of so few readings."""


def borne_out(paired: timing.Paired, ratio: float) -> bool:
    """Whether a speedup of `ratio` on new content agrees with the measured one, or there is none to agree with.

    >>> paired = timing.Paired(ratio=3.0, low=2.8, high=3.2, ours_us=10.0, base_us=30.0, blocks=12)
    >>> borne_out(paired, 1.7), borne_out(paired, 1.5), borne_out(paired, 1.05)
    (True, False, False)
    """
    apart = CLOCKS_APART if ratio < NO_GAIN else MEMORY_APART
    return paired.low <= 1.0 or paired.ratio <= apart * ratio


def on_new_content(paired: timing.Paired, ratio: float) -> timing.Paired:
    """The measurement of an honest kernel brought down to the speedup that it has on new content.

    >>> paired = timing.Paired(ratio=6.0, low=5.0, high=7.0, ours_us=10.0, base_us=60.0, blocks=12)
    >>> on_new_content(paired, 1.5).low
    1.25
    """
    return _scaled(paired, ratio / paired.ratio)


def takes_longer(now_us: float, before_us: float) -> bool:
    """Whether two times of a kernel differ by more than caches and clocks explain."""
    return now_us > CLOCKS_APART * before_us


def seen_ratio(ours_us: float, theirs_us: float, *, launch_us: float) -> float:
    """The least speedup that two times by the host's clock speak against, when up to `launch_us` of ours is launching.

    >>> seen_ratio(50.0, 100.0, launch_us=0.0)
    2.0
    >>> seen_ratio(16.0, 20.0, launch_us=15.0), seen_ratio(215.0, 100.0, launch_us=15.0)
    (20.0, 0.5)
    """
    return theirs_us / max(ours_us - launch_us, 1e-3)


def waits_longer(rounds: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """How much longer reading takes after our calls than after the base's, as far as every round of (ours, base) shows it: what
    one round shows may be noise. A sum of few elements takes 5 to 20 us, give or take 4: a softmax of 50 x 37 in 4 us, which is
    2.2x of Inductor's, was charged for that and was 0.3x, or 0.9x, or 1.8x.

    >>> waits_longer([([9.0, 8.0, 9.0], [5.0, 6.0, 5.0]), ([9.0, 6.0, 7.0], [6.0, 7.0, 6.0])])
    1.0
    """
    # Medians, not the fastest: a kernel that stores past the caches in most of its calls would be spared for the others.
    return min(statistics.median(ours) - statistics.median(base) for ours, base in rounds)


def charged(paired: timing.Paired, *, longer_us: float, step_us: float = 0.0) -> timing.Paired:
    """The measurement with `longer_us` more for each of our calls. Stores past the caches make a kernel fast, and the model
    slow, whose next operator reads what was just written: an RMS norm of 512 x 2048 in bfloat16 was 2.07x so, and is 1.56x.

    >>> before = timing.Paired(ratio=2.0, low=1.8, high=2.2, ours_us=100.0, base_us=200.0, blocks=12)
    >>> charged(before, longer_us=25.0).ratio, charged(before, longer_us=3.0).ratio, charged(before, longer_us=-50.0).ratio
    (1.6, 2.0, 2.0)

    Less than a step of the clock is nothing: `step_us`.
    """
    if longer_us < max(UNNOTICED * paired.base_us, step_us):
        return paired
    return _scaled(paired, paired.ours_us / (paired.ours_us + longer_us))


def _scaled(paired: timing.Paired, share: float) -> timing.Paired:
    """The speedup and its interval times `share`."""
    return replace(paired, ratio=paired.ratio * share, low=paired.low * share, high=paired.high * share)
