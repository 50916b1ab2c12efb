"""The distinct regions of a Dynamo graph, hottest first: found by a dry capture, or read from the graph's document."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import GraphModule

from accelopt_backends.base import NO_PRODUCTS, Products
from accelopt_compile.attention import settle_seeds
from accelopt_compile.capture import capture
from accelopt_compile.context import Surroundings
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.foreach import expand
from accelopt_compile.graph_pass import Choice, choice, signature_of
from accelopt_compile.hotness import measure, rank
from accelopt_compile.in_place import Update, pooled, updates_of
from accelopt_compile.partition import partition
from accelopt_compile.records import Workload
from accelopt_compile.regions import Region, nested
from accelopt_compile.signature import Signed

log = logging.getLogger("accelopt_compile.sites")


UNREACHED = 0.25
"""Share of a region's time that a better kernel may save although the region is one call already (attention, say): what
runs now does not reach the roofline."""


_Place = tuple[Surroundings, Region, Mapping[Region, Signed]]


@dataclass(frozen=True, kw_only=True)
class Site:
    """A distinct region of the graph: a workload at a binding. `cost` ranks it (seconds that a kernel might save);
    `parts` are the sites that it was merged of, which take its place where it gets no kernel. `context` is what surrounds it
    where it stands (`context.Context`, as JSON); None where Inductor can fuse nothing with it."""

    workload: Workload
    binding: Mapping[str, int]
    name: str
    count: int
    cost: float
    parts: tuple[Site, ...] = ()
    context: Mapping[str, Any] | None = None

    @property
    def choice(self) -> Choice:
        return choice(self.workload.digest, self.binding)


def sites_of(
    gm: GraphModule, example_inputs: Sequence[Any], *, products: Products = NO_PRODUCTS, device: str = "cpu"
) -> tuple[list[Site], dict[str, int]]:
    """The distinct regions on `device` ("cpu", "cuda") of all graphs that Inductor would compile for `gm`, hottest first; and
    how many nodes no region holds, by reason."""
    found: dict[Choice, Site] = {}
    places: dict[Choice, list[_Place]] = {}
    refused: Counter[str] = Counter()
    for captured in capture(gm, example_inputs):
        expand(captured.graph)
        settle_seeds(captured.graph)
        parts = partition(captured.graph, products=products)
        refused.update(parts.refused.values())
        whole = [(region, signature_of(region, device=device)) for region in parts.regions]
        updates = updates_of(whole)
        bindings = pooled(updates.values())
        around, signatures = Surroundings(captured.graph, parts.regions), _signatures(whole, device)
        for region, signed in whole:
            site = _update_site(updates[region], bindings) if region in updates else _site(region, signed, device)
            if isinstance(site, str):
                refused[site] += len(region.nodes)
                continue
            if region not in updates:
                places.setdefault(site.choice, []).append((around, region, signatures))
            before = found.get(site.choice)
            if before is not None:
                site = replace(site, count=before.count + 1, cost=before.cost + site.cost)
            found[site.choice] = site
    sites = [replace(site, context=_context(places.get(choice, []))) for choice, site in found.items()]
    return sorted(sites, key=lambda s: (-s.cost, s.workload.digest)), dict(refused)


def _signatures(whole: Sequence[tuple[Region, Signed | str]], device: str) -> dict[Region, Signed]:
    """The regions that have a signature, and their parts that do."""
    pending, found = list(whole), dict[Region, Signed]()
    for region, signed in pending:  # grows while it is walked
        if isinstance(signed, Signed):
            found[region] = signed
        pending.extend((part, signature_of(part, device=device)) for part in nested(region))
    return found


def _context(places: Sequence[_Place]) -> dict[str, Any] | None:
    """The context of a region, of the middle one of its occurrences: the first and the last layer of a model are the odd ones."""
    if not places:
        return None
    around, region, signatures = places[len(places) // 2]
    try:
        context = around.of(region, signatures)
    except Exception as failure:  # guards the user's program: a region without a context is a region that is not checked
        log.warning("what surrounds %s is not known: %s: %s", region.name, type(failure).__name__, str(failure)[:200])
        return None
    return None if context is None else context.to_json()


def _update_site(update: Update, bindings: Mapping[str, Mapping[str, int]]) -> Site:
    """The site of an in-place update: measured at the elements of all that share its call, at its own share of the cost."""
    (cost,) = rank([(update.signed, 1)], machine())
    workload = update.signed.workload
    return Site(
        workload=workload,
        binding=bindings[workload.digest],
        name=update.region.name,
        count=1,
        cost=cost.gain_bound_s + UNREACHED * cost.seconds_estimate,
    )


def _site(region: Region, signed: Signed | str, device: str) -> Site | str:
    """The site of one region, or why it has none."""
    if isinstance(signed, str):
        return signed
    parts = [_site(part, signature_of(part, device=device), device) for part in nested(region)]
    (cost,) = rank([(signed, 1)], machine())
    return Site(
        workload=signed.workload,
        binding=dict(signed.binding),
        name=region.name,
        count=1,
        cost=cost.gain_bound_s + UNREACHED * cost.seconds_estimate,
        parts=tuple(part for part in parts if not isinstance(part, str)),
    )


machine = functools.cache(measure)
"""What this machine does, measured once a process."""


def document(sites: Sequence[Site], refused: Mapping[str, int]) -> dict[str, Any]:
    """What the store keeps of a graph."""
    return {"regions": [_site_json(s) for s in sites], "refused": dict(refused)}


def _site_json(site: Site) -> dict[str, Any]:
    return {
        "workload": site.workload.to_json(),
        "binding": dict(site.binding),
        "name": site.name,
        "count": site.count,
        "cost": f"{site.cost:.6g}",
        "parts": [_site_json(p) for p in site.parts],
        "context": site.context,
    }


def _site_from(data: Any) -> Site:
    return Site(
        workload=Workload.from_json(data["workload"]),
        binding={str(k): int(v) for k, v in data["binding"].items()},
        name=str(data["name"]),
        count=int(data["count"]),
        cost=float(data["cost"]),
        parts=tuple(_site_from(p) for p in data["parts"]),
        context=data["context"],
    )


def from_document(data: Mapping[str, Any] | None) -> tuple[list[Site], dict[str, int]] | None:
    """Inverse of `document`; None for no document or one that another version wrote."""
    if data is None:
        return None
    try:
        return [_site_from(s) for s in data["regions"]], {str(k): int(v) for k, v in data["refused"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, InvalidRecord) as failure:
        log.info("the stored graph is not usable (%s: %s); capturing again", type(failure).__name__, failure)
        return None
