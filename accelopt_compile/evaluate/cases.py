"""Which trials a kernel must stand: inputs, sizes, calls, alignments, threads. Pure functions of a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from accelopt_compile.evaluate.answers import Case
from accelopt_compile.evaluate.inputs import FAMILIES, QUICK_FAMILIES, SMALL, bindings_to_try
from accelopt_compile.records import Workload

CALLS = {"quick": 5, "full": 20}
LARGE_CALLS = {"quick": 3, "full": 8}
PROBES = {"quick": 6, "full": 10}
MANY_ELEMENTS = 1 << 18
"""Above this many elements a case gets fewer probes, calls and families: each costs tens of milliseconds."""
LARGE_ELEMENTS = 1 << 20
OTHER_ELEMENTS = 1 << 20
"""Sizes beside the target's are tried up to so many elements."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A case to run `calls` times, all to the same bits, with inputs `shift` elements off alignment."""

    case: Case
    calls: int
    probes: int
    threads: int
    shift: int = 0

    def __str__(self) -> str:
        off = ", inputs one element off alignment" if self.shift else ""
        return f"{self.case}{off}"


def elements(workload: Workload, binding: Mapping[str, int]) -> int:
    """Elements of all inputs and outputs."""
    total = 0
    for spec in (*workload.inputs, *workload.output_specs):
        count = 1
        for n in workload.bound_shape(spec, binding):
            count *= n
        total += count
    return total


def small(binding: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted({n: min(v, SMALL) for n, v in binding.items()}.items()))


def target(workload: Workload, binding: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The binding, or where that is large one like it with fewer rows: the golden answer costs seconds there, and
    what is timed at the real binding is judged too."""
    cut = dict(binding)
    while elements(workload, cut) > LARGE_ELEMENTS and (name := max(cut, key=lambda n: cut[n], default="")):
        if cut[name] <= SMALL:
            break
        cut[name] = cut[name] // 2 + 1
    return tuple(sorted(cut.items()))


def cases(workload: Workload, binding: Mapping[str, int], effort: str, seeds: Sequence[int]) -> list[Case]:
    """Quick: a few families at a small size (where sizes are free) and the target. Full: every family there, several at
    the target, and other sizes."""
    at, little = target(workload, binding), small(binding)
    large = elements(workload, binding) > LARGE_ELEMENTS
    if effort == "quick":
        families = QUICK_FAMILIES[:2] if little == at and large else QUICK_FAMILIES
        found = [Case(little, family, seeds[k % len(seeds)]) for k, family in enumerate(families)]
        return found if little == at else [Case(at, "normal", seeds[-1]), *found]
    found = [Case(little, family, seeds[k % len(seeds)]) for k, family in enumerate(FAMILIES)]
    if little != at:
        at_target = ("normal", "logits") if large else ("normal", "logits", "nonfinite")
        found = [Case(at, family, seeds[k % len(seeds)]) for k, family in enumerate(at_target)] + found
    for other in bindings_to_try(workload, binding):
        key = tuple(sorted(other.items()))
        if elements(workload, other) <= OTHER_ELEMENTS and key != little:
            many = elements(workload, other) > MANY_ELEMENTS
            found += [Case(key, family, seeds[0]) for family in (("normal",) if many else ("normal", "offset"))]
    return found


def trials(workload: Workload, binding: Mapping[str, int], effort: str, seeds: Sequence[int], threads: int) -> list[Trial]:
    """The trials in order. At full effort: inputs off alignment, other thread counts, and the first case once more at
    the end, for a kernel that remembers."""
    found: list[Trial] = []
    met: set[tuple[tuple[str, int], ...]] = set()
    for case in cases(workload, binding, effort, seeds):
        many = elements(workload, dict(case.binding)) > MANY_ELEMENTS
        calls = 2 if case.binding in met else (LARGE_CALLS if many else CALLS)[effort]
        probes = PROBES["quick" if many else effort]
        found.append(Trial(case=case, calls=calls, probes=probes, threads=threads))
        met.add(case.binding)
    if effort == "full":
        little = next((t for t in found if t.case.binding == small(binding) and t.case.family == "normal"), found[0])
        found.append(replace(little, shift=1, calls=2))
        found += [replace(little, threads=count, calls=2) for count in sorted({1, 2 * threads + 1} - {threads})]
        found.append(replace(found[0], calls=2))
    return found
