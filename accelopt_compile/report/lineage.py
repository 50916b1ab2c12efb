"""Which kernel came from which: a tree of steps. A step is one plan on one parent carried out in one text; all settings of
its numbers that were tried are variants of the step, so that 500 candidates are some hundred steps."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from accelopt_compile.records import Accepted, Candidate, KernelSource, Rejected
from accelopt_compile.report.contents import Learned, Planned, RunFiles, Trial, Written
from accelopt_compile.search.state import experience_id

DIFF_LINES, WINNER_DIFF_LINES, REJECTED_DIFF_LINES = 80, 400, 40
"""Lines of a diff that are shown: of any step, of one on the way to the winner, of a rejected one."""

DIFFS_BYTES = 3 << 20
"""All diffs of a page together; beyond that they are left out, so that the page opens on a phone."""

_COMPARED_LINES = 2000
"""Longer texts are not compared: comparing takes time by the square."""

VARIANTS = 12
"""Variants of a step that are listed, the fastest."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """An accepted kernel of a step; `id` is None for one that no saved state has."""

    id: int | None
    tunables: Mapping[str, int]
    speedup: float


@dataclass(frozen=True, kw_only=True)
class Step:
    """A node of the tree. `depth` 0 is the seed. `close` levels end after it; `children` says whether one opens.
    `diff` holds unified diff lines against the parent's text, None where there is none to show (`no_diff` says why)."""

    parent: int | None
    plan: str
    origin: str
    variants: tuple[Variant, ...] = ()
    rejections: tuple[str, ...] = ()
    source: KernelSource
    depth: int = 0
    close: int = 0
    children: int = 0
    on_way: bool = False
    diff: tuple[str, ...] | None = None
    no_diff: str = ""
    used: tuple[str, ...] = ()
    made: tuple[str, ...] = ()

    @property
    def best(self) -> Variant | None:
        """The fastest variant."""
        return max(self.variants, key=lambda v: v.speedup, default=None)


@dataclass(kw_only=True)
class _Growing:
    parent: int | None
    plan: str
    source: KernelSource
    variants: list[Variant] = field(default_factory=list)
    rejections: list[str] = field(default_factory=list)


Shown = Callable[[KernelSource, Mapping[str, int]], str]
"""A kernel as an author reads it."""


def whole(source: KernelSource, tunables: Mapping[str, int]) -> str:
    """The text as it is built."""
    return source.text


_Key = tuple[int | None, str, str]


def steps_of(files: RunFiles, winner: int | None, shown: Shown = whole) -> tuple[Step, ...]:
    """The tree in order of drawing: each step before its children, those on the way to `winner` first, then the fast
    ones, then the rejected ones."""
    candidates = files.state.candidates if files.state is not None else ()
    grown = _grow(files, candidates)
    way = _way(candidates, winner)
    used, made = _lessons(files)
    sources = {c.id: c.source for c in candidates}
    below: dict[int | None, list[Step]] = {}
    for step in grown.values():
        ids = {v.id for v in step.variants}
        finished = Step(
            parent=step.parent,
            plan=step.plan,
            origin=step.source.origin,
            variants=tuple(sorted(step.variants, key=lambda v: -v.speedup)),
            rejections=tuple(dict.fromkeys(step.rejections)),
            source=step.source,
            on_way=bool(ids & way),
            used=tuple(dict.fromkeys(used.get((step.parent, step.plan), ()))),
            made=tuple(lesson for id in sorted(i for i in ids if i is not None) for lesson in made.get(id, ())),
        )
        below.setdefault(step.parent, []).append(finished)
    return tuple(_with_diffs(list(_ordered(below)), sources, shown))


def _grow(files: RunFiles, candidates: Sequence[Candidate]) -> dict[_Key, _Growing]:
    """Steps by (parent, plan, digest of the text)."""
    grown: dict[_Key, _Growing] = {}
    written = _written(files)

    def step(parent: int | None, plan: str, source: KernelSource) -> _Growing:
        return grown.setdefault((parent, plan, source.digest), _Growing(parent=parent, plan=plan, source=source))

    known = set()
    for c in candidates:
        known.add((c.source.digest, tuple(sorted(c.tunables.items()))))
        own = step(c.parent, "" if c.plan is None else c.plan.text, c.source)
        own.variants.append(Variant(id=c.id, tunables=c.tunables, speedup=c.verdict.timing.speedup))
    for event in files.events:
        if not isinstance(trial := event.what, Trial) or trial.effort != "quick" or trial.source not in written:
            continue
        if isinstance(trial.verdict, Rejected):
            reason = f"{trial.verdict.stage.value}: {trial.verdict.reason}"
            step(*written[trial.source]).rejections.append(reason)
        elif isinstance(trial.verdict, Accepted) and (trial.source, tuple(sorted(trial.tunables.items()))) not in known:
            late = Variant(id=None, tunables=trial.tunables, speedup=trial.verdict.timing.speedup)
            step(*written[trial.source]).variants.append(late)
    return grown


