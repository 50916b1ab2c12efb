"""Candidates on their device: proven there in full, timed against the baselines there, and then winners, or not.

A candidate was proven in a simulation and its speed estimated; neither counts here. The device proves it again on fresh inputs
at its real sizes, and only a measurement adopts it. What was decided here stays decided until a later search leaves new
candidates.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Literal

from accelopt_cache.kernel_store import Store
from accelopt_cache.reuse import reuse
from accelopt_compile import temporary
from accelopt_compile.bench import Bench
from accelopt_compile.errors import AccelOptError
from accelopt_compile.keeping import judged
from accelopt_compile.records import Accepted, Record, Rejected, Stage, Verdict, Workload
from accelopt_compile.wording import plural

log = logging.getLogger("accelopt_compile.promoting")

UNSAID = (Stage.BUILD, Stage.TIMEOUT, Stage.SLOWER)
"""Where a candidate may fall without being wrong: another toolchain, a busy device. It stays; any other stage withdraws it."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The candidates of one region for one target, at one binding: (id, record), the best by its estimate first."""

    workload: str
    target: str
    binding: Mapping[str, int]
    candidates: tuple[tuple[str, Record], ...]

    @property
    def language(self) -> str:
        """Which backend's they are."""
        source = self.candidates[0][1].source
        return "" if source is None else source.language


@dataclass(frozen=True, kw_only=True)
class Promoted:
    """What the device said: a winner with its record; a baseline with its record where kernels were right and none fast enough;
    failed where none was right; undecided where nothing could be said. `fallen` are the candidates that were refused, by id."""

    outcome: Literal["winner", "baseline", "failed", "undecided"]
    reason: str
    record: Record | None = None
    fallen: Mapping[str, Rejected] = field(default_factory=dict)


def waiting_in(store: Store, ids: Sequence[str] | None = None) -> list[Waiting]:
    """All candidates of a store, or those of `ids`, by region. The regions in a fixed order."""
    found: dict[tuple[str, str, tuple[tuple[str, int], ...]], list[tuple[str, Record]]] = {}
    for workload, target, record_id, outcome in store.walk():
        if outcome != "candidate" or (ids is not None and record_id not in ids):
            continue
        record = store.peek(workload, target, record_id, outcome)
        if record is not None:
            key = (workload, target, tuple(sorted(record.binding.items())))
            found.setdefault(key, []).append((record_id, record))
    return [
        Waiting(workload=w, target=t, binding=dict(b), candidates=tuple(sorted(all_, key=_by_estimate)))
        for (w, t, b), all_ in sorted(found.items())
    ]


def _by_estimate(one: tuple[str, Record]) -> tuple[float, str]:
    return (0.0 if one[1].timing is None else -one[1].timing.speedup, one[0])


def decided(bench: Bench, waiting: Waiting) -> Record | None:
    """What this device, in this environment, said at this binding since the newest of the candidates was left, if anything."""
    newest = max(record.created for _, record in waiting.candidates)
    for record in reversed(bench.store.records(waiting.workload, waiting.target)):
        at = dict(record.binding) == dict(waiting.binding) and record.created > newest
        if record.outcome != "candidate" and at and reuse(record.environment, bench.environment) == "use":
            return record
    return None


def promote(bench: Bench, store: Store, waiting: Waiting) -> Promoted:
    """Decide on the candidates of one region, which lie in `store`, on the device of `bench`; its records go to the bench's own
    store. A failure of the evaluator decides nothing."""
    if bench.rung != "device" or bench.target != waiting.target:
        raise AccelOptError(f"candidates for {waiting.target} cannot be decided on {bench.target} ({bench.rung})")
    workload = store.workload(waiting.workload)
    if workload is None:
        return Promoted(outcome="undecided", reason="its workload is not in the store")
    with bench.store.claim(waiting.workload, waiting.target) as mine:
        if not mine:
            return Promoted(outcome="undecided", reason="another process is at this region")
        try:
            verdicts = _verdicts(bench, workload, waiting)
        except AccelOptError as failure:
            return Promoted(outcome="undecided", reason=f"the evaluator failed: {failure}")
        found = _decision(bench, waiting, verdicts)
        if found.record is not None:
            for kept in (bench.store, *(layer for layer in bench.layers if layer.writable)):
                kept.put(found.record, workload)
        for record_id, rejected in found.fallen.items():
            if rejected.stage not in UNSAID:
                reason = f"it failed at {rejected.stage.value} on {bench.target}: {rejected.reason}"
                store.quarantine(record_id, reason, word=rejected.stage.value, diagnosis=rejected.diagnosis)
    return found


