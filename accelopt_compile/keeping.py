"""What a search leaves: its records and lessons in the store, and how its run ended."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from accelopt_compile.authors import Authors, models_of, spent
from accelopt_compile.bench import Bench
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records import Accepted, Binding, Candidate, Record, Workload
from accelopt_compile.resuming import Place
from accelopt_compile.search.task import SearchResult

log = logging.getLogger("accelopt_compile.tuning")

_OF_THE_EVALUATION = ("build_s", "cases_skipped", "checked_at", "object_screen", "walls")
"""Features that say how a kernel was judged, not what the toolchain made of it."""

LONGEST_FEATURE = 200
"""Characters of a feature that a record keeps."""


def keep(bench: Bench, workload: Workload, binding: Binding, result: SearchResult, authors: Authors, place: Place) -> Record:
    """Keep what was found: the winner, or each candidate, or that the baseline stays. The winner's record, or the first."""
    kept = result.proven if bench.rung == "simulated" else (result.best,)
    records = [_record(bench, workload, binding, result, authors, place, best) for best in kept]
    for record in records:
        for store in (bench.store, *(layer for layer in bench.layers if layer.writable)):
            store.put(record, workload)
    return records[0]


def _record(
    bench: Bench,
    workload: Workload,
    binding: Binding,
    result: SearchResult,
    authors: Authors,
    place: Place,
    best: Candidate | None,
) -> Record:
    run = {} if place.run is None else {"run": place.run.id}
    simulated = bench.rung == "simulated"
    return Record(
        outcome="baseline" if best is None else "candidate" if simulated else "winner",
        workload=workload.digest,
        target=bench.target,
        binding=dict(binding),
        reason=result.reason,
        rung=bench.rung,
        source=None if best is None else best.source,
        tunables={} if best is None else dict(best.tunables),
        timing=None if best is None else best.verdict.timing,
        errors=None if best is None else best.verdict.errors,
        environment=dict(bench.environment),
        provenance={
            "proposer": authors.kind,
            "effort": bench.settings.effort,
            "seed": bench.settings.seed,
            "rounds": result.rounds,
            "evaluated": result.evaluated,
            "rejected": dict(result.rejected),
            "seconds": round(result.seconds, 3),
            **run,
            **({} if authors.spending is None else {"models": models_of(bench.settings), "prompts": dict(authors.prompts)}),
            **({} if best is None else judged(best.verdict)),
            **({"checked_at": best.verdict.features["checked_at"], **said(best.verdict)} if best and simulated else {}),
        },
        created=datetime.now(timezone.utc).isoformat(timespec="microseconds"),
    )


def said(verdict: Accepted) -> dict[str, Any]:
    """What the toolchain said of a candidate, as a record keeps it for whoever decides on it: numbers and short texts."""
    told = {
        name: value
        for name, value in sorted(verdict.features.items())
        if name not in _OF_THE_EVALUATION and isinstance(value, int | float | str) and len(str(value)) <= LONGEST_FEATURE
    }
    return {"features": told}


def judged(verdict: Accepted) -> dict[str, str]:
    """Under which guard a kernel was judged: what a record keeps of it."""
    return {name: str(verdict.features.get(name, "not made")) for name in ("object_screen", "walls")}


def remember(bench: Bench, result: SearchResult) -> None:
    """Keep the lessons, each with the environment it was measured in. One that cannot be stored costs no winner."""
    environment = {f"env.{name}": value for name, value in bench.environment.items()}
    for experience in result.experiences:
        try:
            bench.store.add_experience(replace(experience, origin={**experience.origin, **environment}))
        except InvalidRecord as failure:
            log.warning("a lesson is not kept: %s", failure)


def ending(outcome: str, result: SearchResult, authors: Authors, record: Record | None) -> dict[str, Any]:
    """What a run's result.json says."""
    best = result.best or next(iter(result.proven), None)
    return {
        "outcome": outcome,
        "reason": result.reason,
        "speedup": None if best is None else best.verdict.timing.speedup,
        **({"basis": "estimated", "candidates": len(result.proven)} if result.proven else {}),
        "record": None if record is None else record.created,
        "evaluated": result.evaluated,
        "rejected": dict(result.rejected),
        "duplicates": result.duplicates,
        "rounds": result.rounds,
        "seconds": round(result.seconds, 3),
        "spending": spent(authors),
    }
