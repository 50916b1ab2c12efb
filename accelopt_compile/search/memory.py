"""What was learned: the lessons of this run, first in, first out, on top of those of earlier runs.

A run keeps at most `capacity` of its own lessons, as in AccelOpt. Earlier runs' experiences (`prior`, read from the
store) are never pushed out by it: they are ranked by how near their work is to the task's, and how much they gained.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from accelopt_compile.records import Candidate, Experience, KernelSource, Plan
from accelopt_compile.search.selection import BELIEVED, HELPED, relative, within_noise
from accelopt_compile.search.task import SearchTask
from accelopt_compile.wording import shortened, times_text

PRIOR_SHOWN = 64
"""Experiences of earlier runs that are recalled at most."""

_ANOTHER_ARCH = 0.5
_SAME_FAMILY = 0.8
_ANOTHER_FAMILY = 0.6
_UNRELATED = 1 / 6
"""Least share of `_ANOTHER_FAMILY`: one generator writes the kernels of all families, so what helped elsewhere is worth a
try once the nearer experiences have had theirs. Names share words where the element type or the half of a name is the
same: "softmax bf16" and "norm bf16", "norm" and "norm_backward"."""


class Memory:
    """The experiences that planners see. `prior` must be of the task's backend; other backends' are never recalled."""

    def __init__(self, *, prior: Sequence[Experience] = ()) -> None:
        self.prior = tuple(prior)
        self._recent: tuple[Experience, ...] = ()
        self._gained: tuple[Experience, ...] = ()

    @property
    def recent(self) -> tuple[Experience, ...]:
        """This run's experiences that are still remembered, oldest first."""
        return self._recent

    @property
    def gained(self) -> tuple[Experience, ...]:
        """All experiences of this run, the forgotten ones included: what the store keeps."""
        return self._gained

    def add(self, experiences: Sequence[Experience], *, capacity: int) -> None:
        """Remember, and forget the oldest beyond `capacity`."""
        self._gained += tuple(experiences)
        self._recent = (*self._recent, *experiences)[-capacity:] if capacity > 0 else ()

    def restore(self, *, prior: Sequence[Experience], recent: Sequence[Experience], gained: Sequence[Experience]) -> None:
        """Become what a saved run had, so that it goes on as it would have."""
        self.prior, self._recent, self._gained = tuple(prior), tuple(recent), tuple(gained)

    def recall(self, task: SearchTask) -> tuple[Experience, ...]:
        """What there is to plan by: this run's newest first, then earlier runs' by `promise`. `recall.shown` chooses from
        it for a prompt."""
        if not task.settings.use_prior:
            return self._recent[::-1]
        return (*self._recent[::-1], *most_promising(task, self.prior))


def most_promising(task: SearchTask, prior: Sequence[Experience]) -> tuple[Experience, ...]:
    """What the built-in proposer recalls of earlier runs, by `promise`, at most `PRIOR_SHOWN`; ties go to the first. All that
    such a search has to hold and to save: each experience has two kernels in it, and a store has thousands."""
    promises = [promise(task, e) for e in prior]
    ranked = sorted((i for i, weight in enumerate(promises) if weight > 0), key=lambda i: -promises[i])
    return tuple(prior[i] for i in ranked[:PRIOR_SHOWN])


def similarity(task: SearchTask, experience: Experience) -> float:
    """How much an experience says about the task, 0 to 1: the same workload, then the same family, then families that
    share words, then all others; another architecture halves it, another backend says nothing. Nor does an estimate where
    times are measured: what the model of a device favours reaches the device as a candidate, which is measured there, and a
    lesson that the model is wrong about would cost every later search its warm starts. The other way round measurements count
    in full: they are better evidence than the search's own."""
    if experience.backend != task.backend.name or (experience.basis == "estimated" and not task.settings.estimated):
        return 0.0
    if experience.workload == task.workload.digest:
        near = 1.0
    elif experience.family == task.family:
        near = _SAME_FAMILY
    else:
        near = _ANOTHER_FAMILY * max(_UNRELATED, _shared_words(experience.family, task.family))
    return near * (1.0 if experience.arch == task.arch else _ANOTHER_ARCH)


