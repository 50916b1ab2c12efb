"""A definition and its workloads become workloads of ours.

The definition's `reference` is somebody's Python: it is traced in a child behind a runner's walls, on fake tensors
(`evaluate/sandbox/tracer.py`), never run here and never on data. What the child sends is JSON, and is checked here: each
workload by `Workload.from_json`, and against the definition's own shapes and dtypes.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accelopt_compile.errors import AccelOptError, InvalidRecord
from accelopt_compile.evaluate.limits import Limits
from accelopt_compile.evaluate.reference import operator_of
from accelopt_compile.evaluate.sandbox import forkserver
from accelopt_compile.evaluate.sandbox.host import Birth, Child, ChildFailed
from accelopt_compile.evaluate.sandbox.surroundings import baselines_folder
from accelopt_compile.exchange.links import Known, Link, exchange_document, link_from, sizes_of
from accelopt_compile.exchange.schema import DTYPES, Definition, Instance
from accelopt_compile.records import Binding, Workload
from accelopt_compile.sites import Site, document

TRACE_S = 120.0
"""Seconds in which a reference has to be traced; a paged attention layer takes 4."""


class Untraceable(AccelOptError):
    """A reference of which no workload can be made; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Capture:
    """The reference as traced for some of the instances. `whole` is all of it as one region, or None because it is `cut`;
    `parts` are the regions that a partition makes of it, `refused` what no region holds, by reason."""

    whole: Link | None
    cut: str
    parts: tuple[Link, ...]
    refused: Mapping[str, int]
    instances: tuple[Instance, ...]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A definition with its captures. `walls` say what stood around the process that traced it."""

    definition: Definition
    captures: tuple[Capture, ...]
    walls: Mapping[str, str]

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(link for c in self.captures for link in (*([c.whole] if c.whole else []), *c.parts))

    def sites(self) -> list[Site]:
        """One site for each workload and binding: the whole with its parts, or the parts. Raises InvalidRecord."""
        found: dict[Any, Site] = {}
        for capture in self.captures:
            for instance in capture.instances:
                parts = [self._site(link, instance) for link in capture.parts]
                tops = parts if capture.whole is None else [self._site(capture.whole, instance, parts)]
                found |= {site.choice: site for site in tops}
        return list(found.values())

    def _site(self, link: Link, instance: Instance, parts: Sequence[Site] = ()) -> Site:
        binding: Binding = link.check(self.definition, instance.axes)
        others = tuple(part for part in parts if part.workload != link.workload)
        return Site(workload=link.workload, binding=binding, name=self.definition.name, count=1, cost=0.0, parts=others)

    def document(self) -> dict[str, Any]:
        """What the store keeps under `definition.digest`: the regions, as for a captured model, and how they fit."""
        refused: dict[str, int] = {}
        for capture in self.captures:
            refused |= capture.refused
        instances = tuple(one for capture in self.captures for one in capture.instances)
        known = Known(definition=self.definition, instances=instances, links=self.links)
        return {**document(self.sites(), refused), "exchange": exchange_document(known)}


def import_definition(definition: Definition, instances: Sequence[Instance], *, timeout_s: float = TRACE_S) -> Imported:
    """Trace the reference for every instance, as few times as its symbols allow. Raises Untraceable, InvalidRecord for a
    child that does not tell the truth, EvaluatorDied."""
    waiting, captures, walls = list(instances), [], {}
    while waiting:
        told, covered = _captured(definition, waiting, timeout_s)
        walls = told["walls"]
        captures.append(_capture(definition, told, covered))
        waiting = [one for one in waiting if one not in covered]
    return Imported(definition=definition, captures=tuple(captures), walls=walls)


def _captured(definition: Definition, waiting: Sequence[Instance], timeout_s: float) -> tuple[dict[str, Any], list[Instance]]:
    """A trace that holds for the first of them, and all for which it does."""
    first = waiting[0]
    alike = [one for one in waiting if one.scalars() == first.scalars()]
    others = [sizes_of(definition, one.axes) for one in alike]
    free = [f"s{k}" for k in range(len(definition.varying))]
    for sizes, symbols in ((_told_apart(others[0]), free), (others[0], [a for a in free if others[0][a] > 1]), (others[0], [])):
        told = _ask(definition, first, sizes, symbols, others, timeout_s)
        symbolic = {f"s{k}" for k in told["symbolic"]}
        told["fixed"] = {n: first.axes[n] for k, n in enumerate(definition.varying) if f"s{k}" not in symbolic}
        if told["holds"][0]:
            return told, [one for one, holds in zip(alike, told["holds"], strict=True) if holds]
    raise InvalidRecord(f"{definition.name}: what was traced at the sizes of {first.uuid} does not hold there")


def _told_apart(sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes from 2 on, no two of them equal: torch takes 0 and 1 for constants, and equal sizes for one size."""
    apart: dict[str, int] = {}
    for axis, size in sizes.items():
        size = max(2, size)
        while size in apart.values():
            size += 1
        apart[axis] = size
    return apart


