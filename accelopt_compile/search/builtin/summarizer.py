"""Lessons without a language model: which change helped, or hurt, where, and by how much."""

from __future__ import annotations

from accelopt_compile.records import Candidate, Experience
from accelopt_compile.search.proposer import TeachingPair
from accelopt_compile.search.task import SearchTask


def lesson_of(task: SearchTask, pair: TeachingPair) -> Experience | None:
    """What lies between the two kernels, as an experience; None when they differ in nothing that has a name.

    `change` is the change that the plan made (for one that hurt: the change to undo); `structure` and `tunables` are
    the faster kernel's.
    """
    before, after = (pair.slow, pair.fast) if pair.helped else (pair.fast, pair.slow)
    change = _difference(before, after)
    if not change:
        return None
    return Experience(
        backend=task.backend.name,
        family=task.family,
        arch=task.arch,
        workload=task.workload.digest,
        change=change,
        helped=pair.helped,
        speedup=pair.speedup,
        lesson=_sentence(task, before, change, pair),
        slow=pair.slow.source.text,
        fast=pair.fast.source.text,
        structure=dict(pair.fast.source.structure),
        tunables=dict(pair.fast.tunables),
    )


def _difference(before: Candidate, after: Candidate) -> dict[str, str]:
    """The structural choices that differ, or, when none does, the tunables that do."""
    old, new = before.source.structure, after.source.structure
    structure = {f"structure.{name}": value for name, value in sorted(new.items()) if old.get(name) != value}
    numbers = {
        f"tunable.{name}": str(value) for name, value in sorted(after.tunables.items()) if before.tunables.get(name) != value
    }
    return structure or numbers


def _sentence(task: SearchTask, before: Candidate, change: dict[str, str], pair: TeachingPair) -> str:
    steps = []
    for name, value in change.items():
        kind, _, short = name.partition(".")
        old = before.source.structure.get(short) if kind == "structure" else before.tunables.get(short)
        steps.append(f"{short} from {'unset' if old is None else old} to {value}")
    effect = f"made it {pair.speedup:.2f}x faster" if pair.helped else f"made it {pair.speedup:.2f}x slower: do not"
    return f"On {task.family} ({task.arch}), {' and '.join(steps)} {effect}."