def _verdicts(bench: Bench, workload: Workload, waiting: Waiting) -> dict[str, Verdict]:
    """Each candidate's full verdict on this device, by id."""
    from accelopt_compile.evaluate.evaluate import open_evaluator

    sources = [(record.source, record.tunables) for _, record in waiting.candidates if record.source is not None]
    with (
        temporary.Folder("promote") as workdir,
        open_evaluator(
            workload,
            waiting.binding,
            backend=bench.backend,
            threads=bench.threads,
            seed=bench.settings.seed,
            workdir=workdir,
            cache_dir=bench.settings.cache_dir,
        ) as evaluator,
    ):
        verdicts = evaluator.evaluate_each(sources, effort="full")
        return {record_id: verdict for (record_id, _), verdict in zip(waiting.candidates, verdicts, strict=True)}


def _decision(bench: Bench, waiting: Waiting, verdicts: Mapping[str, Verdict]) -> Promoted:
    """The fastest measured candidate as a winner, where it is fast enough."""
    fallen = {record_id: verdict for record_id, verdict in verdicts.items() if isinstance(verdict, Rejected)}
    right = {record_id: verdict for record_id, verdict in verdicts.items() if isinstance(verdict, Accepted)}
    if not right:
        first = next(iter(fallen.values()))
        return Promoted(outcome="failed", reason=f"{first.stage.value}: {first.reason}", fallen=fallen)
    lost = f"{len(fallen)} of {plural(len(verdicts), 'candidate')} refused" if fallen else ""
    best = max(right, key=lambda record_id: right[record_id].timing.low)
    candidate, verdict = dict(waiting.candidates)[best], right[best]
    told = {"from": best, "candidates": sorted(verdicts), "simulated_in": dict(candidate.environment)}
    if not verdict.timing.gains(bench.settings.min_speedup):
        reason = "; ".join(filter(None, [_too_slow(bench, verdict, len(verdicts)), lost]))
        return Promoted(outcome="baseline", reason=reason, record=_baseline(bench, candidate, reason, told), fallen=fallen)
    return Promoted(outcome="winner", reason=lost, record=_winner(bench, candidate, verdict, told), fallen=fallen)


def _too_slow(bench: Bench, verdict: Accepted, count: int) -> str:
    timing = verdict.timing
    return (
        f"the best of {plural(count, 'candidate')} runs at {timing.speedup:.2f}x the baseline on the device (95 % interval "
        f"{timing.low:.2f} to {timing.high:.2f}), and {bench.settings.min_speedup:.2f} must be below it"
    )


def _winner(bench: Bench, candidate: Record, verdict: Accepted, told: Mapping[str, Any]) -> Record:
    """The candidate, with what the device said in the place of the simulation's word."""
    estimated = {} if candidate.timing is None else {"estimated_us": candidate.timing.kernel_us}
    return replace(
        candidate,
        outcome="winner",
        rung="device",
        timing=verdict.timing,
        errors=verdict.errors,
        environment=dict(bench.environment),
        provenance={**candidate.provenance, **judged(verdict), "promoted": {**told, **estimated}},
        created=_now(),
    )


def _baseline(bench: Bench, candidate: Record, reason: str, told: Mapping[str, Any]) -> Record:
    """That the device has decided for the baseline, at the candidate's binding."""
    return Record(
        outcome="baseline",
        workload=candidate.workload,
        target=candidate.target,
        binding=dict(candidate.binding),
        reason=reason,
        environment=dict(bench.environment),
        provenance={"proposer": candidate.provenance.get("proposer", ""), "promoted": dict(told)},
        created=_now(),
    )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
