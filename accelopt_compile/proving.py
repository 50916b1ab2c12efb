"""Stored kernels that must be proven again before they are launched: made in another environment, or by somebody else.

In mode "tune" the evaluator proves and times them here, and a copy for this environment goes to our own store. In mode "apply"
they are not launched; the report says why.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from accelopt_cache.reuse import reuse
from accelopt_compile import temporary
from accelopt_compile.bench import Bench
from accelopt_compile.errors import AccelOptError
from accelopt_compile.keeping import judged
from accelopt_compile.records import Binding, Record, Rejected, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("accelopt_compile.proving")


@dataclass(frozen=True, kw_only=True)
class Unproven:
    """A stored winner that may not be launched here yet, and why."""

    record: Record
    why: str


def unproven(bench: Bench, digest: str, binding: Binding, *, max_distance: float) -> Unproven | None:
    """The best stored winner that would have to be proven first: of our own store, made in another environment; or of a layer
    that others can write. None when there is none, or none fast enough to be worth it, or the device is not here."""
    if bench.rung != "device":
        return None
    for store in (bench.store, *bench.layers):
        record = store.best(digest, bench.target, binding, environment=bench.environment, max_distance=max_distance)
        if record is None or record.source is None or record.timing is None:
            continue
        verdict = reuse(record.environment, bench.environment)
        if not record.timing.gains(bench.settings.min_speedup, surely=False) or (store is bench.store and verdict == "use"):
            continue
        why = changes(record.environment, bench.environment) if verdict != "use" else ""
        if store is not bench.store:
            why = "; ".join(filter(None, [f"{store.files.root.named} {store.files.root.foreign}", why]))
        return Unproven(record=record, why=why)
    return None


def changes(recorded: Mapping[str, str], present: Mapping[str, str]) -> str:
    """The fields whose difference matters, as text."""
    differing = [
        f"{name} was {recorded.get(name, 'unknown')!r}, is {present.get(name, 'unknown')!r}"
        for name in sorted({*recorded, *present})
        if reuse({name: recorded.get(name, "")}, {name: present.get(name, "")}) != "use"
    ]
    return ", ".join(differing)


def prove(bench: Bench, workload: Workload, binding: Binding, found: Unproven) -> Record | str:
    """A copy of the winner for this environment, proven and timed now and kept in our own store; or why there is none."""
    from accelopt_compile.evaluate.evaluate import open_evaluator

    record = found.record
    assert record.source is not None
    log.info("proving a stored kernel again: %s", found.why)
    try:
        with (
            temporary.Folder("prove") as workdir,
            open_evaluator(
                workload,
                binding,
                backend=bench.backend,
                threads=bench.threads,
                seed=bench.settings.seed,
                workdir=workdir,
                cache_dir=bench.settings.cache_dir,
            ) as evaluator,
        ):
            verdict = evaluator.evaluate(record.source, record.tunables, effort="full")
    except (AccelOptError, OSError) as failure:
        return f"it could not be proven: {failure}"
    if isinstance(verdict, Rejected):
        log.warning("a stored kernel (%s) is refused here at %s: %s", found.why, verdict.stage.value, verdict.reason)
        return f"it is refused at {verdict.stage.value}: {verdict.reason}"
    if not verdict.timing.gains(bench.settings.min_speedup):
        return f"it is right, but {verdict.timing.low:.2f}x is not fast enough here"
    proven = replace(
        record,
        binding=dict(binding),
        timing=verdict.timing,
        errors=verdict.errors,
        environment=dict(bench.environment),
        provenance={**record.provenance, **judged(verdict), "proven_again": {"because": found.why, "first": record.created}},
        created=datetime.now(timezone.utc).isoformat(timespec="microseconds"),
    )
    bench.store.put(proven, workload)
    return proven
