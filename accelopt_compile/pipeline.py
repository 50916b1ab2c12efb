"""From a Dynamo graph to the winners that its regions get: known graph or dry capture, store, search, report.

Nothing here runs inside Inductor's own compile. `plan` gives a snapshot: which winner serves which region of this graph.
The pass (`graph_pass`) then only looks up.
"""

from __future__ import annotations

import functools
import logging
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from accelopt_backends.base import Backend, Ready
from accelopt_cache.kernel_store import Store
from accelopt_cache.layers import open_layers
from accelopt_compile import winners
from accelopt_compile.bench import Bench
from accelopt_compile.choosing import HOST, chosen, device_of
from accelopt_compile.config import Settings
from accelopt_compile.deciding import decide
from accelopt_compile.fingerprint import graph_digest
from accelopt_compile.graph_pass import Choice
from accelopt_compile.launch import kernels
from accelopt_compile.looking_up import Decided
from accelopt_compile.outcomes import CompileReport
from accelopt_compile.sites import Site, document, from_document, sites_of
from accelopt_compile.whole_graph import check
from accelopt_compile.winners import Winner

log = logging.getLogger("accelopt_compile.pipeline")

HARNESS = "3"
"""Of what verification sees: another one where it learns of a fault that proven kernels may have, so that these are proven again.
2: integers that do not fit into their type, positions below a table. 3: ends of log1p, long sums of equal terms in columns."""

CHECKED = "checked"
"""Where a graph's document keeps what the check of the whole graph found."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the pass may replace, and the report of how that came about."""

    winners: Mapping[Choice, Winner]
    report: CompileReport
    store: Store
    backend: Backend


def bench_for(settings: Settings, device: str = HOST) -> Bench:
    """The store and the backend of these settings on this machine, for graphs on `device`. Raises ToolchainMissing where no
    backend works."""
    backend, ready = chosen(settings, device)
    threads = settings.threads or torch.get_num_threads()
    store, layers = _stores(settings.cache_dir)
    return Bench(
        settings=settings,
        store=store,
        layers=layers,
        backend=backend,
        target=ready.target,
        environment=environment_of(ready, threads),
        threads=threads,
        rung=ready.rung,
        attached=ready.attached is not None,
    )


@functools.lru_cache(maxsize=8)
def _stores(root: str | None) -> tuple[Store, tuple[Store, ...]]:
    """The same ones for a root all over a process, so that what an unwritable disk did not take is there for the next graph."""
    return open_layers(root)


def environment_of(ready: Ready, threads: int) -> dict[str, str]:
    """What a record made here stores, and a load compares (`accelopt_cache.reuse`)."""
    return {**ready.environment, "torch": torch.__version__, "threads": str(threads), "harness": HARNESS}


def plan(gm: GraphModule, example_inputs: Sequence[Any], settings: Settings) -> Plan:
    """Decide on every region of `gm`, which stays as it is. In mode "tune" this searches, within `budget_s`."""
    started = time.monotonic()
    where = device_of(gm, example_inputs)
    bench = bench_for(settings, where)
    products = bench.backend.products
    # A simulation prepares kernels for a device that is not here, from graphs on whatever is.
    device = bench.backend.device if bench.rung == "device" else where
    extra = (f"products {products.most} {products.rows} {products.widest}", *((f"device {device}",) if device != HOST else ()))
    digest = graph_digest(gm, example_inputs, extra=(*settings.rewrite_key, *extra))
    stored = bench.store.graph(digest, used=True)
    known = from_document(stored)
    if known is None and settings.mode == "tune" and settings.budget_s > 0:
        from accelopt_compile.evaluate import warm  # not for a process that finds all it needs in the store

        warm(settings.cache_dir)  # its imports take seconds; meanwhile the graph is captured
    sites, refused = known or sites_of(gm, example_inputs, products=products, device=device)
    if known is None:
        bench.store.put_graph(digest, document(sites, refused))  # before the searches, which may be ended by force
    decided, verdicts = decide(sites, bench), {} if known is None or stored is None else stored.get(CHECKED, {})
    checked = _checked(sites, decided, bench, verdicts)
    if checked != verdicts:
        bench.store.put_graph(digest, {**document(sites, refused), CHECKED: checked})
    _make_ready(decided, bench)
    report = CompileReport(
        graph=digest,
        target=bench.target,
        mode=settings.mode,
        regions=tuple(decided.reports),
        refused=refused,
        seconds=time.monotonic() - started,
        warm=known is not None,
    )
    return Plan(winners=decided.winners, report=report, store=bench.store, backend=bench.backend)


def _make_ready(decided: Decided, bench: Bench) -> None:
    """Load the winners' kernels; the regions of those that cannot be loaded are Inductor's."""
    missing = {}
    for key, winner in {winner.key: winner for winner in decided.winners.values()}.items():  # one may serve several sites
        winners.adopt(winner, store=bench.store, backend=bench.backend)
        if why := kernels.ready(key):
            missing[key] = why
            log.warning("kernel %s %s; the region is left to Inductor", key[:16], why)
    decided.drop({choice: missing[winner.key] for choice, winner in decided.winners.items() if winner.key in missing})


def _checked(sites: Sequence[Site], decided: Decided, bench: Bench, known: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the winners that lose where they stand; what is known of the graph's contexts now. Where the device is attached
    nothing is known of them: they are timed on the host alone."""
    if bench.attached:
        return dict(known)
    tuning = bench.settings.mode == "tune" and bench.settings.budget_s > 0
    try:
        found = check(sites, decided.winners, bench, known, decided.remaining_s if tuning else 0.0)
    except Exception as failure:  # guards the user's program: each kernel has won alone
        log.warning("the whole graph is not checked, kernels are kept: %s: %s", type(failure).__name__, failure)
        log.debug("%s", traceback.format_exc())
        return dict(known)
    decided.drop(found.dropped)
    return {**known, **found.entries}
