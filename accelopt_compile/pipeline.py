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
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule

from accelopt_backends.base import Backend, Ready
from accelopt_cache.kernel_store import Store
from accelopt_cache.layers import open_layers
from accelopt_cache.reuse import reuse
from accelopt_compile import outcomes, proving, winners
from accelopt_compile.choosing import HOST, chosen, device_of
from accelopt_compile.config import Settings
from accelopt_compile.fingerprint import graph_digest
from accelopt_compile.graph_pass import Choice, choice
from accelopt_compile.launch.ops import MAX_ARGUMENTS
from accelopt_compile.outcomes import CompileReport, RegionReport
from accelopt_compile.records import Record, bucket_distance, sha256_text
from accelopt_compile.search.budget import Budget, allot
from accelopt_compile.sites import Site, document, from_document, sites_of
from accelopt_compile.tuning import Bench, candidates_text, tune
from accelopt_compile.whole_graph import check, reserve_s
from accelopt_compile.winners import Winner, winner_of
from accelopt_compile.wording import operators, plural, said_once

log = logging.getLogger("accelopt_compile.pipeline")

LEAST_SLICE_S = 1.0
"""A search with less time than this is not started."""

PROOF_S = 1.3e-6
"""Seconds of a full verification for each element that all sizes have in common: 37 s for a last layer of 576x49152."""

EVEN_SHARES = 2.0
LEAST_SEARCH_S = 6.0
"""Breadth first: no region gets more than twice its even share of what is left, so that the hottest one's last percents do
not cost the others their first kernel."""

NEGLIGIBLE = 0.01
"""A region with less than this share of all that could be gained is left to Inductor without a search."""

PREPARED = 16
PREPARE_SHARE = 0.4
"""At most so many baselines, and such a share of the budget, before the first search."""

CHECKED = "checked"
"""Where a graph's document keeps what the check of the whole graph found."""

HIT_DISTANCE = 2.0
"""A record serves sizes within a factor of 4 of those it was measured at (log2)."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the pass may replace, and the report of how that came about."""

    winners: Mapping[Choice, Winner]
    report: CompileReport
    store: Store
    backend: Backend


@dataclass
class Decided:
    """What is known so far of the sites of a graph, in the order of the decisions."""

    reports: list[RegionReport] = field(default_factory=list)
    winners: dict[Choice, Winner] = field(default_factory=dict)
    seen: set[Choice] = field(default_factory=set)
    searched: int = 0
    total_s: float = 0.0  # what the sites of the graph could gain together
    remaining_s: float = 0.0  # of the budget, for the check of the whole graph

    def worthwhile(self, site: Site) -> bool:
        """Whether a search on the site could make a difference to the graph."""
        return site.cost >= NEGLIGIBLE * self.total_s

    def settled(self, report: RegionReport, site: Site) -> bool:
        """Whether the site has its kernels, so that its parts need none."""
        return site.choice in self.winners or report.outcome == "CANDIDATE"

    def add(self, site: Site, report: RegionReport) -> None:
        self.reports.append(report)
        self.seen.add(site.choice)
        outcomes.announce(report, len(self.reports))

    def drop(self, reasons: Mapping[Choice, str]) -> None:
        """Leave these sites to Inductor after all, and say why."""
        for number, report in enumerate(self.reports, 1):
            reason = reasons.get(choice(report.workload, report.binding))
            if reason is None or report.outcome not in ("HIT", "TUNED"):
                continue
            self.reports[number - 1] = left = replace(report, outcome="BASELINE", reason=reason, speedup=0.0)
            outcomes.count(report.outcome.lower(), -1)
            outcomes.announce(left, number)
        for dropped in reasons:
            self.winners.pop(dropped, None)


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
    return {**ready.environment, "torch": torch.__version__, "threads": str(threads)}


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
    stored = bench.store.graph(digest)
    known = from_document(stored)
    if known is None and settings.mode == "tune" and settings.budget_s > 0:
        from accelopt_compile.evaluate import warm  # not for a process that finds all it needs in the store

        warm()  # its imports take seconds; meanwhile the graph is captured
    sites, refused = known or sites_of(gm, example_inputs, products=products, device=device)
    if known is None:
        bench.store.put_graph(digest, document(sites, refused))  # before the searches, which may be ended by force
    decided, verdicts = decide(sites, bench), {} if known is None or stored is None else stored.get(CHECKED, {})
    checked = _checked(sites, decided, bench, verdicts)
    if checked != verdicts:
        bench.store.put_graph(digest, {**document(sites, refused), CHECKED: checked})
    for winner in decided.winners.values():
        winners.adopt(winner, store=bench.store, backend=bench.backend)
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


