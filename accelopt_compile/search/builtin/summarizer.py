"""Lessons without a language model: which change helped, or hurt, where, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from accelopt_compile.records import Candidate, Experience
from accelopt_compile.search.memory import filled
from accelopt_compile.search.proposer import TeachingPair
from accelopt_compile.search.selection import within_noise
from accelopt_compile.search.task import SearchTask
from accelopt_compile.wording import shortened, times_text


def lesson_of(task: SearchTask, pair: TeachingPair) -> Experience | None:
    """What lies between the two kernels, as an experience; None when they differ in nothing that has a name, or by no more than
    the noise of their timings. (A language model is told of noise, and may see more in a pair than its speeds.)

    `change` is the change that the plan made (for one that hurt: the change to undo); `structure` and `tunables` are
    the faster kernel's. A pair with a kernel that no template wrote is told of by its plan, in words alone.
    """
    if within_noise(pair.slow, pair.fast):
        return None
    if not (pair.slow.source.rendered and pair.fast.source.rendered):
        plan = f"the plan '{shortened(pair.plan.text)}'"
        return _experience(task, pair, f"On {task.family} ({task.arch}), {plan} {_effect(pair)}.")
    plan_from, plan_to = (pair.slow, pair.fast) if pair.helped else (pair.fast, pair.slow)
    before, after = _choices(task, plan_from), _choices(task, plan_to)
    steps = {name: (before[name], value) for name, value in after.items() if name in before and before[name] != value}
    if any(name.startswith("structure.") for name in steps):  # numbers that moved along are not the lesson then
        steps = {name: step for name, step in steps.items() if name.startswith("structure.")}
    if not steps:
        return None
    return replace(
        _experience(task, pair, _sentence(task, steps, pair)),
        change={name: value for name, (_, value) in steps.items()},
        structure=filled(task.backend.grammar(task.workload), pair.fast.source.structure),
        tunables=dict(pair.fast.tunables),
    )


def _experience(task: SearchTask, pair: TeachingPair, lesson: str) -> Experience:
    return Experience(
        backend=task.backend.name,
        family=task.family,
        arch=task.arch,
        workload=task.workload.digest,
        change={},
        helped=pair.helped,
        speedup=pair.speedup,
        lesson=lesson,
        slow=pair.slow.source.text,
        fast=pair.fast.source.text,
        origin={"proposer": "builtin"},
    )


def _choices(task: SearchTask, candidate: Candidate) -> dict[str, str]:
    """What can differ between two kernels, by the names that a plan's change uses."""
    structure = filled(task.backend.grammar(task.workload), candidate.source.structure)
    named = {f"structure.{name}": value for name, value in structure.items()}
    return named | {f"tunable.{name}": str(value) for name, value in sorted(candidate.tunables.items())}


def _sentence(task: SearchTask, steps: Mapping[str, tuple[str, str]], pair: TeachingPair) -> str:
    told = " and ".join(f"{name.partition('.')[2]} from {old} to {new}" for name, (old, new) in steps.items())
    return f"On {task.family} ({task.arch}), {told} {_effect(pair)}."


def _effect(pair: TeachingPair) -> str:
    estimated = pair.fast.verdict.timing.basis == "estimated"
    times = f"{'an estimated ' if estimated else ''}{times_text(pair.speedup)}"
    return f"made it {times} faster" if pair.helped else f"made it {times} slower: do not"