def related(task: SearchTask, experience: Experience) -> bool:
    """Whether it is of the task's workload or family, on whatever architecture."""
    return experience.workload == task.workload.digest or experience.family == task.family


def promise(task: SearchTask, experience: Experience) -> float:
    """Similarity times the logarithm of the speedup: what repeating (or avoiding) it here is expected to be worth. What gained
    more than `BELIEVED` is expected to be worth no more than that: on a busy machine stores filled with lessons of 7390x."""
    return similarity(task, experience) * math.log(min(max(experience.speedup, 1.0), BELIEVED))


@functools.lru_cache(maxsize=1024)  # there are few families and many experiences
def _shared_words(a: str, b: str) -> float:
    words_a, words_b = (set(re.findall(r"[a-z0-9]+", text.lower())) for text in (a, b))
    union = words_a | words_b
    return len(words_a & words_b) / len(union) if union else 0.0


# ---------------------------------------------------------------- whole configurations


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Structure and tunables that were the faster of a pair, and the evidence for them. `tunables` have the value that most
    speaks for, each by itself; `together` are those that were measured in one kernel."""

    structure: Mapping[str, str]
    tunables: Mapping[str, int]
    weight: float
    together: Mapping[str, int] = field(default_factory=dict)


def proven_configurations(task: SearchTask, experiences: Sequence[Experience]) -> tuple[Configuration, ...]:
    """Earlier winners' configurations, most promising first, each structure once with its most promising tunables.

    A structure is what the task's grammar can tell of it: a norm has choices that a softmax has not, and what they agree in
    is one structure there. Its weight adds up over workloads, so that one that won on many comes before one that won big once.
    """
    grammar = task.backend.grammar(task.workload)
    best: dict[tuple[tuple[str, str], ...], dict[str, tuple[float, Experience]]] = {}
    for experience in experiences:
        configured = by_template(experience) and (experience.structure or experience.tunables)
        if not experience.helped or not configured or (weight := promise(task, experience)) <= 0:
            continue
        if experience.structure and grammar.keys().isdisjoint(experience.structure):
            continue  # another generator's
        by_workload = best.setdefault(tuple(sorted(filled(grammar, experience.structure).items())), {})
        if weight > by_workload.get(experience.workload, (0.0, experience))[0]:
            by_workload[experience.workload] = (weight, experience)
    found = [
        Configuration(
            structure=dict(structure),
            tunables=_voted([(w, e.tunables) for w, e in by_workload.values()]),
            weight=sum(weight for weight, _ in by_workload.values()),
            together=_most_supported([(w, e.tunables) for w, e in by_workload.values()]),
        )
        for structure, by_workload in best.items()
    ]
    return tuple(sorted(found, key=lambda c: (-c.weight, sorted(c.structure.items()))))


def by_template(experience: Experience) -> bool:
    """Whether templates rendered both kernels, as far as is known. What a model or a person wrote is no configuration, also
    when its numbers have the names of ours."""
    return all(experience.origin.get(name, "seed") in ("seed", "mutation") for name in ("slow_by", "fast_by"))


def known_tunables(task: SearchTask, experiences: Sequence[Experience], source: KernelSource) -> list[dict[str, int]]:
    """Tunables that were good for kernels like `source`, most promising first, each valid for it and listed once.
    Kernels that share more of its structure count for more."""
    weights: dict[tuple[tuple[str, int], ...], dict[str, float]] = {}
    for experience in experiences:
        values = fitted(source, experience.tunables)
        taught = experience.helped and experience.tunables and by_template(experience)  # else the numbers are the slower one's
        if not taught or not task.backend.valid(source, values):
            continue
        weight = promise(task, experience) * agreement(experience.structure, source.structure) ** 2
        by_workload = weights.setdefault(tuple(sorted(values.items())), {})
        by_workload[experience.workload] = max(weight, by_workload.get(experience.workload, 0.0))
    ranked = sorted(((sum(each.values()), key) for key, each in weights.items()), key=lambda item: (-item[0], item[1]))
    return [dict(key) for weight, key in ranked if weight > 0]


def fitted(source: KernelSource, tunables: Mapping[str, int]) -> dict[str, int]:
    """`tunables` as far as `source` declares them, its own defaults for the rest."""
    return {
        name: tunables[name] if tunables.get(name) in allowed else allowed[0] for name, allowed in sorted(source.tunables.items())
    }


def filled(grammar: Mapping[str, tuple[str, ...]], structure: Mapping[str, str]) -> dict[str, str]:
    """All choices of the grammar as `structure` makes them, those it leaves out at their default."""
    return {name: structure.get(name, values[0]) for name, values in grammar.items()}


def agreement(a: Mapping[str, str], b: Mapping[str, str]) -> float:
    """Share of the structural choices which both make that they make alike: a choice that one workload does not have
    makes no difference to it. With none in common, 1 if neither has any, else one half."""
    names = a.keys() & b.keys()
    if not names:
        return 0.5 if a or b else 1.0
    return sum(a[name] == b[name] for name in names) / len(names)


def _voted(weighted: Sequence[tuple[float, Mapping[str, int]]]) -> dict[str, int]:
    """Each tunable at the value with the most weight behind it: whole combinations hardly ever agree, and in one of them stands
    what was drawn beside what helped."""
    votes: dict[str, dict[int, float]] = {}
    for weight, tunables in weighted:
        for name, value in tunables.items():
            for_name = votes.setdefault(name, {})
            for_name[value] = for_name.get(value, 0.0) + weight
    return {name: max(sorted(found), key=found.__getitem__) for name, found in sorted(votes.items())}


def _most_supported(weighted: Sequence[tuple[float, Mapping[str, int]]]) -> dict[str, int]:
    support: dict[tuple[tuple[str, int], ...], float] = {}
    for weight, tunables in weighted:
        key = tuple(sorted(tunables.items()))
        support[key] = support.get(key, 0.0) + weight
    return dict(max(sorted(support.items()), key=lambda item: item[1])[0])


# ---------------------------------------------------------------- whole searches, and where lessons are from


def winner_experience(task: SearchTask, seed: Candidate, best: Candidate) -> Experience | None:
    """The whole way from the seed to the best kernel as one experience, for warm starts; None when it gained nothing. A
    kernel that no template wrote is told of in words alone."""
    gain = relative(best, seed)
    if best.id == seed.id or not HELPED < gain <= BELIEVED or within_noise(seed, best):
        return None
    told = Experience(
        backend=task.backend.name,
        family=task.family,
        arch=task.arch,
        workload=task.workload.digest,
        change={},
        helped=True,
        speedup=gain,
        lesson="",
        slow=seed.source.text,
        fast=best.source.text,
    )
    times = times_text(gain, best.verdict.timing.basis)
    if not best.source.rendered:
        plan = shortened(best.plan.text if best.plan is not None else "none")
        lesson = f"Best of a search on {task.family}: the kernel written for plan '{plan}', {times} the seed."
        return replace(told, title=f"Best on {task.family}: {shortened(plan, 80)}", lesson=lesson)
    grammar = task.backend.grammar(task.workload)
    before, after = filled(grammar, seed.source.structure), filled(grammar, best.source.structure)
    change = {f"structure.{name}": value for name, value in after.items() if before[name] != value}
    choices = ", ".join(f"{name.partition('.')[2]}={value}" for name, value in change.items()) or "the seed's structure"
    numbers = ", ".join(f"{name}={value}" for name, value in best.tunables.items())
    configuration = f"{choices} with {numbers}" if numbers else choices
    lesson = f"Best of a search on {task.family}: {configuration}, {times} the seed."
    return replace(told, change=change, lesson=lesson, structure=after, tunables=dict(best.tunables))


def placed(lesson: Experience, *, slow: Candidate, fast: Candidate, plan: Plan | None, run: str, round: str) -> Experience:
    """The lesson with what the loop knows of where it is from; what its author said of himself stays."""
    facts = {
        "run": run,
        "round": round,
        "slow_candidate": str(slow.id),
        "fast_candidate": str(fast.id),
        "source": fast.source.digest,
        "slow_by": slow.source.origin,
        "fast_by": fast.source.origin,
    }
    told = {"plan": shortened(plan.text, 2000)} if plan is not None else {}
    return replace(lesson, basis=fast.verdict.timing.basis, origin={**lesson.origin, **told, **facts})
