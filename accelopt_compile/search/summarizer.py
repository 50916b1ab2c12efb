"""The summarizer: from a slow-fast pair to one lesson, or none."""

from __future__ import annotations

import difflib
import re
from itertools import islice

from accelopt_compile.llm.client import Reply
from accelopt_compile.llm.prompts import prompt
from accelopt_compile.records import Candidate, Experience
from accelopt_compile.search.describe import profile_lines
from accelopt_compile.search.proposer import TeachingPair
from accelopt_compile.search.task import SearchTask

NONE = "NO LESSON"
DIFF_LINES = 200
LESSON_AT_MOST = 2400
"""Characters of a lesson: 200 words were asked for, and a planner's prompt has room for few longer ones."""


def summarizer_prompt(task: SearchTask, pair: TeachingPair) -> tuple[str, str]:
    """(system, user) that ask for the lesson of a pair."""
    guide, slow, fast = task.backend.guide(), _shown(task, pair.slow), _shown(task, pair.fast)
    return prompt("summarizer").render(
        language=guide.language,
        fence=guide.fences[0],
        slow=slow,
        fast=fast,
        slow_profile="; ".join(profile_lines(task, pair.slow, None)),
        fast_profile="; ".join(profile_lines(task, pair.fast, None)),
        diff=_diff(slow, fast),
        speedup=f"{pair.speedup:.2f}",
        plan=pair.plan.text,
        estimated=pair.fast.verdict.timing.basis == "estimated",
        helped=pair.helped,
    )


def lesson_in(reply: Reply, task: SearchTask, pair: TeachingPair) -> Experience | None:
    """The experience that an answer makes of a pair; None for no lesson and for an unusable answer."""
    text = reply.text.strip()
    if reply.problem or not text or NONE in text.upper():
        return None
    title = re.search(r"\*\*(.+?)\*\*", text[:LESSON_AT_MOST])
    return Experience(
        backend=task.backend.name,
        family=task.family,
        arch=task.arch,
        workload=task.workload.digest,
        change={},
        helped=pair.helped,
        speedup=pair.speedup,
        title=title[1].strip()[:120] if title else "",
        lesson=text[:LESSON_AT_MOST],
        slow=pair.slow.source.text,
        fast=pair.fast.source.text,
    )


def _diff(slow: str, fast: str) -> str:
    lines = difflib.unified_diff(slow.splitlines(), fast.splitlines(), "slow", "fast", n=1, lineterm="")
    return "\n".join(islice(lines, DIFF_LINES))


def _shown(task: SearchTask, candidate: Candidate) -> str:
    return task.backend.shown(candidate.source, candidate.tunables).strip()
