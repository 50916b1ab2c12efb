"""The search for numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from accelopt_compile.records import KernelSource
from accelopt_compile.search.tuning import Measured, Tunables, tune

SOURCE = KernelSource(language="cpp", text="", tunables={"A": (4, 1, 2, 8, 16, 32), "B": (1, 2, 4, 8)})
START = Measured(tunables=SOURCE.defaults(), speed=1.0)


class Bowl:
    """Speeds that fall with the distance from A=16, B=4, counting steps; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Tunables] = []

    def __call__(self, rung: Sequence[Tunables]) -> Iterator[float | None]:
        for tunables in rung:
            self.asked.append(tunables)
            a, b = sorted(SOURCE.tunables["A"]).index(tunables["A"]), sorted(SOURCE.tunables["B"]).index(tunables["B"])
            yield None if tunables["B"] == 8 else 2.0 - 0.1 * ((a - 4) ** 2 + (b - 2) ** 2)


def test_the_best_numbers_of_a_small_space_are_found() -> None:
    """Twelve of 24 combinations are enough to walk to the bottom of a bowl, from several seeds."""
    found = [
        tune(SOURCE, START, measure=Bowl(), valid=lambda t: True, priors=[], trials=12, rng=random.Random(seed)).speed
        for seed in range(10)
    ]
    assert 1.9 <= sorted(found)[2]


def test_no_combination_is_measured_twice_and_trials_are_a_limit() -> None:
    """Neither the start nor any other combination is asked for again."""
    for seed in range(10):
        bowl = Bowl()
        tune(SOURCE, START, measure=bowl, valid=lambda t: True, priors=[], trials=9, rng=random.Random(seed))
        asked = [tuple(sorted(t.items())) for t in [SOURCE.defaults(), *bowl.asked]]
        assert len(set(asked)) == len(asked) <= 10


def test_priors_are_measured_first() -> None:
    """What was good elsewhere makes up the first rung."""
    bowl = Bowl()
    priors = [{"A": 16, "B": 4}, {"A": 16, "B": 2}]
    best = tune(SOURCE, START, measure=bowl, valid=lambda t: True, priors=priors, trials=6, rng=random.Random(0))
    assert priors == bowl.asked[:2]
    assert {"A": 16, "B": 4} == best.tunables


def test_invalid_combinations_are_never_measured() -> None:
    """The constraint holds for priors, samples and neighbours."""
    bowl = Bowl()

    def valid(tunables: Tunables) -> bool:
        return tunables["A"] * tunables["B"] <= 16

    tune(SOURCE, START, measure=bowl, valid=valid, priors=[{"A": 32, "B": 4}], trials=12, rng=random.Random(1))
    assert bowl.asked and all(valid(tunables) for tunables in bowl.asked)


def test_a_structure_that_does_not_care_for_its_numbers_costs_one_rung() -> None:
    """When a rung of several gains nothing, tuning ends and the start stays."""
    asked: list[Tunables] = []

    def flat(rung: Sequence[Tunables]) -> Iterator[float]:
        asked.extend(rung)
        yield from [1.0] * len(rung)

    best = tune(SOURCE, START, measure=flat, valid=lambda t: True, priors=[], trials=8, rng=random.Random(0))
    assert (4, START) == (len(asked), best)


def test_nothing_is_measured_where_there_is_nothing_to_tune() -> None:
    """A source whose only combination is its default is left alone."""
    source = KernelSource(language="cpp", text="", tunables={"A": (4,)})
    start = Measured(tunables={"A": 4}, speed=1.0)
    assert start == tune(source, start, measure=Bowl(), valid=lambda t: True, priors=[], trials=8, rng=random.Random(0))
