"""Which trials a kernel must stand: inputs, sizes, calls, alignments, threads. Pure functions of a workload."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from accelopt_compile.evaluate.answers import Case
from accelopt_compile.evaluate.buffers import Fence
from accelopt_compile.evaluate.families import BY_ROWS, applies
from accelopt_compile.evaluate.inputs import FAMILIES, QUICK_FAMILIES, SMALL, bindings_to_try
from accelopt_compile.evaluate.roles import roles
from accelopt_compile.records import Workload

CALLS = {"quick": 5, "full": 20}
LARGE_CALLS = {"quick": 3, "full": 8}
PROBES = {"quick": 6, "full": 10}
MANY_ELEMENTS = 1 << 18
"""Above this many elements a case gets fewer probes, calls and families: each costs tens of milliseconds."""
LARGE_ELEMENTS = 1 << 20
HUGE_ELEMENTS = 1 << 23
HUGE_FAMILIES = (
    "normal", "replayed", "large", "offset", "small_ints", "constant_columns", "logits", "nonfinite", "mid_exponents",
)  # fmt: skip
"""Where no size is free and there are so many elements (a model's last layer), a case takes seconds: only these are tried."""
OTHER_ELEMENTS = 1 << 20
ROWS_ELEMENTS = 1 << 13
"""Families whose rows are draws of their own get more rows, up to so many elements."""
FEW_ELEMENTS = 1 << 10
"""Small sizes with no more elements than these (a parameter's update, 13 numbers) would be tails alone: no family would ever meet
the loop over whole vectors, nor an aligned load in it."""
DRAWN_ELEMENTS = 1 << 17
"""Sizes beside the target's are tried up to so many elements, halved where they have more."""


FENCES: tuple[Fence, ...] = ("end", "begin")
Outside = Literal["", "above", "below"]
OUTSIDE: tuple[Outside, ...] = ("above", "below")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A case to run `calls` times, all to the same bits: with inputs `shift` elements off alignment, or with each tensor
    against memory that the kernel cannot touch (`fence`), inputs not writable. `outside` puts one index above or below what it
    indexes, in the input of that `index` among those that do: the kernel must decline, as eager raises."""

    case: Case
    calls: int
    probes: int
    threads: int
    shift: int = 0
    fence: Fence = ""
    outside: Outside = ""
    index: int = 0

    def __str__(self) -> str:
        return f"{self.case}{self.circumstances}"

    @property
    def circumstances(self) -> str:
        off = ", inputs one element off alignment" if self.shift else ""
        fenced = f", nothing else in reach at the {self.fence} of a tensor" if self.fence else ""
        return off + fenced + (f", one index {self.outside} its table" if self.outside else "")


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


def little(workload: Workload, binding: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The sizes at which every family is tried: small ones, or more where these are a few elements."""
    cut = small(binding)
    return cut if elements(workload, dict(cut)) > FEW_ELEMENTS else shrunk(workload, binding, ROWS_ELEMENTS)


def target(workload: Workload, binding: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The binding, or where that is large one like it with fewer rows: the golden answer costs seconds there, and
    what is timed at the real binding is judged too."""
    return shrunk(workload, binding, LARGE_ELEMENTS)


def shrunk(workload: Workload, binding: Mapping[str, int], most: int) -> tuple[tuple[str, int], ...]:
    """`binding` with its largest sizes halved until all tensors have at most `most` elements, or sizes are small."""
    cut = dict(binding)
    while elements(workload, cut) > most and (name := max(cut, key=lambda n: cut[n], default="")):
        if cut[name] <= SMALL:
            break
        cut[name] = cut[name] // 2 + 1
    return tuple(sorted(cut.items()))


def drawn(workload: Workload, binding: Mapping[str, int], seeds: Sequence[int]) -> list[tuple[tuple[str, int], ...]]:
    """Sizes that nobody knows beforehand, up to four times the target's (a record serves so far): one set a seed, all sizes
    of the first between two and four times."""
    found = []
    for number, seed in enumerate(seeds):
        generator = random.Random(seed)
        least = {name: 1 if number else 2 * binding[name] + 1 for name in workload.symbols}
        sizes = {name: generator.randint(least[name], max(4 * binding[name] - 1, 64, least[name])) for name in workload.symbols}
        found.append(shrunk(workload, sizes, DRAWN_ELEMENTS))
    return found if workload.symbols else []


def cases(workload: Workload, binding: Mapping[str, int], effort: str, seeds: Sequence[int]) -> list[Case]:
    """Quick: a few families at a small size (where sizes are free) and the target. Full: every family there (a few where even
    that is huge), several at the target, and other sizes."""
    at, few = target(workload, binding), little(workload, binding)
    large = elements(workload, binding) > LARGE_ELEMENTS
    if effort == "quick":
        families = QUICK_FAMILIES[:2] if few == at and large else QUICK_FAMILIES
        found = [Case(few, family, seeds[k % len(seeds)]) for k, family in enumerate(families)]
        return found if few == at else [Case(at, "normal", seeds[-1]), *found]
    # "normal" and "replayed" share their seed: the same memory, the same ends, another middle.
    kinds = {role.kind for role in roles(workload, dict(few))}
    huge = elements(workload, dict(few)) > HUGE_ELEMENTS
    tried = [
        f for f in (HUGE_FAMILIES if huge else FAMILIES) if applies(workload, f, indexed="index" in kinds, counted="int" in kinds)
    ]
    found = [Case(few, family, seeds[0 if k < 2 else k % len(seeds)]) for k, family in enumerate(tried)]
    rows = shrunk(workload, binding, ROWS_ELEMENTS)
    if rows != few:
        found += [Case(rows, family, seeds[k % len(seeds)]) for k, family in enumerate(tried) if family in BY_ROWS]
    if few != at:
        at_target = ("normal", "logits") if large else ("normal", "logits", "nonfinite")
        found = [Case(at, family, seeds[k % len(seeds)]) for k, family in enumerate(at_target)] + found
    others = [shrunk(workload, other, OTHER_ELEMENTS) for other in bindings_to_try(workload, binding)]
    for key in dict.fromkeys([*others, *drawn(workload, binding, seeds[:2])]):
        if elements(workload, dict(key)) <= OTHER_ELEMENTS and key != few:
            many = elements(workload, dict(key)) > MANY_ELEMENTS
            found += [Case(key, family, seeds[0]) for family in (("normal",) if many else ("normal", "offset"))]
    return found


def trials(workload: Workload, binding: Mapping[str, int], effort: str, seeds: Sequence[int], threads: int) -> list[Trial]:
    """The trials in order. At full effort: inputs off alignment, tensors between fences, an index outside, other thread
    counts, and the first case once more at the end, for a kernel that remembers."""
    found: list[Trial] = []
    met: set[tuple[tuple[str, int], ...]] = set()
    for case in cases(workload, binding, effort, seeds):
        many = elements(workload, dict(case.binding)) > MANY_ELEMENTS
        calls = 2 if case.binding in met else (LARGE_CALLS if many else CALLS)[effort]
        probes = PROBES["quick" if many else effort]
        found.append(Trial(case=case, calls=calls, probes=probes, threads=threads))
        met.add(case.binding)
    if effort == "full":
        few = little(workload, binding)
        first = next((t for t in found if t.case.binding == few and t.case.family == "normal"), found[0])
        found.append(replace(first, shift=1, calls=2))
        found += [replace(first, fence=fence, calls=2) for fence in FENCES]
        for index in range(sum(role.kind == "index" for role in roles(workload, dict(few)))):
            found += [replace(first, outside=side, index=index, calls=1) for side in OUTSIDE]
        counts = {1, 2, 2 * threads + 1, random.Random(seeds[-1]).randint(2, 16)} - {threads}
        rows = [first, found[0], next((t for t in reversed(found) if not (t.shift or t.fence or t.outside)), found[0])]
        found += [replace(trial, threads=count, calls=1) for count in sorted(counts) for trial in dict.fromkeys(rows)]
        found.append(replace(found[0], calls=2))
    return found


def on_device(found: Sequence[Trial]) -> list[Trial]:
    """The trials for a device: the host's threads make no difference there, and a refused index, which stops the device for
    its process, comes last, and once."""
    kept = [t for t in found if t.threads == found[0].threads]
    return [*(t for t in kept if not t.outside), *(t for t in kept if t.outside == "above")]
