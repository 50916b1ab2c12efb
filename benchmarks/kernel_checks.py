"""What a check of seed kernels asks for and what it found: structures, choices of tunables, counts. Pure functions."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

MOST_STRUCTURES = 24
"""A grammar with more combinations is walked one change at a time."""

Outcome = Literal["ok", "refused", "failed"]
"""refused: the backend said no beforehand, with a reason; failed: it said yes and was wrong."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One unit of work: all choices of one structure built for one target, or one structure verified."""

    workload: str
    family: str
    dtype: str
    structure: str
    stage: str
    outcome: Outcome
    reason: str = ""
    builds: int = 0
    shared: int = 0
    seconds: float = 0.0
    faults: tuple[str, ...] = field(default_factory=tuple)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.workload, self.structure, self.stage

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Finding:
        return Finding(**{**data, "faults": tuple(data["faults"])})


def structures(grammar: Mapping[str, Sequence[str]], most: int = MOST_STRUCTURES) -> list[dict[str, str]]:
    """Every combination of a small grammar, the default first; of a large one the default and every single change of it.

    >>> structures({"a": ("x", "y"), "b": ("1",)})
    [{}, {'a': 'y'}]
    """
    if math.prod(len(values) for values in grammar.values()) <= most:
        combined = itertools.product(*(grammar.values()))
        return [_changes(grammar, dict(zip(grammar, values, strict=True))) for values in combined]
    return [{}, *({name: value} for name, values in grammar.items() for value in values[1:])]


def _changes(grammar: Mapping[str, Sequence[str]], chosen: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in chosen.items() if value != grammar[name][0]}


def spelled(structure: Mapping[str, str]) -> str:
    """ "default", or "order=split,rows=one"."""
    return ",".join(f"{name}={value}" for name, value in sorted(structure.items())) or "default"


def choices(
    tunables: Mapping[str, Sequence[int]], valid: Callable[[Mapping[str, int]], bool], *, count: int, seed: str
) -> list[dict[str, int]]:
    """The declared defaults, then up to `count` other valid combinations, drawn without repetition; the same for one seed."""
    default = {name: values[0] for name, values in tunables.items()}
    generator = random.Random(seed)
    if math.prod(len(values) for values in tunables.values()) <= 4096:
        drawn: Iterable[tuple[int, ...]] = itertools.product(*tunables.values())
        drawn = generator.sample(every := list(drawn), len(every))
    else:
        drawn = (tuple(generator.choice(values) for values in tunables.values()) for _ in range(50 * count))
    found = {tuple(default.values()): default}
    for values in drawn:
        if len(found) > count:
            break
        chosen = dict(zip(tunables, values, strict=True))
        if values not in found and valid(chosen):
            found[values] = chosen
    return list(found.values())


def summary(findings: Sequence[Finding]) -> dict[str, Any]:
    """Counts by family and stage, refusals and failures by reason, builds in all. Plain JSON."""
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for one in findings:
        counts[one.family][one.stage][one.outcome] += 1
    return {
        "workloads": len({one.workload for one in findings}),
        "by_dtype": dict(Counter(dtype for _, dtype in {(one.workload, one.dtype) for one in findings})),
        "families": {f: {s: dict(c) for s, c in stages.items()} for f, stages in sorted(counts.items())},
        "builds": sum(one.builds for one in findings),
        "builds_shared": sum(one.shared for one in findings),
        "refused": dict(Counter(f"{one.family}: {one.reason}" for one in findings if one.outcome == "refused").most_common()),
        "failed": [one.to_json() for one in findings if one.outcome == "failed"],
        "ok": sum(one.outcome == "ok" for one in findings),
    }


def table(found: Mapping[str, Any], stages: Sequence[str]) -> str:
    """The counts as text: ok / refused / failed of each family and stage, then why."""
    lines = [f"{'family':16}" + "".join(f"{stage:>22}" for stage in stages)]
    for family, counted in found["families"].items():
        cells = [counted.get(stage, {}) for stage in stages]
        texts = [f"{c.get('ok', 0)} / {c.get('refused', 0)} / {c.get('failed', 0)}" if c else "" for c in cells]
        lines.append(f"{family:16}" + "".join(f"{text:>22}" for text in texts))
    lines.append(f"each cell: ok / refused / failed; {found['workloads']} workloads, {found['builds']} builds")
    lines += [f"refused {n:4} x {reason}" for reason, n in found["refused"].items()]
    for one in found["failed"]:
        lines.append(f"FAILED {one['workload']} {one['structure']} {one['stage']}: {one['reason'][:200]}")
    return "\n".join(lines)
