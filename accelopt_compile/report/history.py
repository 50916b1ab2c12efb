"""What happened in a run, in order: each trial as a point with seconds and dollars, rounds, stages, what models cost."""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from accelopt_compile.records import Accepted, Basis, Rejected, Stage
from accelopt_compile.report.contents import Begun, Call, Event, RoundDone, RunFiles, Trial, Written

GROUPS = {
    Stage.SCREEN: "refused",
    Stage.CHEAT: "refused",
    Stage.BUILD: "not built",
    Stage.RUN: "crashed",
    Stage.TIMEOUT: "crashed",
    Stage.SLOWER: "too slow",
}
"""Stages in few enough words for colours; all others say that the results were wrong."""

WRONG = "wrong"

EXAMPLES = 3
"""Reasons shown for a stage, the most frequent ones."""


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One evaluation: the `number`-th, `seconds` into the run (time when no process worked on it left out), after models
    had cost `usd`. `speedup` is None for a rejected kernel; `group` is its origin or why it fell; `best` is the fastest
    quick timing up to here, None before the first."""

    number: int
    seconds: float
    usd: float
    effort: str
    speedup: float | None
    low: float
    high: float
    best: float | None
    group: str
    told: str
    basis: Basis = "measured"


@dataclass(frozen=True, kw_only=True)
class StageCount:
    """Verdicts of one stage, and the reasons given most often with their counts."""

    stage: str
    count: int
    reasons: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class RoundLine:
    """One round; round 0 is the opening (the seed and earlier winners), the last one may be unfinished (`best` None)."""

    name: str
    trials: int
    accepted: int
    best: float | None
    seconds: float
    calls: int
    usd: float


@dataclass(frozen=True, kw_only=True)
class RoleCost:
    """What one role's calls came to. `unpriced` of the `calls` have no known price; `failed` gave no usable answer."""

    role: str
    models: tuple[str, ...]
    calls: int
    failed: int
    prompt: int
    cached: int
    completion: int
    usd: float
    unpriced: int
    estimated: int
    seconds: float

    @property
    def named(self) -> str:
        """The models' names."""
        return ", ".join(self.models)


def timed(files: RunFiles) -> list[tuple[float, Event]]:
    """Events with the seconds that processes had worked on the run when they happened."""
    worked, before, found = 0.0, files.started_s, []
    for event in files.events:
        if not isinstance(event.what, Begun):
            worked += max(event.at_s - before, 0.0)  # a clock set back adds nothing
        before = event.at_s
        found.append((worked, event))
    return found


def worked_s(files: RunFiles) -> float:
    """Seconds that processes worked on the run: what every command and page says its time is."""
    return max((seconds for seconds, _ in timed(files)), default=0.0)


def dots_of(files: RunFiles) -> tuple[Dot, ...]:
    """Every evaluation, in order."""
    spent = _Spending(files.calls)
    dots: list[Dot] = []
    best: float | None = None
    for seconds, event in timed(files):
        if not isinstance(trial := event.what, Trial):
            continue
        timing = trial.verdict.timing if isinstance(trial.verdict, Accepted) else None
        if timing is not None and trial.effort == "quick":
            best = max(timing.speedup, best or 0.0)
        dot = Dot(
            number=len(dots) + 1,
            seconds=seconds,
            usd=spent.until(event.at_s),
            effort=trial.effort,
            speedup=None if timing is None else timing.speedup,
            low=0.0 if timing is None else timing.low,
            high=0.0 if timing is None else timing.high,
            best=best,
            group=group_of(trial),
            told=_told(trial),
            basis="measured" if timing is None else timing.basis,
        )
        dots.append(dot)
    return tuple(dots)


def group_of(trial: Trial) -> str:
    """The word that a trial's colour stands for."""
    if isinstance(trial.verdict, Rejected):
        return GROUPS.get(trial.verdict.stage, WRONG)
    if trial.effort == "full":
        return "final"
    return {"llm": "model", "seed": "seed"}.get(trial.origin, "built-in")