# ---------------------------------------------------------------- what each site gets


def decide(sites: Sequence[Site], bench: Bench) -> Decided:
    """The store first; then searches on what is missing, hottest first, within the budget; parts of what got no kernel."""
    decided = Decided(total_s=sum(s.cost for s in sites))
    tuning = bench.settings.mode == "tune"
    budget_s, started = bench.settings.budget_s if tuning else 0.0, time.monotonic()
    unknown = _look_up(sites, bench, decided)
    on_device = bench.rung == "device"
    weighed = unknown and tuning and on_device and not bench.attached
    kept_s = reserve_s((s for s in sites if decided.worthwhile(s)), budget_s) if weighed else 0.0
    budget = Budget(seconds=budget_s - kept_s, clock=time.monotonic)
    if tuning and len(unknown) > 1 and on_device and budget.remaining_s > 0:
        _prepare(unknown, bench, budget)
    while unknown and tuning and decided.searched < bench.settings.max_regions:
        site, seconds = _hottest(unknown, budget.remaining_s)
        if seconds < LEAST_SLICE_S:
            break
        if on_device and seconds < (needed := proof_s(site)):
            unknown.remove(site)
            decided.add(site, _report(site, "MISS", reason=f"to prove a kernel here takes about {needed:.0f} s, over its share"))
            continue
        decided.searched += 1
        report = _tuned(site, bench, budget, seconds, decided)
        decided.add(site, report)
        again = [s for s in unknown if s.workload == site.workload and s is not site]
        # While somebody else is at a region its parts are left alone: they may be of no use in a minute.
        parts = () if decided.settled(report, site) or (report.outcome == "MISS" and not report.seconds) else site.parts
        unknown = [s for s in unknown if s.workload != site.workload]
        unknown += _look_up([*again, *parts], bench, decided)
    for site in unknown:
        decided.add(site, _miss(site, bench, decided.searched))
    decided.remaining_s = started + budget_s - time.monotonic()
    return decided


def _prepare(sites: Sequence[Site], bench: Bench, budget: Budget) -> None:
    """Baselines of the hottest regions, compiled side by side before the first is timed: on two cores one after another
    would cost most of the budget in waiting for a compiler."""
    from accelopt_compile.evaluate.advance import prepare_baselines

    hottest = sorted(sites, key=lambda s: -s.cost)[: min(PREPARED, bench.settings.max_regions)]
    together = sha256_text(" ".join(s.workload.digest for s in hottest))
    with bench.store.claim(together, bench.target) as mine:  # one process is enough; the others can already search
        if mine:
            log.info("compiling %s in advance", plural(len(hottest), "baseline"))
            tasks = [(s.workload, s.binding) for s in hottest]
            seconds = PREPARE_SHARE * budget.remaining_s
            prepare_baselines(tasks, backend=bench.backend, threads=bench.threads, seconds=seconds)


def proof_s(site: Site) -> float:
    """Seconds that a full verification takes at least: at sizes that are free it is done on few elements."""
    from accelopt_compile.evaluate.cases import elements, small

    return PROOF_S * elements(site.workload, dict(small(site.binding)))


def _look_up(sites: Sequence[Site], bench: Bench, decided: Decided) -> list[Site]:
    """Decide what the store or the backend can say of the sites, and of the parts of those that get no kernel; the sites
    that only a search can decide."""
    unknown: list[Site] = []
    queue = list(sites)
    for site in queue:  # grows while it is walked
        if site.choice in decided.seen or any(site.choice == u.choice for u in unknown):
            continue
        report = known_outcome(site, bench, decided)
        if report is None:
            unknown.append(site)
            continue
        decided.add(site, report)
        if not decided.settled(report, site) and decided.worthwhile(site):
            queue.extend(site.parts)
    return unknown


