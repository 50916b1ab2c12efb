"""One search for one region: from a workload to a record, under a claim, within a slice of the compile's budget."""

from __future__ import annotations

import contextlib
import logging
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any, Literal

from accelopt_backends.base import Backend, Roofline
from accelopt_cache.kernel_store import Store
from accelopt_compile.authors import Authors, authors_of, kind_of_authors, models_of, spent
from accelopt_compile.config import Settings
from accelopt_compile.errors import AccelOptError, InvalidRecord
from accelopt_compile.events import Event
from accelopt_compile.family import kind_of
from accelopt_compile.llm.client import Client
from accelopt_compile.records import Accepted, Binding, Candidate, Record, Workload
from accelopt_compile.resuming import Place, Watched, fleeting, kept
from accelopt_compile.search.budget import Budget
from accelopt_compile.search.loop import SearchInterrupted, search
from accelopt_compile.search.memory import Memory, most_promising
from accelopt_compile.search.task import SearchResult, SearchSettings, SearchTask
from accelopt_compile.wording import operators, plural, said_once

log = logging.getLogger("accelopt_compile.tuning")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where searches run: the backend, its target and environment, our store and the layers below it that others can write
    (`accelopt_cache.layers`), threads, and the settings. `rung` is what running a kernel here proves (`Ready.rung`), `attached`
    whether kernels run on a device with memory of its own. `keep` makes every search a run that stays; `client` stands in for
    the language model's server; `watch` is told of each event as it happens."""

    settings: Settings
    store: Store
    backend: Backend
    target: str
    environment: Mapping[str, str]
    threads: int
    rung: Literal["device", "simulated"] = "device"
    attached: bool = False
    layers: tuple[Store, ...] = ()
    keep: bool = False
    client: Client | None = None
    watch: Callable[[Event], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What a search left: its record (None when it never got as far as a verdict), why, and the run's id where one is kept. Of
    several candidates the record is the best one's by its estimate; `candidates` counts them."""

    record: Record | None
    reason: str
    candidates: int = 0
    seconds: float = 0.0
    run: str | None = None


def candidates_text(count: int, target: str) -> str:
    """What is said of kernels that are kept and not adopted."""
    proven = f"{plural(count, 'kernel')} proven in simulation for {target}"
    return f"{proven}; until `accelopt cache promote` decides on that device, Inductor runs the region"


def search_settings(settings: Settings, *, estimated: bool = False) -> SearchSettings:
    """The preset of `effort` with the numbers that were set explicitly."""
    effort = settings.effort if settings.effort != "auto" else "quick" if kind_of_authors(settings) == "builtin" else "default"
    preset = SearchSettings.preset(effort)
    return replace(
        preset,
        estimated=estimated,
        win_margin=settings.min_speedup,
        beam_width=settings.beam_width or preset.beam_width,
        plans_per_candidate=settings.plans_per_candidate or preset.plans_per_candidate,
        attempts_per_plan=settings.attempts_per_plan or preset.attempts_per_plan,
        rounds=preset.rounds if settings.rounds is None else settings.rounds,
    )


def tune(bench: Bench, workload: Workload, binding: Binding, budget: Budget) -> Tuned:
    """Search, and store what was found. A failure of the evaluator or the proposer is a reason, not an exception; Ctrl-C
    keeps what there is and goes on to the caller."""
    started = time.monotonic()
    try:
        task = _task(bench, workload, binding)
        with _place(bench, task) as place:
            return _tuned(bench, task, budget, place)
    except AccelOptError as failure:
        return Tuned(record=None, reason=said_once(f"search failed: {failure}"), seconds=time.monotonic() - started)


def _tuned(bench: Bench, task: SearchTask, budget: Budget, place: Place) -> Tuned:
    started, workload, binding = time.monotonic(), task.workload, task.binding
    authors = authors_of(bench.settings, calls=place.calls, client=bench.client, tell=bench.watch)
    if bench.watch is not None and place.run is not None:
        _retold(place, bench.watch)
    try:
        result = _search(bench, _told(task, place), authors, budget, place)
    except SearchInterrupted as interrupt:
        found = interrupt.result
        record = _store(bench, workload, binding, found, authors, place) if found.best is not None or found.proven else None
        place.end(_ending("interrupted", found, authors, record))
        raise
    judged_any = bool(result.candidates or result.rejected)
    known = bool(result.proven) if bench.rung == "simulated" else judged_any  # without the device there is no baseline verdict
    record = _store(bench, workload, binding, result, authors, place) if known else None
    place.end(_ending("failed" if record is None else record.outcome, result, authors, record))
    run = None if place.run is None else place.run.id
    reason = candidates_text(len(result.proven), bench.target) if result.proven else result.reason
    return Tuned(record=record, reason=reason, candidates=len(result.proven), seconds=time.monotonic() - started, run=run)


def _retold(place: Place, watch: Callable[[Event], None]) -> None:
    """Tell of what there was before this process, event by event, each with "before"."""
    for event in place.log.events():
        if event["kind"] in ("verdict", "round"):
            watch({**event, "before": True})
    if place.calls is None or not place.calls.exists():
        return
    from accelopt_compile.authors import told_of
    from accelopt_compile.llm.recording import recorded_calls

    for call in recorded_calls(place.calls):
        watch({**told_of(call.request, call.reply), "before": True})


def _place(bench: Bench, task: SearchTask) -> contextlib.AbstractContextManager[Place]:
    settings, workload, binding = bench.settings, task.workload, task.binding
    kind = kind_of_authors(settings)
    about = {"environment": dict(bench.environment), "settings": asdict(task.settings)}
    if kind == "builtin" and not bench.keep:
        return contextlib.nullcontext(fleeting(bench.store, workload.digest, bench.target, about))
    models = {role: ",".join(names) for role, names in models_of(settings).items()} if kind != "builtin" else {}
    return kept(
        bench.store,
        about
        | {
            "workload": workload.digest,
            "target": bench.target,
            "binding": dict(binding),
            "family": task.family,
            "name": operators(workload),
            "proposer": kind,
            "models": models,
            "base_url": settings.base_url or "",
            "budget": {"usd": settings.budget_usd, "tokens": settings.budget_tokens, "seconds": settings.budget_s},
            "machine": list(task.told_machine()) if kind != "builtin" else [],
            "roofline_us": (roofline := task.least()).seconds * 1e6,
            "bound": roofline.bound,
            "threads": bench.threads,
            "seed": settings.seed,
        },
    )


def _task(bench: Bench, workload: Workload, binding: Binding) -> SearchTask:
    return SearchTask(
        workload=workload,
        binding=binding,
        target=bench.target,
        backend=bench.backend,
        family=kind_of(workload),
        settings=search_settings(bench.settings, estimated=bench.rung == "simulated"),
        threads=bench.threads,
    )


def _told(task: SearchTask, place: Place) -> SearchTask:
    """The task as the run's authors were told of it when the run began."""
    if place.run is None or not (machine := place.run.about.get("machine")):
        return task
    about = place.run.about
    roofline = Roofline(seconds=float(about["roofline_us"]) / 1e6, bound=str(about["bound"]))
    return replace(task, machine=tuple(map(str, machine)), roofline=roofline)


def _search(bench: Bench, task: SearchTask, authors: Authors, budget: Budget, place: Place) -> SearchResult:
    from accelopt_compile.evaluate.evaluate import open_evaluator

    store, seed = bench.store, bench.settings.seed
    prior = store.experiences(bench.backend.name)
    with (
        tempfile.TemporaryDirectory(prefix="accelopt-search-") as workdir,
        open_evaluator(
            task.workload, task.binding, backend=bench.backend, threads=bench.threads, seed=seed, workdir=workdir
        ) as evaluator,
    ):
        result = search(
            task,
            proposer=authors.proposer,
            companion=authors.companion,
            evaluator=evaluator,
            memory=Memory(prior=most_promising(task, prior) if authors.kind == "builtin" else prior),
            budget=budget,
            rng=random.Random(f"{seed} {task.workload.digest}"),
            clock=time.monotonic,
            log=place.log if bench.watch is None else Watched(place.log, bench.watch),
            progress=place.save,
            resume=place.resume,
        )
    _remember(bench, result)
    return result


def _remember(bench: Bench, result: SearchResult) -> None:
    """Keep the lessons, each with the environment it was measured in. One that cannot be stored costs no winner."""
    environment = {f"env.{name}": value for name, value in bench.environment.items()}
    for experience in result.experiences:
        try:
            bench.store.add_experience(replace(experience, origin={**experience.origin, **environment}))
        except InvalidRecord as failure:
            log.warning("a lesson is not kept: %s", failure)


def _store(bench: Bench, workload: Workload, binding: Binding, result: SearchResult, authors: Authors, place: Place) -> Record:
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


def _ending(outcome: str, result: SearchResult, authors: Authors, record: Record | None) -> dict[str, Any]:
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


_OF_THE_EVALUATION = ("build_s", "cases_skipped", "checked_at", "object_screen", "walls")
"""Features that say how a kernel was judged, not what the toolchain made of it."""

LONGEST_FEATURE = 200
"""Characters of a feature that a record keeps."""


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
