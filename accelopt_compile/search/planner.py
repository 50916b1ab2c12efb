"""The planner: from a kernel and its profile to one-step plans."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from accelopt_compile.llm.client import Reply
from accelopt_compile.llm.prompts import front_matter, prompt
from accelopt_compile.records import Candidate, Experience, Plan
from accelopt_compile.search.describe import fitting, profile_lines, tried_lines, workload_text
from accelopt_compile.search.task import SearchTask

LESSON_TOKENS = 1200
"""What lessons may take of a planner's prompt: about 15 % of one (peers.md 2: more costs more search than it saves)."""

PLAN_AT_MOST = 4000
"""Characters of one plan: it goes into each of its executors' prompts."""


def planner_prompt(
    task: SearchTask, parent: Candidate, experiences: Sequence[Experience], count: int, rng: random.Random
) -> tuple[str, str]:
    """(system, user) that ask for `count` plans."""
    guide = task.backend.guide()
    return prompt("planner").render(
        language=guide.language,
        facts=front_matter("facts", guide.facts)[1].strip(),
        machine=guide.machine,
        lessons=fitting([e.lesson for e in experiences if e.lesson], LESSON_TOKENS),
        workload=workload_text(task),
        fence=guide.fences[0],
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
    texts = _strings(reply.text)
    if texts is None:
        texts = [] if reply.problem else [reply.text]
    return [Plan(text=text.strip()[:PLAN_AT_MOST]) for text in texts if text.strip()][:count]


def _strings(text: str) -> list[str] | None:
    """The strings of the first {"plans": [...]} in a text, or None."""
    decoder = json.JSONDecoder()
    for at, character in enumerate(text):
        if character != "{":
            continue
        try:
            data, _ = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict) and isinstance(data.get("plans"), list):
            return [plan for plan in data["plans"] if isinstance(plan, str)]
    return None
