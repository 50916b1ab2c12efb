"""A whole report as plain data: everything decided, nothing drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from accelopt_cache.run_store import INTERRUPTED
from accelopt_compile.records import Accepted, Basis, Candidate, KernelSource, Timing
from accelopt_compile.report.contents import Call, Learned, RunFiles, Stopped, Trial
from accelopt_compile.report.history import (
    Dot,
    RoleCost,
    RoundLine,
    StageCount,
    costs_of,
    dots_of,
    rounds_of,
    stages_of,
    unwritten_of,
    worked_s,
)
from accelopt_compile.report.lineage import Shown, Step, steps_of, whole
from accelopt_compile.report.wording import endpoint_text

UNFINISHED = "unfinished"
"""The outcome of a run that has no result and on which nobody works."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """The kernel that the report is about: the winner, or the fastest so far. `timing` is that of the full evaluation if
    there was one (`confirmed`); `shown` is the source's text as an author reads it."""

    id: int
    source: KernelSource
    shown: str
    tunables: Mapping[str, int]
    plan: str
    timing: Timing
    confirmed: bool


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a reader gets to know of a run. `outcome` is running, unfinished, or that of the result; `roofline` is the
    speedup at which the device's least time is reached, None where that is not known; `unwritten` says why answers held no
    kernel; money is in dollars."""

    id: str
    name: str
    family: str
    operators: str
    binding: Mapping[str, int]
    target: str
    models: tuple[str, ...]
    facts: Mapping[str, str]
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    outcome: str
    reason: str
    record: str
    best: Best | None
    roofline: float | None
    evaluated: int
    rejected: Mapping[str, int]
    duplicates: int
    seconds: float
    tokens: int
    usd: float
    dots: tuple[Dot, ...]
    stages: tuple[StageCount, ...]
    unwritten: tuple[tuple[str, int], ...]
    rounds: tuple[RoundLine, ...]
    costs: tuple[RoleCost, ...]
    calls: tuple[Call, ...]
    steps: tuple[Step, ...]
    lessons: tuple[str, ...]

    @property
    def basis(self) -> Basis:
        """What the run's times rest on."""
        return "estimated" if self.settings.get("estimated") else "measured"

    @property
    def resumable(self) -> bool:
        """Whether the same search goes on with it: it was killed, or interrupted."""
        return self.outcome in (UNFINISHED, INTERRUPTED)

    @property
    def priced(self) -> bool:
        """Whether any call has a known price."""
        return any(call.usd is not None for call in self.calls)

    @property
    def unpriced(self) -> int:
        """Calls whose price is not known."""
        return sum(call.usd is None for call in self.calls)


def report_of(files: RunFiles, *, operators: str = "", shown: Shown = whole) -> Report:
    """The report of a run. `operators` says what the workload computes, where the caller knows; `shown` gives a kernel as an
    author reads it, where its whole text is mostly a library."""
    result = files.result or {}
    stopped = next((e.what for e in reversed(files.events) if isinstance(e.what, Stopped)), None)
    winner = None if stopped is None else stopped.winner
    best = _best(files, winner, shown)
    dots, stages, costs = dots_of(files), stages_of(files), costs_of(files.calls)
    about = files.about
    return Report(
        id=files.id,
        name=str(about.get("name") or ""),
        family=str(about.get("family") or ""),
        operators=operators if operators not in ("", "?") else str(about.get("name") or ""),
        binding=about["binding"],
        target=about["target"],
        models=tuple(sorted({str(model) for model in about["models"].values() if model})),
        facts=facts_of(about),
        settings=about["settings"],
        environment=about["environment"],
        outcome=outcome_of(files),
        reason=str(result.get("reason") or (stopped.reason if stopped else "")),
        record=str(result.get("record") or ""),
        best=best,
        roofline=_roofline(about.get("roofline_us"), best),
        evaluated=len(dots),
        rejected={stage.stage: stage.count for stage in stages if stage.stage != "accepted"},
        duplicates=0 if files.state is None else files.state.duplicates,
        seconds=worked_s(files),
        tokens=sum(c.prompt + c.completion for c in costs),
        usd=sum(c.usd for c in costs),
        dots=dots,
        stages=stages,
        unwritten=unwritten_of(files),
        rounds=rounds_of(files),
        costs=costs,
        calls=files.calls,
        steps=steps_of(files, None if best is None else best.id, shown),
        lessons=tuple(dict.fromkeys(_lessons(files))),
    )


def facts_of(about: Mapping[str, Any]) -> dict[str, str]:
    """What was asked of the run, name by name, but for its settings and its environment."""
    facts = {name: str(about[name]) for name in ("created", "workload", "proposer")}
    facts |= {str(role): str(model) for role, model in about["models"].items() if model}
    if isinstance(url := about.get("base_url"), str) and url:
        facts["endpoint"] = endpoint_text(url)
    if isinstance(budget := about.get("budget"), dict):
        facts |= {f"budget, {name}": str(limit) for name, limit in budget.items() if limit is not None}
    return facts | {"seed": str(about.get("seed", "-"))}


def outcome_of(files: RunFiles) -> str:
    """winner, baseline, interrupted, failed, running or unfinished."""
    if files.running:
        return "running"
    return UNFINISHED if files.result is None else str(files.result["outcome"])


def _best(files: RunFiles, winner: int | None, shown: Shown) -> Best | None:
    candidates = files.state.candidates if files.state is not None else ()
    if not candidates:
        return None
    chosen = candidates[winner] if winner is not None and 0 <= winner < len(candidates) else _fastest(candidates)
    full = _full_timing(files, chosen)
    return Best(
        id=chosen.id,
        source=chosen.source,
        shown=shown(chosen.source, chosen.tunables),
        tunables=chosen.tunables,
        plan="" if chosen.plan is None else chosen.plan.text,
        timing=chosen.verdict.timing if full is None else full,
        confirmed=full is not None,
    )


def _fastest(candidates: tuple[Candidate, ...]) -> Candidate:
    return max(candidates, key=lambda c: (c.verdict.timing.speedup, -c.id))


def _full_timing(files: RunFiles, candidate: Candidate) -> Timing | None:
    for event in reversed(files.events):
        if not isinstance(trial := event.what, Trial) or trial.effort != "full" or not isinstance(trial.verdict, Accepted):
            continue
        if (trial.source, dict(trial.tunables)) == (candidate.source.digest, dict(candidate.tunables)):
            return trial.verdict.timing
    return None


def _roofline(roofline_us: object, best: Best | None) -> float | None:
    if best is None or not isinstance(roofline_us, int | float) or not 1e-3 < roofline_us < 1e12:
        return None
    return min(best.timing.baselines_us.values(), default=best.timing.kernel_us * best.timing.speedup) / roofline_us


def _lessons(files: RunFiles) -> Iterator[str]:
    for event in files.events:
        if isinstance(what := event.what, Learned):
            yield what.experience.lesson
        elif isinstance(what, Stopped) and what.lesson is not None:
            yield what.lesson.lesson
    yield from (e.lesson for e in files.state.gained) if files.state is not None else ()
