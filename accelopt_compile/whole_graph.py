"""The check of a graph after its winners are chosen: does each kernel still pay where it stands?

A winner beat its region compiled alone. In the graph Inductor might have fused that region with its neighbours, and a kernel
ends that. So each winner's context (`context.py`), with all winners that lie in it, is timed against the same context
without kernels; where it certainly loses, the winners are dropped that cost most. What was found is kept with the graph, so
that later processes obey without measuring. Whatever else goes wrong here costs a message: the winners are then kept, since
each has won alone and most contexts change nothing. Only a crash speaks against them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from accelopt_cache.reuse import reuse
from accelopt_compile import winners
from accelopt_compile.bench import Bench
from accelopt_compile.context import NotWeighed, Rim, chosen, rim
from accelopt_compile.errors import AccelOptError
from accelopt_compile.graph_pass import Choice, choice
from accelopt_compile.records import Workload, canonical_json, sha256_text
from accelopt_compile.sites import Site, machine
from accelopt_compile.winners import Winner
from accelopt_compile.wording import region, said_once

if TYPE_CHECKING:
    from accelopt_compile.evaluate.timing import Paired
    from accelopt_compile.evaluate.weighing import Weigher

log = logging.getLogger("accelopt_compile.whole_graph")

EDGE_US = 2.0
"""What one value across a rim may cost beside its bytes: a kernel of Inductor's more, and its call."""

SAFE = 0.5
"""Winners that could lose at most such a share of what they gain are not measured."""

RESERVED = 0.2
CONTEXT_S = 8.0
"""Seconds kept from the searches for each context that may have to be measured, up to such a share of the budget."""

LEAST_S = 2.0
"""With less time than this nothing more is measured."""

Json = Mapping[str, Any]
"""A context or a member of one as the store has it, or what is known of contexts by `key_of`."""

Entries = dict[str, dict[str, Any]]
"""What is known of contexts with certain winners in them, by `key_of`: as the store keeps it with the graph."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Which winners are dropped, each with the reason for the report, and what is known now."""

    dropped: Mapping[Choice, str]
    entries: Entries


def could_lose(rim: Rim, gain_us: float, bandwidth_bytes_s: float) -> bool:
    """Whether winners that gain so much alone could lose it at their rim.

    >>> could_lose(Rim(stored=0, shared=0, edges=0), 1.0, 1e10)
    False
    >>> could_lose(Rim(stored=8 << 20, shared=0, edges=1), 100.0, 1e10)
    True
    """
    worst_us = 1e6 * (rim.stored + rim.shared) / bandwidth_bytes_s + EDGE_US * rim.edges
    return worst_us > SAFE * gain_us


def loses(paired: Paired) -> bool:
    """Whether a context with kernels is certainly slower than without: all of the ratio's interval is below 1."""
    return paired.high < 1.0


def lightened(kinds: Sequence[Choice], weigh: Callable[[frozenset[Choice]], Paired]) -> tuple[frozenset[Choice], Paired]:
    """The winners to keep of those in a context, and the ratio of all of them. Where all together lose, twice, the one without
    which the rest is fastest is dropped, and so on. Raises NotWeighed; once they are known to lose, that means none is kept."""
    kept = frozenset(kinds)
    first = weigh(kept)
    if loses(first):  # what is dropped stays dropped: once more, and the better of the two counts
        first = max(first, weigh(kept), key=lambda paired: paired.ratio)
    paired = first
    while kept and loses(paired):
        try:
            without = {kind: weigh(kept - {kind}) for kind in kinds if kind in kept} if len(kept) > 1 else {}
        except NotWeighed:
            without = {}
        if not without:
            return frozenset(), first
        worst = max(without, key=lambda kind: without[kind].ratio)
        kept, paired = kept - {worst}, without[worst]
    return kept, first


def reserve_s(sites: Iterable[Site], budget_s: float) -> float:
    """Seconds of a budget that searches leave for the check."""
    places = sum(site.context is not None and _exposed(site.context) for site in sites)
    return min(RESERVED * budget_s, CONTEXT_S * places)


def _exposed(context: Json) -> bool:
    """Whether anything crosses the rim of the context's largest region."""
    members = context["members"]
    return bool(members) and rim(Workload.from_json(context["workload"]), [members[0]["nodes"]]).edges > 0


def key_of(context: Json, keys: Iterable[str]) -> str:
    """The name of what is known of a context with the winners of these keys in it."""
    return sha256_text(canonical_json([context["digest"], sorted(keys)]))


# ---------------------------------------------------------------- the check of one graph


