"""What may be spent: seconds and candidates, shared by all searches of one compile."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping


class Budget:
    """Seconds and evaluations that may be spent; what a slice spends, its whole spends too.

    The clock (seconds, monotonic) starts when the budget is made. `None` is without limit.
    """

    def __init__(
        self,
        *,
        seconds: float | None = None,
        candidates: int | None = None,
        clock: Callable[[], float],
        whole: Budget | None = None,
        earlier: bool = True,
    ) -> None:
        self._earlier = earlier
        self._seconds = math.inf if seconds is None else seconds
        self._candidates = math.inf if candidates is None else candidates
        self._clock = clock
        self._started = clock()
        self._whole = whole
        self._carried_s = 0.0
        self._evaluated = 0

    def slice(self, *, seconds: float | None = None, candidates: int | None = None, earlier: bool = True) -> Budget:
        """A part of this budget for one search; its clock starts now. `earlier`: whether seconds count that an earlier process
        spent on that search."""
        return Budget(seconds=seconds, candidates=candidates, clock=self._clock, whole=self, earlier=earlier)

    @property
    def used_s(self) -> float:
        """Seconds since the start, plus those carried over from an interrupted run."""
        return self._clock() - self._started + self._carried_s

    @property
    def remaining_s(self) -> float:
        """Seconds left, never below 0; inf without a limit."""
        own = max(0.0, self._seconds - self.used_s)
        return own if self._whole is None else min(own, self._whole.remaining_s)

    @property
    def remaining_candidates(self) -> float:
        """Evaluations left; inf without a limit."""
        own = max(0.0, self._candidates - self._evaluated)
        return own if self._whole is None else min(own, self._whole.remaining_candidates)

    def spend_candidate(self) -> None:
        """Count one evaluation."""
        self._evaluated += 1
        if self._whole is not None:
            self._whole.spend_candidate()

    def carry(self, *, seconds: float = 0.0, candidates: int = 0) -> None:
        """Count what an earlier process spent on this same search."""
        seconds = seconds if self._earlier else 0.0
        self._carried_s += seconds
        self._evaluated += candidates
        if self._whole is not None:
            self._whole.carry(seconds=seconds, candidates=candidates)

    def spent(self, *, reserve_s: float = 0.0) -> str | None:
        """Why nothing more may be started, or None. `reserve_s` is kept back, for the final evaluation."""
        if self.remaining_candidates <= 0:
            return "the candidate budget is spent"
        if self.remaining_s <= reserve_s:
            return "the time budget is spent"
        return None


def allot(costs: Mapping[str, float], total_s: float, *, floor_s: float = 6.0) -> dict[str, float]:
    """Seconds for each region, by hotness. `costs` are the regions' shares of the run time, in any one unit.

    The hottest regions get `floor_s` each, since a search shorter than that finds nothing, as many of them as half of
    the time serves; what is left is split among these by cost. The other regions get 0, in the hope of what the
    searches leave over: call again with the rest of the time after each. The values sum to `total_s`, or to 0 when
    nothing costs anything.

    >>> allot({"hot": 3.0, "warm": 1.0, "never": 0.0}, 60.0)
    {'hot': 42.0, 'warm': 18.0, 'never': 0.0}
    """
    hot = sorted((name for name, cost in costs.items() if cost > 0), key=lambda name: (-costs[name], name))
    if not hot or total_s <= 0:
        return dict.fromkeys(costs, 0.0)
    served = hot[: max(1, int(total_s / 2 / floor_s))]
    floor = min(floor_s, total_s / 2 / len(served))
    rest = total_s - floor * len(served)
    whole = sum(costs[name] for name in served)
    slices = {name: floor + rest * (costs[name] / whole) for name in served}
    return {name: slices.get(name, 0.0) for name in costs}
