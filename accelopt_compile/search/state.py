"""The state of a search between two rounds, and the JSON forms of what is in it.

Everything of the round that was under way when a run died is in the run log; `trials` replays it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records import (
    Accepted,
    Candidate,
    ErrorReport,
    Experience,
    Plan,
    Rejected,
    Stage,
    Verdict,
    canonical_json,
    sha256_text,
    source_from_json,
    timing_from_json,
)
from accelopt_compile.search.task import Tried

STATE_VERSION = 2


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """A search between two rounds. `round` is the next one; `beam` holds candidate ids (repeated in paper mode);
    `known` are the keys of all trials so far, `tuned` those of the sources whose tunables were searched; `flat_rounds`
    counts rounds without an improvement; `taken_over` says that the companion goes on alone; `seconds` is what the run has
    used of its budget."""

    workload: str
    target: str
    binding: Mapping[str, int]
    seed: int
    round: int
    candidates: tuple[Candidate, ...]
    beam: tuple[int, ...]
    tried: tuple[Tried, ...]
    known: tuple[str, ...]
    tuned: tuple[str, ...]
    rejected: Mapping[str, int]
    evaluated: int
    duplicates: int
    flat_rounds: int
    taken_over: bool
    seconds: float
    prior: tuple[Experience, ...]
    recent: tuple[Experience, ...]
    gained: tuple[Experience, ...]

    def to_json(self) -> dict[str, Any]:
        plain = {
            name: getattr(self, name)
            for name in ("workload", "target", "seed", "round", "evaluated", "duplicates", "flat_rounds", "taken_over", "seconds")
        }
        return {
            "state_version": STATE_VERSION,
            **plain,
            "binding": dict(self.binding),
            "candidates": [candidate_json(c) for c in self.candidates],
            "beam": list(self.beam),
            "tried": [tried_json(t) for t in self.tried],
            "known": list(self.known),
            "tuned": list(self.tuned),
            "rejected": dict(self.rejected),
            **{name: [experience_json(e) for e in getattr(self, name)] for name in ("prior", "recent", "gained")},
        }

    @staticmethod
    def from_json(data: Any) -> SearchState:
        """Inverse of `to_json`, checked. Raises InvalidRecord."""
        try:
            if data["state_version"] != STATE_VERSION:
                raise InvalidRecord(f"search state version {data['state_version']!r}, this version reads {STATE_VERSION}")
            state = SearchState(
                workload=str(data["workload"]),
                target=str(data["target"]),
                binding=_numbers(data["binding"]),
                seed=int(data["seed"]),
                round=int(data["round"]),
                candidates=tuple(candidate_from(c) for c in data["candidates"]),
                beam=tuple(int(i) for i in data["beam"]),
                tried=tuple(tried_from(t) for t in data["tried"]),
                known=tuple(str(k) for k in data["known"]),
                tuned=tuple(str(k) for k in data["tuned"]),
                rejected={str(k): int(v) for k, v in data["rejected"].items()},
                evaluated=int(data["evaluated"]),
                duplicates=int(data["duplicates"]),
                flat_rounds=int(data["flat_rounds"]),
                taken_over=bool(data["taken_over"]),
                seconds=float(data["seconds"]),
                prior=tuple(experience_from(e) for e in data["prior"]),
                recent=tuple(experience_from(e) for e in data["recent"]),
                gained=tuple(experience_from(e) for e in data["gained"]),
            )
            _consistent(state)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as failure:
            raise InvalidRecord(f"not a search state: {type(failure).__name__} {failure}") from failure
        return state


def _consistent(state: SearchState) -> None:
    """Raises ValueError for numbers that no search saves."""
    count = len(state.candidates)
    if not count or [c.id for c in state.candidates] != list(range(count)):
        raise ValueError("its candidates are not numbered from 0")
    if any(c.parent is not None and not 0 <= c.parent < c.id for c in state.candidates):
        raise ValueError("a candidate has no parent before it")
    if any(not 0 <= id < count for id in (*state.beam, *(tried.parent for tried in state.tried))):
        raise ValueError("it names a candidate that it has not")
    counts = (state.round, state.evaluated, state.duplicates, state.flat_rounds, *state.rejected.values())
    if min(counts) < 0 or not 0 <= state.seconds < math.inf:
        raise ValueError("it counts less than nothing, or without end")


# ---------------------------------------------------------------- plain JSON, one pair a record


def plan_json(plan: Plan) -> dict[str, Any]:
    return {"text": plan.text, "change": dict(plan.change)}


def plan_from(data: Any) -> Plan:
    return Plan(text=str(data["text"]), change=_texts(data["change"]))


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    if isinstance(verdict, Rejected):
        return {"stage": verdict.stage.value, "reason": verdict.reason, "diagnosis": verdict.diagnosis}
    return {"errors": asdict(verdict.errors), "timing": verdict.timing.to_json(), "features": dict(verdict.features)}


def verdict_from(data: Any) -> Verdict:
    if "stage" in data:
        return Rejected(stage=Stage(data["stage"]), reason=str(data["reason"]), diagnosis=str(data["diagnosis"]))
    return accepted_from(data)


def accepted_from(data: Any) -> Accepted:
    """Raises KeyError, TypeError, ValueError or AttributeError for what is none."""
    errors, timing = ErrorReport(**data["errors"]), timing_from_json(data["timing"])
    numbers = [getattr(timing, name) for name in ("kernel_us", "speedup", "low", "high", "blocks", "threads", "noise")]
    for number in (*numbers, *timing.baselines_us.values(), errors.worst_share, errors.cases):
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise ValueError(f"{number!r:.40} is no measurement")
    if not timing.baselines_us:
        raise ValueError("it was timed against nothing")
    return Accepted(errors=errors, timing=timing, features=dict(data["features"]))


def candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "id": candidate.id,
        "parent": candidate.parent,
        "plan": None if candidate.plan is None else plan_json(candidate.plan),
        "source": candidate.source.to_json(),
        "tunables": dict(candidate.tunables),
        "verdict": verdict_json(candidate.verdict),
    }


def candidate_from(data: Any) -> Candidate:
    return Candidate(
        id=int(data["id"]),
        parent=None if data["parent"] is None else int(data["parent"]),
        plan=None if data["plan"] is None else plan_from(data["plan"]),
        source=source_from_json(data["source"]),
        tunables=_numbers(data["tunables"]),
        verdict=accepted_from(data["verdict"]),
    )


def tried_json(tried: Tried) -> dict[str, Any]:
    return {
        "parent": tried.parent,
        "plan": plan_json(tried.plan),
        "structure": dict(tried.structure),
        "relative": tried.relative,
        "outcome": tried.outcome,
    }


def tried_from(data: Any) -> Tried:
    return Tried(
        parent=int(data["parent"]),
        plan=plan_from(data["plan"]),
        structure=_texts(data["structure"]),
        relative=None if data["relative"] is None else float(data["relative"]),
        outcome=str(data["outcome"]),
    )


def experience_json(e: Experience) -> dict[str, Any]:
    texts = {name: getattr(e, name) for name in ("backend", "family", "arch", "workload", "lesson", "slow", "fast")}
    numbers = {"helped": e.helped, "speedup": e.speedup}
    given: dict[str, Any] = {"title": e.title, "origin": dict(e.origin)}
    given |= {} if e.basis == "measured" else {"basis": e.basis}
    return {**texts, **numbers, **given, "change": dict(e.change), "structure": dict(e.structure), "tunables": dict(e.tunables)}


def experience_from(data: Any) -> Experience:
    texts = {name: str(data[name]) for name in ("backend", "family", "arch", "workload", "lesson", "slow", "fast")}
    return Experience(
        **texts,
        helped=bool(data["helped"]),
        speedup=float(data["speedup"]),
        change=_texts(data["change"]),
        structure=_texts(data["structure"]),
        tunables=_numbers(data["tunables"]),
        title=str(data.get("title", "")),
        origin=_texts(data.get("origin", {})),
        basis="estimated" if data.get("basis") == "estimated" else "measured",
    )


def experience_id(e: Experience) -> str:
    """A short name of an experience by its content, for the run log."""
    return sha256_text(canonical_json(experience_json(e)))[:16]


def _texts(data: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in data.items()}


def _numbers(data: Any) -> dict[str, int]:
    return {str(k): int(v) for k, v in data.items()}
