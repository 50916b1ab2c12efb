"""What a search is given and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from accelopt_backends.base import Backend, Roofline
from accelopt_compile.errors import InvalidOption
from accelopt_compile.records import Binding, Candidate, Experience, Plan, Workload, canonical_json, sha256_text


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The dials of one search. The paper's symbols are in brackets."""

    beam_width: int = 2
    """Candidates kept from round to round (B)."""
    plans_per_candidate: int = 4
    """Plans asked for per candidate and round (N)."""
    attempts_per_plan: int = 2
    """Sources asked for per plan (K)."""
    rounds: int = 16
    """Rounds at most (T)."""
    lessons_per_round: int = 8
    """Teaching pairs at most per round (TopK)."""
    memory_capacity: int = 16
    """Experiences of this run that are kept, oldest dropped first (ExpN)."""
    fix_attempts: int = 2
    """Times a rejected source is handed to the fixer (F)."""
    selection: Literal["elitist", "paper"] = "elitist"
    """`elitist`: parents compete with their children. `paper`: parents only fill empty slots."""
    use_prior: bool = True
    """Whether experiences of earlier runs are recalled."""
    warm_starts: int = 3
    """Configurations of earlier winners evaluated with the seed, the most promising one before it."""
    tuning_trials: int = 8
    """Evaluations spent on the tunables of one structure that made the beam."""
    polish_trials: int = 12
    """Evaluations at most around the numbers of the best kernel, once nothing else is left to try."""
    timed_again: int = 4
    """Kernels at most, near the fastest, that are timed once more before the final evaluation."""
    stop_at_roofline: float | None = 0.95
    """Share of the roofline at which the search is done; None never stops for it."""
    patience: int = 3
    """Rounds in a row without an improvement of `min_gain` after which the beam counts as stagnant; 0 is never."""
    min_gain: float = 1.01
    """Improvement of the best candidate that counts as one."""
    hopeless_below: float = 0.6
    """Speedup over the baseline below which, after `hopeless_after` rounds, the region is given up."""
    hopeless_after: int = 2
    """0 never gives up."""
    win_margin: float = 1.03
    """The lower end of the final timing's interval must be above this."""
    finalists: int = 3
    """Candidates whose full evaluation at the end finds them right, at most, until one wins."""
    estimated: bool = False
    """The device is not here: speeds are estimates, so that nothing wins or stops the search by them, and all finalists that
    are right in full are kept."""

    @staticmethod
    def preset(name: str) -> SearchSettings:
        """`quick` (built-in proposer, seconds a region), `default`, `full` (offline) or `paper`.

        Raises InvalidOption for another name.
        """
        if name not in _PRESETS:
            raise InvalidOption(f"effort {name!r} does not exist; one of: {', '.join(sorted(_PRESETS))}")
        return _PRESETS[name]


_WIDE = SearchSettings(beam_width=6, plans_per_candidate=12, attempts_per_plan=2, rounds=16)
_PRESETS: Mapping[str, SearchSettings] = {
    "quick": SearchSettings(plans_per_candidate=3, attempts_per_plan=1, rounds=8, fix_attempts=0, tuning_trials=6, patience=2),
    "default": SearchSettings(),
    "full": replace(_WIDE, tuning_trials=16, patience=5, hopeless_after=4),
    "paper": replace(
        _WIDE,
        fix_attempts=0,
        selection="paper",
        use_prior=False,
        warm_starts=0,
        tuning_trials=0,
        polish_trials=0,
        timed_again=0,
        stop_at_roofline=None,
        patience=0,
        hopeless_after=0,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A plan of an earlier round and what came of it: `relative` is its best attempt's speed over the parent's, None
    when every attempt was rejected (`outcome` then says at which stage and why)."""

    parent: int
    plan: Plan
    structure: Mapping[str, str]
    relative: float | None
    outcome: str


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """One region to make faster. `family` names its kind of work (experiences are shared within it); `tried` is what
    this run has tried so far: the loop keeps it up to date, callers leave it empty."""

    workload: Workload
    binding: Binding
    target: str
    backend: Backend
    family: str
    settings: SearchSettings = field(default_factory=SearchSettings)
    threads: int = 1
    tried: tuple[Tried, ...] = ()
    machine: tuple[str, ...] | None = None
    """What authors are told of the machine; None: as the backend's guide has it now. A run that is gone on with tells what it
    told at first: numbers measured anew would make every prompt another one, and its recorded answer worthless."""
    roofline: Roofline | None = None
    """The workload's; None: as the backend measures it now."""

    def told_machine(self) -> tuple[str, ...]:
        """A line each about the machine."""
        return self.backend.guide().machine if self.machine is None else self.machine

    def least(self) -> Roofline:
        """The least time that the workload takes."""
        return self.roofline or self.backend.roofline(self.workload, self.binding, self.threads)

    @property
    def arch(self) -> str:
        """The target without its language: "x86_64-avx512" of "cpp-x86_64-avx512"."""
        return self.target.removeprefix(f"{self.backend.name}-")


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """What came out. `best` is the winner, with the verdict of its full evaluation, or None; `reason` says why the
    search stopped and, without a winner, why there is none. `proven` are the kernels of a search on estimates that are right
    in full, the fastest by its estimate first, each of another text.

    `candidates` are all accepted kernels of the run in order of appearance; `rejected` counts verdicts by stage;
    `evaluated` counts evaluations, full ones included; `experiences` are the lessons of this run, for the store. `judged` says
    whether the seed got a verdict: a search without one says nothing of its region. `cut_short`: without a winner, and stopped
    for want of budget before the end of its first round, or before a kernel was found right in full.
    """

    best: Candidate | None
    reason: str
    candidates: tuple[Candidate, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)
    judged: bool = False
    evaluated: int = 0
    duplicates: int = 0
    rounds: int = 0
    seconds: float = 0.0
    experiences: tuple[Experience, ...] = ()
    proven: tuple[Candidate, ...] = ()
    cut_short: bool = False


def search_name(task: SearchTask, seed: int) -> str:
    """What marks this search's events in a log that several searches share."""
    return sha256_text(canonical_json([task.workload.digest, task.target, dict(task.binding), seed]))[:16]