def _written(files: RunFiles) -> dict[str, tuple[int, str, KernelSource]]:
    """(parent, plan, source) of every text that a proposer wrote, by digest; the first writer of a text counts."""
    plans: dict[str, tuple[int, str]] = {}
    found: dict[str, tuple[int, str, KernelSource]] = {}
    for event in files.events:
        if isinstance(what := event.what, Planned):
            for place, plan in enumerate(what.plans):
                plans[f"{what.call}/{place}"] = (what.parent, plan.text)
        elif isinstance(what, Written):
            name = "/".join(what.call.split("/")[:3])  # a fix is named after the attempt it mends
            for source in what.sources:
                if isinstance(source, KernelSource) and name in plans:
                    found.setdefault(source.digest, (*plans[name], source))
    return found


def _way(candidates: Sequence[Candidate], winner: int | None) -> set[int | None]:
    """The winner and all it came from."""
    way: set[int | None] = set()
    while winner is not None and winner < len(candidates) and winner not in way:
        way.add(winner)
        winner = candidates[winner].parent
    return way


def _lessons(files: RunFiles) -> tuple[dict[tuple[int | None, str], list[str]], dict[int, list[str]]]:
    """Lessons that the planner was shown, by (parent, plan), and lessons drawn from a candidate, by its id."""
    state = files.state
    known = {experience_id(e): e.lesson for e in (*state.prior, *state.gained)} if state is not None else {}
    used: dict[tuple[int | None, str], list[str]] = {}
    made: dict[int, list[str]] = {}
    for event in files.events:
        if isinstance(what := event.what, Planned):
            for plan in what.plans:
                used.setdefault((what.parent, plan.text), []).extend(known[i] for i in what.recalled if i in known)
        elif isinstance(what, Learned):
            known.setdefault(experience_id(what.experience), what.experience.lesson)
            child = max((i for i in (what.slow, what.fast) if i is not None), default=None)
            if child is not None:
                made.setdefault(child, []).append(what.experience.lesson)
    return used, made


def _ordered(below: Mapping[int | None, list[Step]]) -> Iterator[Step]:
    """Depth first, without recursion: a search may be as deep as it has rounds."""
    waiting = [(0, step) for step in reversed(_ranked(below.get(None, [])))]
    while waiting:
        depth, step = waiting.pop()
        ids = [variant.id for variant in step.variants if variant.id is not None]
        under = _ranked([child for id in ids for child in below.get(id, ())])
        waiting += [(depth + 1, child) for child in reversed(under)]
        deeper = waiting[-1][0] if waiting else 0
        yield replace(step, depth=depth, children=len(under), close=0 if under else depth - deeper)


def _ranked(steps: Sequence[Step]) -> list[Step]:
    return sorted(steps, key=lambda s: (not s.on_way, -(s.best.speedup if s.best else 0.0), s.plan))


def _with_diffs(steps: Sequence[Step], sources: Mapping[int, KernelSource], shown: Shown) -> Iterator[Step]:
    """Steps with their diffs as far as the page has room, those on the way to the winner first."""
    room, made = DIFFS_BYTES, {}
    for place in sorted(range(len(steps)), key=lambda i: (not steps[i].on_way, not steps[i].variants)):
        step = steps[place]
        diff, why = _diff(step, sources, shown) if room > 0 else (None, "left out: this page is large enough")
        room -= sum(map(len, diff or ()))
        made[place] = replace(step, diff=diff, no_diff=why)
    yield from (made[place] for place in range(len(steps)))


def _diff(step: Step, sources: Mapping[int, KernelSource], shown: Shown) -> tuple[tuple[str, ...] | None, str]:
    if step.parent is None or step.parent not in sources:
        return None, ""
    parent = sources[step.parent]
    before, after = (shown(source, source.defaults()).splitlines() for source in (parent, step.source))
    if before == after:
        return None, "the same text; only its numbers differ"
    if max(len(before), len(after)) > _COMPARED_LINES:
        return None, f"{len(after)} lines, too many to compare"
    most = WINNER_DIFF_LINES if step.on_way else DIFF_LINES if step.variants else REJECTED_DIFF_LINES
    lines = list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]
    cut = [line[:300] for line in lines[:most]]
    return (*cut, *([f"@@ {len(lines) - most} more lines @@"] if len(lines) > most else [])), ""