def _hottest(sites: Sequence[Site], seconds: float) -> tuple[Site, float]:
    """The site to search next, and for how long."""
    slices = allot({str(i): site.cost for i, site in enumerate(sites)}, seconds)
    index = max(slices, key=lambda name: (slices[name], -int(name)))
    share = max(EVEN_SHARES * seconds / len(sites), LEAST_SEARCH_S)
    return sites[int(index)], min(slices[index], share)


def known_outcome(site: Site, bench: Bench, decided: Decided) -> RegionReport | None:
    """What is known of a site without a search, or None when only a search could tell: the store's word first, then
    whether there is enough to gain (the same in every later run), then the backend's, which has to write the kernel to say."""
    digest = site.workload.digest
    arguments = len(site.workload.inputs) + len(site.workload.symbols) + len(site.workload.output_specs)
    if arguments > MAX_ARGUMENTS:
        return _report(site, "MISS", reason=f"{arguments} arguments, more than {MAX_ARGUMENTS}")
    if bench.rung != "device":
        known = None if bench.settings.retune else _waiting(site, bench)
        if known is not None:
            return known
    record = bench.store.best(digest, bench.target, site.binding, environment=bench.environment, max_distance=HIT_DISTANCE)
    if record is not None and serves(record, bench):
        decided.winners[site.choice] = winner_of(record, site.workload)
        return _report(site, "HIT", record)
    baseline = None if bench.settings.retune else _baseline(site, bench)
    if baseline is not None:
        return _report(site, "BASELINE", reason=baseline.reason)
    if not decided.worthwhile(site):
        gain, total = 1e6 * site.cost, 1e6 * decided.total_s
        return _report(
            site, "BASELINE", reason=f"not worth a search: about {gain:.1f} us to gain, of {total:.0f} us in all regions"
        )
    why = _unsupported(site, bench)
    return _report(site, "MISS", reason=f"{bench.backend.name}: {why}") if why else None


def _unsupported(site: Site, bench: Bench) -> str | None:
    """Why the backend has no kernel for a site, or None."""
    try:
        return bench.backend.supports(site.workload)
    except Exception as failure:  # guards the user's program: one strange region must not cost the others their kernels
        log.warning("%s cannot look at region %s: %s: %s", bench.backend.name, site.name, type(failure).__name__, failure)
        log.debug("%s", traceback.format_exc())
        return f"a fault in the backend: {type(failure).__name__}: {failure}"


def serves(record: Record, bench: Bench) -> bool:
    """Whether a winner may be launched here as it is: its device is here, it was proven and timed in this environment, it is
    fast enough, and not refused."""
    timing = record.timing
    return (
        bench.rung == "device"
        and record.outcome == "winner"
        and record.source is not None
        and timing is not None
        and timing.speedup >= bench.settings.min_speedup
        and reuse(record.environment, bench.environment) == "use"
        and not bench.backend.screen(record.source)
    )


def _waiting(site: Site, bench: Bench) -> RegionReport | None:
    """What is there already for a device that is not here: candidates that this simulation would leave again, at such sizes;
    what else would ask for a new timing (threads, for one) makes no difference where nothing is timed."""
    found = [
        record
        for _, record in bench.store.candidates(site.workload.digest, bench.target)
        if bucket_distance(record.binding, site.binding) <= HIT_DISTANCE
        and reuse(record.environment, bench.environment) in ("use", "retime")
    ]
    if not found:
        return None
    best = max(found, key=lambda record: 0.0 if record.timing is None else record.timing.speedup)
    return _report(site, "CANDIDATE", best, reason=candidates_text(len(found), bench.target))


def _baseline(site: Site, bench: Bench) -> Record | None:
    """The newest record that says: searched here, at such sizes, and found nothing better than the baseline."""
    for record in reversed(bench.store.records(site.workload.digest, bench.target)):
        near = bucket_distance(record.binding, site.binding) <= HIT_DISTANCE
        if record.outcome == "baseline" and near and reuse(record.environment, bench.environment) == "use":
            return record
    return None


