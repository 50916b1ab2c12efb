"""The planner: from a kernel and its profile to one-step plans."""

from __future__ import annotations

import random
from collections.abc import Sequence

from accelopt_compile.llm.client import Reply
from accelopt_compile.llm.extract import json_object
from accelopt_compile.llm.prompts import prompt
from accelopt_compile.records import Candidate, Experience, Plan
from accelopt_compile.search.describe import common, profile_lines, tried_lines
from accelopt_compile.search.task import SearchTask

PLAN_AT_MOST = 4000
"""Characters of one plan: it goes into each of its executors' prompts."""


def planner_prompt(
    task: SearchTask, parent: Candidate, experiences: Sequence[Experience], count: int, rng: random.Random
) -> tuple[str, str]:
    """(system, user) that ask for `count` plans."""
    return prompt("planner").render(
        lessons=[_told(e) for e in experiences if e.lesson],
        **common(task),
        kernel=task.backend.shown(parent.source, parent.tunables).strip(),
        profile=profile_lines(task, parent, rng),
        tried=tried_lines(task, parent) if task.settings.selection != "paper" else [],
        count=count,
    )


def plans_in(reply: Reply, count: int) -> list[Plan]:
    """The plans of an answer: the strings of its JSON; an answer without JSON is one plan as it stands. None where the
    endpoint gave no usable text."""
    if reply.problem not in ("", "truncated") or not reply.text.strip():
        return []
    found = json_object(reply.text)
    strings = found.get("plans") if isinstance(found, dict) else None
    if isinstance(strings, list):
        texts = [plan for plan in strings if isinstance(plan, str)]
    else:
        texts = [] if reply.problem else [reply.text]
    return [Plan(text=text.strip()[:PLAN_AT_MOST]) for text in texts if text.strip()][:count]


def _told(experience: Experience) -> str:
    """A lesson as a prompt shows it: beside measured ones, an estimated one says what it is."""
    estimated = experience.basis == "estimated"
    return experience.lesson + (" (Estimated by a model of the device, not measured.)" if estimated else "")
