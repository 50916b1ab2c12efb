"""Sources from templates: the parent's structure with the plan's change, at several starting points for the numbers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from accelopt_compile.records import Candidate, KernelSource, Plan
from accelopt_compile.search.memory import fitted
from accelopt_compile.search.proposer import NoSource
from accelopt_compile.search.task import SearchTask

_DRAWS = 16


def render_attempts(
    task: SearchTask, parent: Candidate, plan: Plan, count: int, rng: random.Random
) -> list[KernelSource | NoSource]:
    """Up to `count` sources of one text that differ in their declared defaults: the parent's numbers where those were searched,
    and what the plan names for the others; the numbers the plan names; the parent's; the template's own; then random ones.
    What was measured here says more than what was good elsewhere. All are valid and distinct; at least one is given."""
    change = {name.removeprefix("structure."): v for name, v in plan.change.items() if name.startswith("structure.")}
    numbers = {name.removeprefix("tunable."): int(v) for name, v in plan.change.items() if name.startswith("tunable.")}
    try:
        source = task.backend.render(task.workload, {**parent.source.structure, **change})
    except ValueError as failure:
        return [NoSource(reason=str(failure))]
    searched = dict(parent.tunables) != task.backend.render(task.workload, parent.source.structure).defaults()
    wanted: list[Mapping[str, int]] = [{**numbers, **parent.tunables}] if searched else []
    wanted += [numbers] if numbers else []
    wanted += [parent.tunables, source.defaults()]
    wanted += [{name: rng.choice(values) for name, values in sorted(source.tunables.items())} for _ in range(_DRAWS)]
    starts = [fitted(source, tunables) for tunables in wanted]
    distinct = {tuple(sorted(start.items())): start for start in starts if task.backend.valid(source, start)}
    return [with_defaults(source, start) for start in list(distinct.values())[:count]] or [source]


def with_defaults(source: KernelSource, defaults: Mapping[str, int]) -> KernelSource:
    """The source with these defaults declared: each goes to the front of its tunable's values."""
    moved = {
        name: (defaults[name], *(value for value in values if value != defaults[name]))
        for name, values in source.tunables.items()
    }
    return replace(source, tunables=moved, origin="mutation")
