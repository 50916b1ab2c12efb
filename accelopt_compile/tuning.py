"""One search for one region: from a workload to a record, under a claim, within a slice of the compile's budget."""

from __future__ import annotations

import logging
import random
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone

from accelopt_backends.base import Backend
from accelopt_cache.kernel_store import Store
from accelopt_compile.config import Settings
from accelopt_compile.errors import AccelOptError
from accelopt_compile.family import kind_of
from accelopt_compile.records import Accepted, Binding, Record, Workload
from accelopt_compile.resuming import events_of, state_of
from accelopt_compile.search.budget import Budget
from accelopt_compile.search.loop import SearchInterrupted, search
from accelopt_compile.search.memory import Memory
from accelopt_compile.search.task import SearchResult, SearchSettings, SearchTask
from accelopt_compile.wording import said_once

log = logging.getLogger("accelopt_compile.tuning")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where searches run: the backend, its target and environment, our store and the layers below it that others can write
    (`accelopt_cache.layers`), threads, and the settings."""

    settings: Settings
    store: Store
    backend: Backend
    target: str
    environment: Mapping[str, str]
    threads: int
    layers: tuple[Store, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What a search left: its record (None when it never got as far as a verdict), and why."""

    record: Record | None
    reason: str
    seconds: float = 0.0


def search_settings(settings: Settings) -> SearchSettings:
    """The preset of `effort` with the numbers that were set explicitly."""
    preset = SearchSettings.preset(settings.effort)
    return replace(
        preset,
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
        result = _search(bench, workload, binding, budget)
    except SearchInterrupted as interrupt:
        if interrupt.result.best is not None:
            _store(bench, workload, binding, interrupt.result)
        raise
    except AccelOptError as failure:
        return Tuned(record=None, reason=said_once(f"search failed: {failure}"), seconds=time.monotonic() - started)
    seconds = time.monotonic() - started
    if not result.candidates and not result.rejected:
        return Tuned(record=None, reason=result.reason, seconds=seconds)
    return Tuned(record=_store(bench, workload, binding, result), reason=result.reason, seconds=seconds)


def _search(bench: Bench, workload: Workload, binding: Binding, budget: Budget) -> SearchResult:
    from accelopt_compile.evaluate.evaluate import open_evaluator
    from accelopt_compile.search.builtin import BuiltinProposer

    task = SearchTask(
        workload=workload,
        binding=binding,
        target=bench.target,
        backend=bench.backend,
        family=kind_of(workload),
        settings=search_settings(bench.settings),
        threads=bench.threads,
    )
    store, digest = bench.store, workload.digest
    about = {"environment": dict(bench.environment), "settings": asdict(task.settings)}
    events, continued = events_of(store, digest, bench.target, about)
    with (
        tempfile.TemporaryDirectory(prefix="accelopt-search-") as workdir,
        open_evaluator(
            workload, binding, backend=bench.backend, threads=bench.threads, seed=bench.settings.seed, workdir=workdir
        ) as evaluator,
    ):
        result = search(
            task,
            proposer=BuiltinProposer(),
            evaluator=evaluator,
            memory=Memory(prior=store.experiences(bench.backend.name)),
            budget=budget,
            rng=random.Random(f"{bench.settings.seed} {digest}"),
            clock=time.monotonic,
            log=events,
            progress=lambda state: store.save_progress(digest, bench.target, state.to_json()),
            resume=state_of(store, digest, bench.target) if continued else None,
        )
    store.clear_progress(digest, bench.target)
    for experience in result.experiences:
        store.add_experience(experience)
    return result


def _store(bench: Bench, workload: Workload, binding: Binding, result: SearchResult) -> Record:
    best = result.best
    record = Record(
        outcome="baseline" if best is None else "winner",
        workload=workload.digest,
        target=bench.target,
        binding=dict(binding),
        reason=result.reason,
        source=None if best is None else best.source,
        tunables={} if best is None else dict(best.tunables),
        timing=None if best is None else best.verdict.timing,
        errors=None if best is None else best.verdict.errors,
        environment=dict(bench.environment),
        provenance={
            "proposer": "builtin",
            "effort": bench.settings.effort,
            "seed": bench.settings.seed,
            "rounds": result.rounds,
            "evaluated": result.evaluated,
            "rejected": dict(result.rejected),
            "seconds": round(result.seconds, 3),
            **({} if best is None else judged(best.verdict)),
        },
        created=datetime.now(timezone.utc).isoformat(timespec="microseconds"),
    )
    for store in (bench.store, *(layer for layer in bench.layers if layer.writable)):
        store.put(record, workload)
    return record


def judged(verdict: Accepted) -> dict[str, str]:
    """Under which guard a kernel was judged: what a record keeps of it."""
    return {name: str(verdict.features.get(name, "not made")) for name in ("object_screen", "walls")}
