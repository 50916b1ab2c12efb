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
from accelopt_compile.context import Rim, chosen, rim
from accelopt_compile.errors import AccelOptError
from accelopt_compile.graph_pass import Choice, choice
from accelopt_compile.records import Workload, canonical_json, sha256_text
from accelopt_compile.sites import Site, machine
from accelopt_compile.tuning import Bench
from accelopt_compile.winners import Winner
from accelopt_compile.wording import operators, plural, said_once

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


def lightened(kinds: Sequence[Choice], weigh: Callable[[frozenset[Choice]], Paired]) -> tuple[frozenset[Choice], Paired | None]:
    """The winners to keep of those in a context, and the ratio of all of them. Where all together lose, the one without which
    the rest is fastest is dropped, and so on. When `weigh` runs out of time after that (TimeoutError), none is kept."""
    kept = frozenset(kinds)
    first = paired = weigh(kept)
    try:
        while kept and loses(paired):
            without = {kind: weigh(kept - {kind}) for kind in kinds if kind in kept} if len(kept) > 1 else {}
            if not without:
                return frozenset(), first
            worst = max(without, key=lambda kind: without[kind].ratio)
            kept, paired = kept - {worst}, without[worst]
    except TimeoutError:
        return frozenset(), first
    return kept, first


def reserve_s(sites: Iterable[Site], budget_s: float) -> float:
    """Seconds of a budget that searches leave for the check."""
    places = sum(site.context is not None and _exposed(site.context) for site in sites)
    return min(RESERVED * budget_s, CONTEXT_S * places)


def _exposed(context: Mapping[str, Any]) -> bool:
    """Whether anything crosses the rim of the context's largest region."""
    members = context["members"]
    return bool(members) and rim(Workload.from_json(context["workload"]), [members[0]["nodes"]]).edges > 0


def key_of(context: Mapping[str, Any], keys: Iterable[str]) -> str:
    """The name of what is known of a context with the winners of these keys in it."""
    return sha256_text(canonical_json([context["digest"], sorted(keys)]))


# ---------------------------------------------------------------- the check of one graph


def check(
    sites: Sequence[Site], found: Mapping[Choice, Winner], bench: Bench, known: Mapping[str, Any], seconds: float
) -> Checked:
    """Check the winners of a graph, in the order of its sites: what is known is obeyed, the rest is measured while `seconds`
    last. Never raises for what goes wrong in measuring."""
    run = _Run(bench=bench, winners=dict(found), known=known, deadline=time.monotonic() + seconds)
    try:
        for site in sites:
            if site.context is not None and any(s.choice in run.winners for s in (site, *site.parts)):
                run.check(site, site.context)
    finally:
        run.close()
    return Checked(dropped=run.dropped, entries=run.entries)


