"""What is known of a region without a search: the store's word, whether there is enough to gain, the backend's word."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from accelopt_cache.reuse import reuse
from accelopt_compile import outcomes
from accelopt_compile.bench import Bench
from accelopt_compile.graph_pass import Choice, choice
from accelopt_compile.launch.ops import MAX_ARGUMENTS
from accelopt_compile.outcomes import RegionReport
from accelopt_compile.records import Record, bucket_distance
from accelopt_compile.sites import Site
from accelopt_compile.winners import HIT_DISTANCE, Winner, admitted, winner_of
from accelopt_compile.wording import candidates_text, operators, said_once

log = logging.getLogger("accelopt_compile.looking_up")

NEGLIGIBLE = 0.01
"""A region with less than this share of all that could be gained is left to Inductor without a search."""


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


def known_outcome(site: Site, bench: Bench, decided: Decided) -> RegionReport | None:
    """What is known of a site without a search, or None when only a search could tell: the store's word first, then
    whether there is enough to gain (the same in every later run), then the backend's, which has to write the kernel to say."""
    digest = site.workload.digest
    arguments = len(site.workload.inputs) + len(site.workload.symbols) + len(site.workload.output_specs)
    if arguments > MAX_ARGUMENTS:
        return report_on(site, "MISS", reason=f"{arguments} arguments, more than {MAX_ARGUMENTS}")
    if bench.rung != "device":
        known = None if bench.settings.retune else _waiting(site, bench)
        if known is not None:
            return known
    record = bench.store.best(
        digest,
        bench.target,
        site.binding,
        environment=bench.environment,
        max_distance=HIT_DISTANCE,
        admit=lambda winner: serves(winner, bench),
    )
    if record is not None:
        decided.winners[site.choice] = winner_of(record, site.workload)
        return report_on(site, "HIT", record)
    baseline = None if bench.settings.retune else _baseline(site, bench)
    if baseline is not None:
        return report_on(site, "BASELINE", reason=baseline.reason)
    if 0 in site.binding.values():
        return report_on(site, "BASELINE", reason="there is nothing to compute at such sizes")
    if not decided.worthwhile(site):
        gain, total = 1e6 * site.cost, 1e6 * decided.total_s
        return report_on(
            site, "BASELINE", reason=f"not worth a search: about {gain:.1f} us to gain, of {total:.0f} us in all regions"
        )
    why = _unsupported(site, bench)
    return report_on(site, "MISS", reason=f"{bench.backend.name}: {why}") if why else None


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
        and timing.gains(bench.settings.min_speedup, surely=False)
        and reuse(record.environment, bench.environment) == "use"
        and admitted(record, record.source, store=bench.store, backend=bench.backend)
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
    return report_on(site, "CANDIDATE", best, reason=candidates_text(len(found), bench.target))


def _baseline(site: Site, bench: Bench) -> Record | None:
    """The newest record that says: searched here, at such sizes, and found nothing better than the baseline."""
    for record in reversed(bench.store.records(site.workload.digest, bench.target)):
        near = bucket_distance(record.binding, site.binding) <= HIT_DISTANCE
        if record.outcome == "baseline" and near and reuse(record.environment, bench.environment) == "use":
            bench.store.stamp(record)
            return record
    return None


def report_on(
    site: Site, outcome: outcomes.Outcome, record: Record | None = None, *, reason: str = "", seconds: float = 0.0
) -> RegionReport:
    """What is told of a site, with the times of its record where it has one."""
    timing = None if record is None else record.timing
    if timing is not None and outcome in ("HIT", "TUNED") and timing.level_with_eager:
        reason = "; ".join(filter(None, [f"level with eager, {timing.over_inductor:.2f}x Inductor's code", reason]))
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
        baseline_us=0.0 if timing is None else timing.baseline_us,
        basis="measured" if timing is None else timing.basis,
    )
