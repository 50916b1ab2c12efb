"""The last step of a search: descent from the best kernel's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from accelopt_compile.records import KernelSource
from accelopt_compile.search import SearchSettings
from accelopt_compile.search.tuning import Measured, Tunables, polish
from tests.search.worlds import World

SOURCE = KernelSource(
    language="cpp",
    text="",
    tunables={"A": (0, 256, 1024), "B": (0, 256, 1024, 4096), "C": (1, 2, 4)},
    structure={},
    origin="seed",
)


def measuring(speed: Callable[[Mapping[str, int]], float | None], asked: list[Tunables]) -> Callable[..., Iterable[float | None]]:
    def measure(rung: Sequence[Tunables]) -> Iterable[float | None]:
        asked.extend(rung)
        return [speed(tunables) for tunables in rung]

    return measure


def descended(
    speed: Callable[[Mapping[str, int]], float | None],
    start: Tunables,
    *,
    known: Sequence[Tunables] = (),
    trials: int = 12,
    valid: Callable[[Tunables], bool] = lambda _: True,
) -> tuple[Tunables, list[Tunables]]:
    asked: list[Tunables] = []
    first = Measured(tunables=start, speed=speed(start) or 0.0)

    def new(tunables: Tunables) -> bool:
        return valid(tunables) and tunables not in known

    found = polish(SOURCE, first, measure=measuring(speed, asked), valid=new, trials=trials)
    return dict(found.tunables), asked


def by_distance(tunables: Mapping[str, int]) -> float:
    """2 at A=256, B=0, C=1, less for each step away from there."""
    steps = abs((0, 256, 1024).index(tunables["A"]) - 1) + (0, 256, 1024, 4096).index(tunables["B"]) + tunables["C"] // 2
    return 2.0 * 0.9**steps


def test_steps_that_help_are_taken_together() -> None:
    """From two numbers that cost a fifth the best is there after the single steps and one trial of both."""
    best, asked = descended(by_distance, {"A": 256, "B": 256, "C": 2})
    assert {"A": 256, "B": 0, "C": 1} == best
    assert {"A": 256, "B": 0, "C": 1} == asked[6]


def test_it_goes_on_from_what_was_best() -> None:
    """Two steps of one number away, where the first one helps."""
    best, _ = descended(by_distance, {"A": 256, "B": 1024, "C": 1})
    assert {"A": 256, "B": 0, "C": 1} == best


def test_nothing_is_measured_twice_or_beyond_the_trials() -> None:
    """What the search knows is not asked again; the limit holds; nothing that is not valid is asked."""
    known = [{"A": 256, "B": 0, "C": 2}, {"A": 256, "B": 256, "C": 1}]
    _, asked = descended(by_distance, {"A": 256, "B": 256, "C": 2}, known=known)
    assert not [tunables for tunables in asked if tunables in known]
    assert len(asked) == len({tuple(sorted(tunables.items())) for tunables in asked})
    assert 3 == len(descended(by_distance, {"A": 0, "B": 4096, "C": 4}, trials=3)[1])
    assert [] == descended(by_distance, {"A": 0, "B": 4096, "C": 4}, trials=0)[1]
    assert all(
        tunables["A"] == 256
        for tunables in descended(by_distance, {"A": 256, "B": 4096, "C": 4}, valid=lambda t: t["A"] == 256)[1]
    )


def test_noise_and_rejected_kernels_lead_nowhere() -> None:
    """A gain below a hundredth is none, and a rejected kernel has no speed: the start stays, after its single steps."""
    start = {"A": 256, "B": 256, "C": 2}
    best, asked = descended(lambda t: 1.0 if t == start else 1.005, start)
    assert start == best
    assert 6 == len(asked)
    assert start == descended(lambda t: 1.0 if t == start else None, start)[0]


def test_a_search_ends_with_the_steps_around_its_best_kernel() -> None:
    """Of six regions none is slower for it beyond noise, some are faster; the paper's search has no such descent."""
    quick = SearchSettings.preset("quick")
    gains = []
    for number in range(6):
        before = World(number=number, settings=replace(quick, polish_trials=0)).run()
        after = World(number=number, settings=quick).run()
        assert before.best is not None
        assert after.best is not None
        assert before.evaluated < after.evaluated <= before.evaluated + quick.polish_trials
        gains.append(after.best.verdict.timing.speedup / before.best.verdict.timing.speedup)
    assert min(gains) >= 0.99
    assert max(gains) > 1.03
    assert 0 == SearchSettings.preset("paper").polish_trials


def test_no_descent_where_less_than_half_of_the_time_is_left() -> None:
    """Other regions of the graph want theirs."""
    quick = replace(SearchSettings.preset("quick"), timed_again=0)
    enough, used = World(settings=quick, seconds=1000), World(settings=replace(quick, polish_trials=0), seconds=1000)
    seconds = used.run().seconds
    assert enough.run().seconds > seconds
    short = World(settings=quick, seconds=1.9 * seconds)
    assert seconds >= short.run().seconds
