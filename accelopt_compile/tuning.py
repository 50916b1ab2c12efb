"""One search for one region: from a workload to a record, under a claim, within a slice of the compile's budget."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from accelopt_backends.base import Roofline
from accelopt_cache.run_store import INTERRUPTED
from accelopt_compile import temporary
from accelopt_compile.authors import Authors, authors_of, kind_of_authors, models_of
from accelopt_compile.bench import Bench
from accelopt_compile.config import Settings
from accelopt_compile.errors import AccelOptError
from accelopt_compile.events import Event
from accelopt_compile.family import kind_of
from accelopt_compile.heartbeat import Heartbeat
from accelopt_compile.keeping import ending, keep, remember
from accelopt_compile.records import Binding, Record, Workload
from accelopt_compile.resuming import Place, Watched, fleeting, kept
from accelopt_compile.search.budget import Budget
from accelopt_compile.search.loop import SearchInterrupted, search
from accelopt_compile.search.memory import Memory, most_promising
from accelopt_compile.search.task import SearchResult, SearchSettings, SearchTask
from accelopt_compile.wording import candidates_text, operators, region, said_once

log = logging.getLogger("accelopt_compile.tuning")


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What a search left: its record (None when it never got as far as a verdict), why, and the run's id where one is kept. Of
    several candidates the record is the best one's by its estimate; `candidates` counts them."""

    record: Record | None
    reason: str
    candidates: int = 0
    seconds: float = 0.0
    run: str | None = None


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
    """Search, and store what was found. A failure (of the evaluator, the proposer, the system: no room for temporary files, no
    descriptors left) is a reason, not an exception; Ctrl-C keeps what there is and goes on to the caller."""
    started = time.monotonic()
    try:
        task = _task(bench, workload, binding)
        with _place(bench, task) as place:
            return _tuned(bench, task, budget, place)
    except (AccelOptError, OSError) as failure:
        return Tuned(record=None, reason=said_once(f"search failed: {failure}"), seconds=time.monotonic() - started)
    except Exception as failure:  # guards the user's program: one region's search must not cost its graph the other kernels
        log.warning("the search of %s failed, which is a mistake of ours or of its proposer's", region(workload), exc_info=True)
        reason = said_once(f"search failed: {type(failure).__name__}: {failure}")
        return Tuned(record=None, reason=reason, seconds=time.monotonic() - started)


def _tuned(bench: Bench, task: SearchTask, budget: Budget, place: Place) -> Tuned:
    authors = authors_of(bench.settings, calls=place.calls, client=bench.client, tell=bench.watch)
    try:
        return _by(authors, bench, task, budget, place)
    finally:
        if authors.spending is not None:
            authors.spending.close()


def _by(authors: Authors, bench: Bench, task: SearchTask, budget: Budget, place: Place) -> Tuned:
    started, workload, binding = time.monotonic(), task.workload, task.binding
    if bench.watch is not None and place.run is not None:
        _retold(place, bench.watch)
    try:
        result = _search(bench, _told(task, place), authors, budget, place)
    except SearchInterrupted as interrupt:
        found = interrupt.result
        record = keep(bench, workload, binding, found, authors, place) if found.best is not None or found.proven else None
        place.end(ending(INTERRUPTED, found, authors, record))
        raise
    if result.cut_short and not bench.keep:  # too few kernels to say that the baseline is best: the next compile goes on
        place.end(ending(INTERRUPTED, result, authors, None))
        return Tuned(record=None, reason=result.reason, seconds=time.monotonic() - started)
    known = bool(result.proven) if bench.rung == "simulated" else result.judged  # without the device there is no baseline verdict
    record = keep(bench, workload, binding, result, authors, place) if known else None
    place.end(ending("failed" if record is None else record.outcome, result, authors, record))
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
    watch = bench.watch or Heartbeat(region(task.workload))
    prior = store.experiences(bench.backend.name)
    with (
        temporary.Folder("search") as workdir,
        open_evaluator(
            task.workload,
            task.binding,
            backend=bench.backend,
            threads=bench.threads,
            seed=seed,
            workdir=workdir,
            cache_dir=bench.settings.cache_dir,
        ) as evaluator,
    ):
        result = search(
            task,
            proposer=authors.proposer,
            companion=authors.companion,
            evaluator=evaluator,
            memory=Memory(prior=most_promising(task, prior) if authors.kind == "builtin" else prior),
            budget=budget if bench.keep else budget.slice(earlier=False),  # each compile has a budget of its own
            rng=random.Random(f"{seed} {task.workload.digest}"),
            clock=time.monotonic,
            log=Watched(place.log, watch),
            progress=place.save,
            resume=place.resume,
        )
    remember(bench, result)
    return result