def _tuned(site: Site, bench: Bench, budget: Budget, seconds: float, decided: Decided) -> RegionReport:
    """Search on a site for at most `seconds`, unless another process is at it, or was since the store was asked. With the
    setting `wait` the other one is waited for, as long as the budget lasts; if it dies, its search is gone on with."""
    digest, wait_s = site.workload.digest, 0.0
    if bench.settings.wait:
        wait_s = budget.remaining_s
        if (holder := bench.store.holder(digest, bench.target)) is not None:
            log.info("waiting for process %d, which is tuning %s", holder.pid, operators(site.workload))
    with bench.store.claim(digest, bench.target, timeout_s=wait_s) as mine:
        if not mine:
            holder = bench.store.holder(digest, bench.target)
            who = "another process" + (f" ({holder.pid})" if holder is not None else "")
            return _report(site, "MISS", reason=f"{who} is {'still ' if wait_s else ''}tuning this region")
        if (known := known_outcome(site, bench, decided)) is not None:
            return known
        if (seconds := min(seconds, budget.remaining_s)) < LEAST_SLICE_S:
            return _report(site, "MISS", reason="the time budget is spent")
        if (found_one := _proven(site, bench, decided)) is not None:
            return found_one
        if (seconds := min(seconds, budget.remaining_s)) < LEAST_SLICE_S:
            return _report(site, "MISS", reason="the time budget is spent")
        log.info("searching %s x%d, at most %.0f s", operators(site.workload), site.count, seconds)
        found = tune(bench, site.workload, site.binding, budget.slice(seconds=seconds))
    if found.record is None:
        return _report(site, "MISS", reason=found.reason, seconds=found.seconds)
    if found.record.outcome == "baseline":
        return _report(site, "BASELINE", reason=found.reason, seconds=found.seconds)
    if found.record.outcome == "candidate":
        return _report(site, "CANDIDATE", found.record, reason=found.reason, seconds=found.seconds)
    decided.winners[site.choice] = winner_of(found.record, site.workload)
    return _report(site, "TUNED", found.record, seconds=found.seconds)


def _proven(site: Site, bench: Bench, decided: Decided) -> RegionReport | None:
    """A stored kernel of another environment, or of others, proven here and now; None when there is none that holds."""
    digest, started = site.workload.digest, time.monotonic()
    waiting = proving.unproven(bench, digest, site.binding, max_distance=HIT_DISTANCE)
    if waiting is None:
        return None
    record = proving.prove(bench, site.workload, site.binding, waiting)
    if isinstance(record, str):
        log.info("a stored kernel for %s is not used: %s", operators(site.workload), record)
        return None
    decided.winners[site.choice] = winner_of(record, site.workload)
    return _report(site, "HIT", record, reason=f"proven again: {waiting.why}", seconds=time.monotonic() - started)


def _miss(site: Site, bench: Bench, searched: int) -> RegionReport:
    if bench.settings.mode == "apply":
        reason = "mode is apply"
    elif searched >= bench.settings.max_regions:
        reason = f"max_regions is {bench.settings.max_regions}"
    else:
        reason = "the time budget is spent"
    waiting = proving.unproven(bench, site.workload.digest, site.binding, max_distance=HIT_DISTANCE)
    if waiting is not None:
        reason += f"; a stored kernel has to be proven here first ({waiting.why}): compile once in mode tune"
    return _report(site, "MISS", reason=reason)


def _report(
    site: Site, outcome: outcomes.Outcome, record: Record | None = None, *, reason: str = "", seconds: float = 0.0
) -> RegionReport:
    timing = None if record is None else record.timing
    return RegionReport(
        workload=site.workload.digest,
        name=site.name,
        operators=operators(site.workload),
        count=site.count,
        binding=dict(site.binding),
        outcome=outcome,
        reason=said_once(reason),
        seconds=seconds,
        speedup=0.0 if timing is None else timing.speedup,
        kernel_us=0.0 if timing is None else timing.kernel_us,
        baseline_us=0.0 if timing is None else min(timing.baselines_us.values(), default=0.0),
        basis="measured" if timing is None else timing.basis,
    )