def _told(trial: Trial) -> str:
    numbers = " ".join(f"{name}={value}" for name, value in sorted(trial.tunables.items()))
    if isinstance(trial.verdict, Rejected):
        return f"{trial.verdict.stage.value}: {trial.verdict.reason[:160]}"
    return " ".join(part for part in (trial.origin, numbers) if part)


def stages_of(files: RunFiles) -> tuple[StageCount, ...]:
    """Accepted kernels and rejected ones by stage, the most frequent first."""
    reasons: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for event in files.events:
        if isinstance(event.what, Trial):
            verdict = event.what.verdict
            stage, reason = (verdict.stage.value, verdict.reason) if isinstance(verdict, Rejected) else ("accepted", "")
            reasons[stage][reason] += 1
    found = [StageCount(stage=stage, count=sum(told.values()), reasons=_commonest(told)) for stage, told in reasons.items()]
    return tuple(sorted(found, key=lambda s: (s.stage != "accepted", -s.count, s.stage)))


def unwritten_of(files: RunFiles) -> tuple[tuple[str, int], ...]:
    """Why answers held no kernel, with counts, the most frequent reasons first."""
    told = Counter(s for e in files.events if isinstance(e.what, Written) for s in e.what.sources if isinstance(s, str))
    return _commonest(told)


def _commonest(told: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(((r, n) for r, n in told.items() if r), key=lambda pair: (-pair[1], pair[0]))[:EXAMPLES])


def rounds_of(files: RunFiles) -> tuple[RoundLine, ...]:
    """The rounds in order, what came after the last finished one included."""
    return tuple(_rounds(files, _Spending(files.calls)))


def _rounds(files: RunFiles, spent: _Spending) -> Iterator[RoundLine]:
    trials = accepted = 0
    done = -1
    began_s, since_s, name = 0.0, files.started_s, "open"
    events = timed(files)

    def line(best: float | None, seconds: float, at_s: float) -> RoundLine:
        return RoundLine(
            name=name,
            trials=trials,
            accepted=accepted,
            best=best,
            seconds=seconds - began_s,
            calls=spent.calls(at_s) - spent.calls(since_s),
            usd=spent.until(at_s) - spent.until(since_s),
        )

    for seconds, event in events:
        if isinstance(event.what, Trial):
            trials += 1
            accepted += isinstance(event.what.verdict, Accepted)
        elif isinstance(event.what, RoundDone):
            if event.what.round == done and not trials:
                continue  # its process died before it saved the state, and the next one replayed the round
            done = event.what.round
            yield line(event.what.speedup, seconds, event.at_s)
            trials, accepted, began_s, since_s, name = 0, 0, seconds, event.at_s, str(done + 1)
    if trials:
        name = "end" if files.result is not None else f"{name} (unfinished)"
        yield line(None, events[-1][0], float("inf"))


def costs_of(calls: Sequence[Call]) -> tuple[RoleCost, ...]:
    """What the calls of each role came to, in order of first use."""
    by_role: dict[str, list[Call]] = {}
    for call in calls:
        by_role.setdefault(call.role, []).append(call)
    return tuple(
        RoleCost(
            role=role,
            models=tuple(sorted({c.model for c in own})),
            calls=len(own),
            failed=sum(bool(c.problem) for c in own),
            prompt=sum(c.prompt for c in own),
            cached=sum(c.cached for c in own),
            completion=sum(c.completion for c in own),
            usd=sum(c.usd or 0.0 for c in own),
            unpriced=sum(c.usd is None for c in own),
            estimated=sum(c.estimated for c in own),
            seconds=sum(c.seconds for c in own),
        )
        for role, own in by_role.items()
    )


class _Spending:
    """What the calls recorded until a moment had cost."""

    def __init__(self, calls: Sequence[Call]) -> None:
        ordered = sorted(calls, key=lambda c: c.at_s)
        self._times = [c.at_s for c in ordered]
        self._sums = [0.0]
        for call in ordered:
            self._sums.append(self._sums[-1] + (call.usd or 0.0))

    def calls(self, at_s: float) -> int:
        """Calls recorded until then."""
        return bisect.bisect_right(self._times, at_s)

    def until(self, at_s: float) -> float:
        """Dollars spent until then; calls without a known price count as nothing."""
        return self._sums[self.calls(at_s)]
