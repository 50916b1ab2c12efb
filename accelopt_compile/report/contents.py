"""What the files of a run say, as typed data; `reading` makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accelopt_compile.records import Experience, KernelSource, Plan, Verdict
from accelopt_compile.search.state import SearchState


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One evaluation. `source` is a digest; `origin` is "" in logs that do not say it."""

    effort: str
    source: str
    origin: str
    tunables: Mapping[str, int]
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Planned:
    """Plans for a parent; `recalled` names the experiences the planner was shown."""

    call: str
    parent: int
    plans: tuple[Plan, ...]
    recalled: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Written:
    """Sources for the plan of `call` ("3/0/1"), or why there is none; a fix is one too."""

    call: str
    sources: tuple[KernelSource | str, ...]


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A lesson, and the candidates it is drawn from (None in logs that do not say them)."""

    experience: Experience
    slow: int | None
    fast: int | None


@dataclass(frozen=True, kw_only=True)
class RoundDone:
    """The end of a round: 0 is the opening."""

    round: int
    best: int
    speedup: float


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """The end of the search; `lesson` is the whole way from the seed to the best kernel, None where it gained nothing."""

    reason: str
    winner: int | None
    lesson: Experience | None


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A process took the run up: the time since the event before was nobody's."""


What = Trial | Planned | Written | Learned | RoundDone | Stopped | Begun


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened at `at_s`, seconds of the log's clock."""

    at_s: float
    what: What


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a language model. `usd` is None where no price is known; `prompt` counts the `cached` tokens too."""

    at_s: float
    role: str
    model: str
    call: str
    text: str
    problem: str
    detail: str
    prompt: int
    cached: int
    completion: int
    estimated: bool
    usd: float | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """Everything in the directory of a run."""

    id: str
    about: Mapping[str, Any]
    started_s: float
    events: tuple[Event, ...]
    calls: tuple[Call, ...]
    state: SearchState | None
    result: Mapping[str, Any] | None
    running: bool = False
