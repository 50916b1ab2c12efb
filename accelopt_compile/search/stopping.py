"""When a search is over, and which of its candidates is the winner."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from accelopt_compile.records import Accepted, Candidate, Rejected, Verdict
from accelopt_compile.search.selection import contenders, fastest_texts, pooled, speed
from accelopt_compile.search.task import SearchSettings
from accelopt_compile.search.trials import BudgetSpent, Duplicate, Trials
from accelopt_compile.wording import is_or_are, plural

_NO_CHANCE = 0.97
"""A quick timing whose interval ends below this share of the baseline is not worth a full evaluation."""

_REFUSED_FOR_ONE = 2
"""A group norm in bfloat16 was left to Inductor, at 0.80x, because its three fastest kernels took the variance in one pass, which
one draw of twenty showed to be wrong; the fourth took two passes and was right."""


def stop_reason(
    settings: SearchSettings, *, best: Candidate, roofline_us: float, rounds_done: int, flat_rounds: int, spent: str | None
) -> str | None:
    """Why no further round should start, as what may follow "the search stopped because", or None.
    `roofline_us` is the device's least time for the workload, 0 if unknown. An estimate says neither that a kernel is at the
    roofline (it was made from it) nor that there is no hope."""
    share = 0.0 if settings.estimated else _share(roofline_us, best.verdict.timing.kernel_us)
    baseline_us = best.verdict.timing.baseline_us
    # What is faster than the roofline says that the roofline is no bound here: a sum at 105 % of it was let be, and eager's was
    # faster by a sixth.
    holds = max(share, _share(roofline_us, baseline_us)) <= 1.0
    if settings.stop_at_roofline is not None and settings.stop_at_roofline <= share and holds:
        return f"the best kernel reaches {share:.0%} of the roofline"
    if spent is not None:
        return spent
    if rounds_done >= settings.rounds:
        return f"{plural(rounds_done, 'round')} {is_or_are(rounds_done)} done, the most it may take"
    if (
        settings.hopeless_after
        and not settings.estimated
        and rounds_done >= settings.hopeless_after
        and speed(best) < settings.hopeless_below
    ):
        return f"the best kernel still runs at {speed(best):.2f}x the baseline after {plural(rounds_done, 'round')}"
    if settings.patience and flat_rounds >= settings.patience:
        return f"{plural(flat_rounds, 'round')} brought no improvement"
    return None


def _share(roofline_us: float, taken_us: float) -> float:
    return roofline_us / taken_us if taken_us > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Final:
    """The end of a search: the winner with its full verdict, or why there is none; on estimates, the kernels that are right
    in full. `late`: those that there was time for were refused, and others wait."""

    winner: Candidate | None
    because: str = ""
    proven: tuple[Candidate, ...] = ()
    late: bool = False


def time_again(candidates: list[Candidate], settings: SearchSettings, trials: Trials) -> None:
    """Time the fastest kernels once more, as far as the budget goes; each then counts with both timings."""
    near = contenders(candidates, settings.timed_again)
    verdicts = trials.again([(c.source, c.tunables) for c in near])
    with contextlib.suppress(BudgetSpent):
        for candidate, verdict in zip(near, verdicts, strict=True):
            if isinstance(verdict, Accepted):
                candidates[candidate.id] = pooled(candidate, verdict)


def decide(
    candidates: Sequence[Candidate],
    settings: SearchSettings,
    trials: Trials,
    report: Callable[[Candidate, Accepted | Rejected], None],
) -> Final:
    """Evaluate the fastest kernels in full, best first, until one wins; on estimates all of them. What is refused makes room for
    another, `_REFUSED_FOR_ONE` times as many at most: the fastest texts share structure, and so a fault. The first is evaluated
    whatever the time, others within the budget. `report` is told each full verdict at once, so that an interruption loses
    nothing."""
    because, right = "", 0
    proven: list[Candidate] = []
    for candidate in fastest_texts(candidates, _REFUSED_FOR_ONE * settings.finalists):  # tuned copies of a text share its faults
        if right == settings.finalists:
            break
        timing = candidate.verdict.timing
        if timing.high < _NO_CHANCE and not settings.estimated:
            because = because or f"the best kernel runs at {timing.speedup:.2f}x the baseline"
            break
        if because and trials.late:
            return Final(winner=None, because=because, proven=tuple(proven), late=right == 0)
        verdict = _in_full(candidate, settings, trials)
        if isinstance(verdict, Duplicate):
            continue
        report(candidate, verdict)
        if isinstance(verdict, Rejected):
            because = f"kernel {candidate.id} was rejected at {verdict.stage.value} in full: {verdict.reason}"
            continue
        right += 1
        if settings.estimated:
            proven.append(replace(candidate, verdict=verdict))
        elif wins(verdict, settings):
            return Final(winner=replace(candidate, verdict=verdict))
        else:
            full = verdict.timing
            because = (
                f"kernel {candidate.id} runs at {full.speedup:.2f}x the baseline in full (95 % interval {full.low:.2f} to "
                f"{full.high:.2f}), and {settings.win_margin:.2f} must be below it"
            )
    return Final(winner=None, because=because or "no kernel was accepted", proven=tuple(proven))


def _in_full(candidate: Candidate, settings: SearchSettings, trials: Trials) -> Verdict | Duplicate:
    """The full verdict. Where its timing says no and there is reason to doubt that, two of three timings decide, and the middle
    one is told: a rotary embedding of 60 us with two threads was 1.26x in one store, and "0.95x" and never looked at again in
    the other."""
    kernel = candidate.source, candidate.tunables
    verdict = trials.run(*kernel, effort="full")
    if not isinstance(verdict, Accepted) or wins(verdict, settings) or settings.estimated or trials.late:
        return verdict
    if max(verdict.timing.speedup, candidate.verdict.timing.low) <= settings.win_margin:
        return verdict
    second = trials.run(*kernel, effort="second")
    if not isinstance(second, Accepted) or not wins(second, settings):
        return second if isinstance(second, Rejected) else verdict
    third = trials.run(*kernel, effort="third")
    if not isinstance(third, Accepted) or not wins(third, settings):
        return third if isinstance(third, Rejected) else verdict
    return min(second, third, key=lambda found: found.timing.speedup)


def wins(verdict: Accepted, settings: SearchSettings) -> bool:
    """Whether a full verdict is good enough to adopt. An estimate never is."""
    return verdict.timing.basis == "measured" and verdict.timing.gains(settings.win_margin)


def no_winner(because: str, stopped: str) -> str:
    """Why there is no winner; and why no further round was tried, where that is another reason."""
    return f"no winner, because {because}; the search stopped because {stopped}" if because else f"no winner, because {stopped}"
