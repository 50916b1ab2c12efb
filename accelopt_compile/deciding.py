"""What each region of a graph gets: what is known of it, or a search, hottest first, within the compile's budget."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from accelopt_compile import proving
from accelopt_compile.bench import Bench
from accelopt_compile.errors import EvaluatorDied
from accelopt_compile.looking_up import Decided, known_outcome, report_on
from accelopt_compile.outcomes import RegionReport
from accelopt_compile.records import sha256_text
from accelopt_compile.search.budget import Budget, allot
from accelopt_compile.sites import Site
from accelopt_compile.tuning import tune
from accelopt_compile.whole_graph import reserve_s
from accelopt_compile.winners import HIT_DISTANCE, winner_of
from accelopt_compile.wording import operators, plural, region

log = logging.getLogger("accelopt_compile.deciding")

TOLD_S = 2.0

LEAST_SLICE_S = 1.0
"""A search with less time than this is not started."""

PROOF_S = 1.3e-6
"""Seconds of a full verification for each element that all sizes have in common: 37 s for a last layer of 576x49152."""
PROOF_SHARE = 1.5
"""A search gets so many times what its proof takes at least, where that is more than its share and no more than most of what is
left: the last layer of a model is often its hottest region."""

EVEN_SHARES = 2.0
LEAST_SEARCH_S = 6.0
"""Breadth first: no region gets more than twice its even share of what is left, so that the hottest one's last percents do
not cost the others their first kernel."""

PREPARED = 16
PREPARE_SHARE, FINISH_SHARE = 0.4, 0.7
"""At most so many baselines, begun within such a share of the budget, before the first search; and the share within which what
was begun is waited for, since half a compilation is of no use to anybody."""


def decide(sites: Sequence[Site], bench: Bench) -> Decided:
    """The store first; then searches on what is missing, hottest first, within the budget; parts of what got no kernel."""
    decided = Decided(total_s=sum(s.cost for s in sites))
    tuning = bench.settings.mode == "tune"
    unknown = _look_up(sites, bench, decided)
    budget_s = bench.settings.budget_s if tuning else 0.0
    unready = _warm_up(bench) if unknown and budget_s > 0 else ""
    started = time.monotonic()
    on_device = bench.rung == "device"
    tuning = tuning and not unready
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
            if budget.remaining_s < 2 * needed:
                unknown.remove(site)
                why = f"to prove a kernel here takes about {needed:.0f} s, more than the budget has left for it"
                decided.add(site, report_on(site, "MISS", reason=why))
                continue
            seconds = PROOF_SHARE * needed
        decided.searched += 1
        report = _tuned(site, bench, budget, seconds, decided)
        decided.add(site, report)
        again = [s for s in unknown if s.workload == site.workload and s is not site]
        # While somebody else is at a region its parts are left alone: they may be of no use in a minute.
        parts = () if decided.settled(report, site) or (report.outcome == "MISS" and not report.seconds) else site.parts
        unknown = [s for s in unknown if s.workload != site.workload]
        unknown += _look_up([*again, *parts], bench, decided)
    for site in unknown:
        decided.add(site, report_on(site, "MISS", reason=unready) if unready else _miss(site, bench, decided.searched))
    decided.remaining_s = started + budget_s - time.monotonic()
    return decided


def _warm_up(bench: Bench) -> str:
    """Have the processes ready that judge kernels; why they are not, or "". Their imports took 9 s on two cores of 2 GHz, half of
    a budget of 20."""
    from accelopt_compile.evaluate import wait_until_warm

    started = time.monotonic()
    try:
        wait_until_warm(cache_dir=bench.settings.cache_dir)
    except EvaluatorDied as failure:
        log.warning("nothing is searched: %s", failure)
        return str(failure)
    if (seconds := time.monotonic() - started) >= TOLD_S:
        log.info("the processes that judge kernels took %.0f s to start, which no search pays for", seconds)
    return ""


def _prepare(sites: Sequence[Site], bench: Bench, budget: Budget) -> None:
    """Baselines of the hottest regions, compiled side by side before the first is timed: on two cores one after another
    would cost most of the budget in waiting for a compiler."""
    from accelopt_compile.evaluate.advance import prepare_baselines

    hottest = sorted(sites, key=lambda s: -s.cost)[: min(PREPARED, bench.settings.max_regions)]
    together = sha256_text(" ".join(s.workload.digest for s in hottest))
    with bench.store.claim(together, bench.target) as mine:  # one process is enough; the others can already search
        if mine:
            log.info("compiling %s with Inductor first: kernels are timed against them", plural(len(hottest), "region"))
            tasks = [(s.workload, s.binding) for s in hottest]
            left_s = budget.remaining_s
            try:
                prepare_baselines(
                    tasks,
                    backend=bench.backend,
                    threads=bench.threads,
                    seconds=PREPARE_SHARE * left_s,
                    limit_s=FINISH_SHARE * left_s,
                    cache_dir=bench.settings.cache_dir,
                )
            except OSError as failure:  # no room for temporary files, no descriptors left: each search will say so
                log.info("no region is compiled in advance: %s", failure)


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
            return report_on(site, "MISS", reason=f"{who} is {'still ' if wait_s else ''}tuning this region")
        if (known := known_outcome(site, bench, decided)) is not None:
            return known
        if (seconds := min(seconds, budget.remaining_s)) < LEAST_SLICE_S:
            return report_on(site, "MISS", reason="the time budget is spent")
        if (found_one := _proven(site, bench, decided)) is not None:
            return found_one
        if (seconds := min(seconds, budget.remaining_s)) < LEAST_SLICE_S:
            return report_on(site, "MISS", reason="the time budget is spent")
        often = f", {site.count} times in the graph" if site.count > 1 else ""
        log.info("searching %s%s, at most %.0f s", region(site.workload), often, seconds)
        found = tune(bench, site.workload, site.binding, budget.slice(seconds=seconds))
    if found.record is None:
        return report_on(site, "MISS", reason=found.reason, seconds=found.seconds)
    if found.record.outcome == "baseline":
        return report_on(site, "BASELINE", reason=found.reason, seconds=found.seconds)
    if found.record.outcome == "candidate":
        return report_on(site, "CANDIDATE", found.record, reason=found.reason, seconds=found.seconds)
    decided.winners[site.choice] = winner_of(found.record, site.workload)
    return report_on(site, "TUNED", found.record, seconds=found.seconds)


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
    return report_on(site, "HIT", record, reason=f"proven again: {waiting.why}", seconds=time.monotonic() - started)


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
    return report_on(site, "MISS", reason=reason)
