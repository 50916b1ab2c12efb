"""Numbers by classical search: successive halving over the tunables of one structure, and descent from the best of them.

An evaluation has one cheap form, so it is not the effort that is halved but the field: a first rung spread over the
space, then rungs half as wide around the better half of what was measured, until the trials are used up.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from accelopt_compile.records import KernelSource

Tunables = dict[str, int]

_RANDOM_DRAWS = 64
"""Draws at most to find valid combinations in a space too large to list."""

_LISTED_AT_MOST = 4096

_WORTH_GOING_ON = 1.01
"""Gain of a rung below which the structure is taken not to care for its numbers."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Tunables with their speed (as in `selection.speed`)."""

    tunables: Mapping[str, int]
    speed: float


def tune(
    source: KernelSource,
    start: Measured,
    *,
    measure: Callable[[Sequence[Tunables]], Iterable[float | None]],
    valid: Callable[[Tunables], bool],
    priors: Sequence[Tunables],
    trials: int,
    rng: random.Random,
) -> Measured:
    """The best tunables found for `source`, starting from a measured combination, with at most `trials` measurements.

    `measure` gives a speed each, or None for a rejected kernel; what it raises ends the tuning. `priors` are
    combinations that were good elsewhere, best first: they make up the first rung before chance does. Ends early when
    a rung of several gains nothing.
    """
    field = [start]
    asked = {_key(start.tunables)}
    width = max(1, (trials + 1) // 2)
    rung: list[Tunables] = first_rung(source, width, priors=priors, valid=valid, asked=asked, rng=rng)
    while rung and trials > 0:
        rung = rung[:trials]
        before = max(m.speed for m in field)
        asked.update(_key(tunables) for tunables in rung)
        for tunables, speed in zip(rung, measure(rung), strict=True):
            if speed is not None:
                field.append(Measured(tunables=tunables, speed=speed))
        trials -= len(rung)
        field = sorted(field, key=lambda m: -m.speed)[: max(1, (len(field) + 1) // 2)]
        if width > 1 and field[0].speed < before * _WORTH_GOING_ON:
            break
        width = max(1, width // 2)
        around = [near for best in field for near in neighbours(source, best.tunables) if valid(near) and _key(near) not in asked]
        rung = _chosen(around, width, rng)
    return max(field, key=lambda m: m.speed)


def polish(
    source: KernelSource,
    start: Measured,
    *,
    measure: Callable[[Sequence[Tunables]], Iterable[float | None]],
    valid: Callable[[Tunables], bool],
    trials: int,
) -> Measured:
    """The best tunables found by descent from a measured combination, with at most `trials` measurements: every single step
    from it, the steps that helped all together, and so on from what was best, until nothing is faster. `valid` says no to what
    was measured before.

    A few draws of a space of hundreds leave a number that costs a fifth: AHEAD helped, and the PREFETCH that was drawn with it
    stayed (softmax of 1024 x 1024, 1.70x instead of 2.11x)."""
    best, asked = start, {_key(start.tunables)}
    while trials > 0:
        steps = [near for near in neighbours(source, best.tunables) if valid(near) and _key(near) not in asked][:trials]
        asked.update(map(_key, steps))
        found = [Measured(tunables=t, speed=s) for t, s in zip(steps, measure(steps), strict=True) if s is not None]
        helped = sorted((m for m in found if m.speed > best.speed * _WORTH_GOING_ON), key=lambda m: m.speed)
        trials -= len(steps)
        if not helped:
            break
        together = together_of(best.tunables, [m.tunables for m in helped])
        best = helped[-1]
        if trials > 0 and len(helped) > 1 and valid(together) and _key(together) not in asked:
            asked.add(_key(together))
            trials -= 1
            (speed,) = measure([together])
            best = best if speed is None or speed <= best.speed else Measured(tunables=together, speed=speed)
    return best


def together_of(start: Mapping[str, int], steps: Sequence[Mapping[str, int]]) -> Tunables:
    """All steps from `start` in one; of two of one tunable, the later."""
    changed = {name: value for step in steps for name, value in step.items() if value != start[name]}
    return {**start, **changed}


def first_rung(
    source: KernelSource,
    width: int,
    *,
    priors: Sequence[Tunables],
    valid: Callable[[Tunables], bool],
    asked: set[tuple[tuple[str, int], ...]],
    rng: random.Random,
) -> list[Tunables]:
    """`width` distinct valid combinations not asked for yet: priors first, then a sample of the space."""
    rung: dict[tuple[tuple[str, int], ...], Tunables] = {}
    for tunables in itertools.chain(priors, _draws(source, rng)):
        if len(rung) >= width:
            break
        if (key := _key(tunables)) not in asked and key not in rung and valid(tunables):
            rung[key] = dict(tunables)
    return list(rung.values())


def neighbours(source: KernelSource, tunables: Mapping[str, int]) -> list[Tunables]:
    """One tunable moved one step along its values in order of size."""
    near = []
    for name in sorted(source.tunables):
        values = sorted(source.tunables[name])
        at = values.index(tunables[name])
        near += [{**tunables, name: values[i]} for i in (at - 1, at + 1) if 0 <= i < len(values)]
    return near


def _draws(source: KernelSource, rng: random.Random) -> list[Tunables]:
    names = sorted(source.tunables)
    size = 1
    for name in names:
        size *= len(source.tunables[name])
    if size <= _LISTED_AT_MOST:
        every = [dict(zip(names, values, strict=True)) for values in itertools.product(*(source.tunables[n] for n in names))]
        rng.shuffle(every)
        return every
    return [{name: rng.choice(source.tunables[name]) for name in names} for _ in range(_RANDOM_DRAWS)]


def _chosen(around: list[Tunables], width: int, rng: random.Random) -> list[Tunables]:
    """`width` of the neighbours, those of the fastest first, chance deciding among them; each once."""
    distinct = {_key(tunables): tunables for tunables in around}
    ordered = list(distinct.values())
    head, tail = ordered[: 2 * width], ordered[2 * width :]
    rng.shuffle(head)
    return (head + tail)[:width]


def _key(tunables: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(tunables.items()))
