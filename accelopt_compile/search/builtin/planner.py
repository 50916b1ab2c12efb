"""Plans from the mutation grammar: one structural choice changed a plan, those that experience speaks for first."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from accelopt_compile.records import Candidate, Experience, Plan
from accelopt_compile.search.memory import Configuration, agreement, by_template, filled, promise, proven_configurations
from accelopt_compile.search.task import SearchTask

_REJECTED = -1.0
"""What a choice is worth whose last plan was rejected: less than any change that merely hurt."""

_VOTE = 0.5
"""What a proven configuration that contains a choice says for it, against an experience with just that change."""

Change = tuple[str, str]
"""A structural choice and its new value."""


def plan_steps(
    task: SearchTask, parent: Candidate, experiences: Sequence[Experience], count: int, rng: random.Random
) -> list[Plan]:
    """Up to `count` changes of one choice of `parent`'s structure that lead to a structure not tried in this run.

    Changes with evidence for them come first, by its weight; then those without any, the choices taking turns in a
    random order; then those with evidence against them. Tunables that were good for the new structure ride along.
    """
    grammar = task.backend.grammar(task.workload)
    structure = filled(grammar, parent.source.structure)
    tried = {_key(filled(grammar, t.structure)) for t in task.tried}
    new = [change for change in _turns(grammar, structure, rng) if _key({**structure, change[0]: change[1]}) not in tried]
    proven = proven_configurations(task, experiences)
    worth = {change: _worth(task, structure, change, experiences, proven) for change in new}
    ranked = sorted(new, key=lambda change: -worth[change])  # stable: those without evidence keep their turns
    return [_plan(structure, change, proven) for change in ranked[:count]]


def _turns(grammar: Mapping[str, tuple[str, ...]], structure: Mapping[str, str], rng: random.Random) -> list[Change]:
    """All changes of one choice; each choice gives one value a turn, in random order."""
    columns = []
    for name, values in grammar.items():
        others = [value for value in values if value != structure[name]]
        rng.shuffle(others)
        columns.append([(name, value) for value in others])
    rng.shuffle(columns)
    depth = max((len(column) for column in columns), default=0)
    return [column[turn] for turn in range(depth) for column in columns if turn < len(column)]


def _worth(
    task: SearchTask,
    structure: Mapping[str, str],
    change: Change,
    experiences: Sequence[Experience],
    proven: Sequence[Configuration],
) -> float:
    """Evidence for a change, as a logarithm of speedup: from this run's plans and from remembered experiences."""
    name, value = change
    worth = 0.0
    for tried in task.tried:
        if tried.plan.change.get(f"structure.{name}") == value:
            worth += (_REJECTED if tried.relative is None else math.log(tried.relative)) / len(tried.plan.change)
    for experience in experiences:
        direct = by_template(experience) and experience.change.get(f"structure.{name}") == value
        if direct:
            near = 0.5 + 0.5 * agreement(experience.structure, structure)
            worth += (1 if experience.helped else -1) * promise(task, experience) * near / len(experience.change)
    for configuration in proven:
        if configuration.structure[name] == value:
            worth += _VOTE * configuration.weight / len(configuration.structure)
        elif configuration.structure[name] == structure[name]:
            worth -= _VOTE * configuration.weight / len(configuration.structure)
    return worth


def _plan(structure: Mapping[str, str], change: Change, proven: Sequence[Configuration]) -> Plan:
    name, value = change
    text = f"Set {name} to {value} (now {structure[name]})."
    numbers = _numbers({**structure, name: value}, proven)
    if numbers:
        text += " Start from " + ", ".join(f"{key}={number}" for key, number in numbers.items()) + "."
    return Plan(text=text, change={f"structure.{name}": value, **{f"tunable.{k}": str(v) for k, v in numbers.items()}})


def _numbers(structure: Mapping[str, str], proven: Sequence[Configuration]) -> dict[str, int]:
    """The tunables of the most promising configuration with this structure; empty when there is none."""
    for configuration in proven:
        if _key(configuration.structure) == _key(structure):
            return dict(sorted(configuration.tunables.items()))
    return {}


def _key(structure: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(structure.items()))