def _ask(
    definition: Definition,
    instance: Instance,
    sizes: Mapping[str, int],
    free: Sequence[str],
    others: Sequence[Mapping[str, int]],
    timeout_s: float,
) -> dict[str, Any]:
    """The child's answer. Raises Untraceable."""
    scalars = instance.scalars()
    arguments = [
        {"value": scalars[name]} if tensor.shape is None else {"dtype": DTYPES[tensor.dtype], "shape": definition.dims(tensor)}
        for name, tensor in definition.inputs.items()
    ]
    request = {
        "op": "trace",
        "source": definition.reference,
        "arguments": arguments,
        "sizes": dict(sizes),
        "free": list(free),
        "others": [dict(one) for one in others],
    }
    with tempfile.TemporaryDirectory(prefix="accelopt-trace-") as scratch:
        limits = Limits()
        birth = Birth(role="tracer", scratch=scratch, limits=limits, inductor_cache=scratch)
        child = Child(birth, forkserver.shared(limits.start_s, baselines_folder()))
        try:
            told = child.request(request, timeout_s)
        except ChildFailed as failure:
            raise Untraceable(f"{definition.name}: tracing its reference: {failure.what}") from failure
        finally:
            child.close()
    why = told.get("refused") if isinstance(told.get("refused"), str) else told.get("error")
    if why is not None:
        raise Untraceable(f"{definition.name}: its reference cannot be traced: {str(why)[:400]}")
    return _checked(definition, told, len(others))


def _checked(definition: Definition, told: Mapping[str, Any], others: int) -> dict[str, Any]:
    """The answer with the types that it has to have. Raises InvalidRecord."""
    try:
        checked = {
            "whole": told["whole"],
            "cut": str(told["cut"])[:400],
            "regions": list(told["regions"]),
            "refused": {str(k)[:400]: int(v) for k, v in told["refused"].items()},
            "symbolic": [int(k) for k in told["symbolic"]],
            "holds": [bool(one) for one in told["holds"]],
            "walls": {str(k)[:40]: str(v)[:400] for k, v in told["walls"].items()},
        }
    except (KeyError, TypeError, ValueError, AttributeError) as failure:
        raise InvalidRecord(f"{definition.name}: no answer of a tracer: {type(failure).__name__} {failure}") from failure
    if len(checked["holds"]) != others:
        raise InvalidRecord(f"{definition.name}: {len(checked['holds'])} answers to {others} questions")
    return checked


def _capture(definition: Definition, told: Mapping[str, Any], covered: Sequence[Instance]) -> Capture:
    def link(data: Any) -> Link:
        names, results = list(definition.inputs), list(definition.outputs)
        try:
            named = {
                **data,
                "inputs": [None if k is None else names[k] for k in data["inputs"]],
                "outputs": [None if k is None else results[k] for k in data["outputs"]],
                "scalars": json.dumps(covered[0].scalars()),
                "fixed": told["fixed"],
            }
        except (KeyError, TypeError, IndexError) as failure:
            raise InvalidRecord(f"{definition.name}: not a region: {type(failure).__name__} {failure}") from failure
        found = link_from(named, definition)
        _check_operators(found.workload)
        for instance in covered:
            found.check(definition, instance.axes)
        return found

    whole = None if told["whole"] is None else link(told["whole"])
    cut = told["cut"]
    if whole is not None and not whole.whole(definition):
        cut = f"it gives {len(whole.outputs)} results; the definition has {len(definition.outputs)} outputs"
        whole = None
    return Capture(
        whole=whole,
        cut=cut,
        parts=tuple(link(region) for region in told["regions"]),
        refused=told["refused"],
        instances=tuple(covered),
    )


_MAKING = ("aten.full.default", "prims.iota.default", "aten.scalar_tensor.default", "aten.arange.start_step")
"""Operators that make a tensor of numbers alone."""


def _check_operators(workload: Workload) -> None:
    """Raises InvalidRecord for an operator that writes to its arguments, or makes a tensor from something else than tensors
    and numbers (a file, say): a traced graph has none, but the process that traced it may say anything."""
    for node in workload.nodes:
        schema = operator_of(node.op)._schema
        reads = any("Tensor" in str(argument.type) for argument in schema.arguments)
        if schema.is_mutable or not (reads or node.op in _MAKING):
            raise InvalidRecord(f"{node.op} is in the traced workload; a reference may only compute")