class Weighing:
    """Times contexts with kernels of a bench; its child is started when the first is to be timed, and ends with it."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._weigher: Weigher | None = None

    def __enter__(self) -> Weighing:
        return self

    def __exit__(self, *failure: object) -> None:
        if self._weigher is not None:
            self._weigher.close()

    def weigh(
        self, context: Json, members: Sequence[Json], found: Mapping[Choice, Winner], some: frozenset[Choice], seconds: float
    ) -> Paired:
        """A context without kernels over the same with those of `found` at the members that are of the kinds `some`. Raises
        NotWeighed, and AccelOptError or OSError where a kernel cannot be built or no child started."""
        if seconds < LEAST_S:
            raise NotWeighed("the time for it is spent", late=True)
        if self._weigher is None:
            from accelopt_compile.evaluate.weighing import Weigher  # not for a process that finds all it needs in the store

            settings = self._bench.settings
            self._weigher = Weigher(threads=self._bench.threads, seed=settings.seed, cache_dir=settings.cache_dir)
        kinds = [(member, choice(*member["choice"])) for member in members]
        replaced = [described(self._bench, member, found[kind]) for member, kind in kinds if kind in some]
        return self._weigher.compare(context["workload"], replaced, seconds)


def described(bench: Bench, member: Json, winner: Winner) -> dict[str, Any]:
    """What the child has to know of a kernel and its place. Builds the kernel; raises AccelOptError or OSError."""
    from accelopt_backends.registry import address_of

    timing = winner.record.timing
    return {
        **{name: member[name] for name in ("nodes", "inputs", "outputs")},
        "key": winner.key,
        "workload": winner.workload.to_json(),
        "binding": member["choice"][1],
        "backend": address_of(bench.backend),
        "artifact": asdict(winners.built(winner, store=bench.store, backend=bench.backend)),
        "launcher": str(winners.launcher_directory(bench.store)),
        "kernel_us": 0.0 if timing is None else timing.kernel_us,
    }


def check(sites: Sequence[Site], found: Mapping[Choice, Winner], bench: Bench, known: Json, seconds: float) -> Checked:
    """Check the winners of a graph, in the order of its sites: what is known is obeyed, the rest is measured while `seconds`
    last. What goes wrong in measuring is logged."""
    with Weighing(bench) as weighing:
        run = _Run(bench=bench, weighing=weighing, winners=dict(found), known=known, deadline=time.monotonic() + seconds)
        for site in sites:
            if site.context is not None and any(s.choice in run.winners for s in (site, *site.parts)):
                run.check(site, site.context)
    return Checked(dropped=run.dropped, entries=run.entries)


@dataclass
class _Run:
    bench: Bench
    weighing: Weighing
    winners: dict[Choice, Winner]
    known: Json
    deadline: float
    dropped: dict[Choice, str] = field(default_factory=dict)
    entries: Entries = field(default_factory=dict)
    over: bool = False

    def check(self, site: Site, context: Json) -> None:
        """Decide on the winners in one context; and again where parts of one that was dropped have winners of their own."""
        seen: set[int] = set()
        while (numbers := chosen(context["members"], self.winners)) and not seen.issuperset(numbers):
            seen.update(numbers)
            entry = self._entry_for(site, context, [context["members"][k] for k in numbers])
            for kind in () if entry is None else (choice(*named) for named in entry["dropped"]):
                if entry is not None and self.winners.pop(kind, None) is not None:
                    self.dropped[kind] = entry["why"] or f"wins alone, loses in this graph: {entry['ratio']:.2f}x"

    def _entry_for(self, site: Site, context: Json, members: Sequence[Json]) -> dict[str, Any] | None:
        """What is known of the context with these winners, or is found out now; None for nothing."""
        kinds = list(dict.fromkeys(choice(*m["choice"]) for m in members))
        key = key_of(context, [self.winners[kind].key for kind in kinds])
        entry: dict[str, Any] | None = self.known.get(key)
        if entry is None or reuse(entry["environment"], self.bench.environment) != "use":
            entry = None if self.over or self._left_s() < LEAST_S else self._measured(site, context, members, kinds)
        if entry is not None:
            self.entries[key] = entry
        return entry

    def _measured(self, site: Site, context: Json, members: Sequence[Json], kinds: Sequence[Choice]) -> dict[str, Any] | None:
        gain = sum(self.winners[choice(*m["choice"])].gain_us(m["choice"][1]) for m in members)
        edge = rim(Workload.from_json(context["workload"]), [m["nodes"] for m in members])
        if not could_lose(edge, gain, machine().bandwidth_bytes_s):
            return self._entry(why="too little to lose")
        name = region(site.workload)
        try:
            kept, paired = lightened(kinds, lambda some: self._weighed(context, members, some))
        except NotWeighed as failure:
            if failure.faulted:  # of a kernel, most likely: it is not to do that to the user's process
                return self._entry(dropped=kinds, why=f"wins alone, crashes in this graph: {failure}")
            self.over = failure.late
            others = " and what follows are" if failure.late else " is"
            log.info("%s%s not checked in the graph, kernels are kept: %s", name, others, said_once(str(failure)))
            return None if failure.late or failure.lost else self._entry(why=f"not measured: {said_once(str(failure))}")
        except (AccelOptError, OSError) as failure:
            self.over = True
            log.info("%s and what follows are not checked in the graph, kernels are kept: %s", name, said_once(str(failure)))
            return None
        log.debug("%s in the graph: %.2fx [%.2f, %.2f]", name, paired.ratio, paired.low, paired.high)
        return self._entry(paired, dropped=[kind for kind in kinds if kind not in kept])

    def _weighed(self, context: Json, members: Sequence[Json], some: frozenset[Choice]) -> Paired:
        return self.weighing.weigh(context, members, self.winners, some, self._left_s())

    def _entry(self, paired: Paired | None = None, *, dropped: Sequence[Choice] = (), why: str = "") -> dict[str, Any]:
        """What the store keeps: plain JSON."""
        return {
            "environment": dict(self.bench.environment),
            "ratio": 0.0 if paired is None else paired.ratio,
            "interval": [0.0, 0.0] if paired is None else [paired.low, paired.high],
            "dropped": [[digest, dict(binding)] for digest, binding in dropped],
            "why": why,
        }

    def _left_s(self) -> float:
        return self.deadline - time.monotonic()