@dataclass
class _Run:
    bench: Bench
    winners: dict[Choice, Winner]
    known: Mapping[str, Any]
    deadline: float
    dropped: dict[Choice, str] = field(default_factory=dict)
    entries: Entries = field(default_factory=dict)
    weigher: Weigher | None = None
    over: bool = False

    def check(self, site: Site, context: Mapping[str, Any]) -> None:
        """Decide on the winners in one context."""
        members = [context["members"][k] for k in chosen(context["members"], self.winners)]
        kinds = list(dict.fromkeys(choice(*m["choice"]) for m in members))
        key = key_of(context, [self.winners[kind].key for kind in kinds])
        entry = self.known.get(key)
        if entry is None or reuse(entry["environment"], self.bench.environment) != "use":
            entry = self._measured(site, context, members, kinds)
        if entry is None:
            return
        self.entries[key] = entry
        for kind in (choice(*named) for named in entry["dropped"]):
            if self.winners.pop(kind, None) is not None:
                self.dropped[kind] = entry["why"] or f"wins alone, loses in this graph: {entry['ratio']:.2f}x"

    def close(self) -> None:
        if self.weigher is not None:
            self.weigher.__exit__(None, None, None)

    def _measured(
        self, site: Site, context: Mapping[str, Any], members: Sequence[Mapping[str, Any]], kinds: Sequence[Choice]
    ) -> dict[str, Any] | None:
        """What a measurement says; None when there was none."""
        if self.over or self._left_s() < LEAST_S:
            return None
        workload = Workload.from_json(context["workload"])
        gain = sum(self.winners[choice(*m["choice"])].gain_us for m in members)
        if not could_lose(rim(workload, [m["nodes"] for m in members]), gain, machine().bandwidth_bytes_s):
            return self._entry(why="too little to lose")
        from accelopt_compile.evaluate.weighing import NotWeighed

        try:
            kept, paired = lightened(kinds, lambda some: self._weighed(context, members, some))
        except TimeoutError:
            self._give_up(site, f"the time for it is spent ({plural(len(kinds), 'kernel')} kept)")
            return None
        except NotWeighed as failure:
            if failure.faulted:  # of a kernel, most likely: it is not to do that to the user's process
                return self._entry(dropped=kinds, why=f"wins alone, crashes in this graph: {failure}")
            log.info("%s x%d is not checked in its graph, its kernel is kept: %s", *self._named(site), said_once(str(failure)))
            return self._entry(why=f"not measured: {said_once(str(failure))}")
        except (AccelOptError, OSError) as failure:
            self._give_up(site, str(failure))
            return None
        assert paired is not None
        log.debug("%s x%d in its graph: %.2fx [%.2f, %.2f]", *self._named(site), paired.ratio, paired.low, paired.high)
        dropped = [kind for kind in kinds if kind not in kept]
        return self._entry(ratio=paired.ratio, low=paired.low, high=paired.high, dropped=dropped)

    def _weighed(self, context: Mapping[str, Any], members: Sequence[Mapping[str, Any]], some: frozenset[Choice]) -> Paired:
        """The context without kernels over it with some of its winners. Raises TimeoutError, NotWeighed and AccelOptError."""
        from accelopt_compile.evaluate.weighing import NotWeighed, Weigher

        if self._left_s() < LEAST_S:
            raise TimeoutError
        if self.weigher is None:
            self.weigher = Weigher(threads=self.bench.threads, seed=self.bench.settings.seed)
        replaced = [self._replaced(m) for m in members if choice(*m["choice"]) in some]
        try:
            return self.weigher.compare(context["workload"], replaced, self._left_s())
        except NotWeighed as failure:
            if failure.late:
                raise TimeoutError from failure
            raise

    def _replaced(self, member: Mapping[str, Any]) -> dict[str, Any]:
        """What the child has to know of a kernel and its place."""
        from accelopt_compile.evaluate.builds import backend_name

        winner, store, backend = self.winners[choice(*member["choice"])], self.bench.store, self.bench.backend
        timing = winner.record.timing
        return {
            **{name: member[name] for name in ("nodes", "inputs", "outputs")},
            "key": winner.key,
            "workload": winner.workload.to_json(),
            "binding": member["choice"][1],
            "backend": backend_name(backend),
            "artifact": asdict(winners.built(winner, store=store, backend=backend)),
            "launcher": str(winners.launcher_directory(store)),
            "kernel_us": 0.0 if timing is None else timing.kernel_us,
        }

    def _entry(
        self, *, ratio: float = 0.0, low: float = 0.0, high: float = 0.0, dropped: Sequence[Choice] = (), why: str = ""
    ) -> dict[str, Any]:
        """Plain JSON; numbers as text, as the store has it."""
        return {
            "environment": dict(self.bench.environment),
            "ratio": ratio,
            "interval": [low, high],
            "dropped": [[digest, dict(binding)] for digest, binding in dropped],
            "why": why,
        }

    def _give_up(self, site: Site, why: str) -> None:
        self.over = True
        log.info("%s x%d and later ones are not checked in their graph, kernels are kept: %s", *self._named(site), said_once(why))

    def _named(self, site: Site) -> tuple[str, int]:
        return operators(site.workload), site.count

    def _left_s(self) -> float:
        return self.deadline - time.monotonic()
