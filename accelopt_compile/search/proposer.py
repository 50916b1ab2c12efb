"""What gives plans and sources to the loop: the LLM agents, or the built-in proposer. Same protocol for both."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from accelopt_compile.records import Candidate, Experience, KernelSource, Plan, Rejected
from accelopt_compile.search.task import SearchTask


@dataclass(frozen=True, kw_only=True)
class NoSource:
    """An attempt that gave no kernel, and why (an answer without a code block, a choice outside the grammar)."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class TeachingPair:
    """A slow and a fast kernel between which one plan lies. `speedup` > 1 is the fast over the slow one's speed.
    `helped`: the plan led from slow to fast; otherwise it led from fast to slow, and is what to undo."""

    slow: Candidate
    fast: Candidate
    plan: Plan
    helped: bool
    speedup: float


class Proposer(Protocol):
    """Four roles. Every method is a function of its arguments: `rng` is the only source of chance, and a proposer
    that talks to a service is recorded by the loop, so that a resumed run does not ask again.

    No method raises for a bad answer; network failures that retries did not cure are AccelOptErrors.
    """

    def plan(
        self, task: SearchTask, parent: Candidate, experiences: Sequence[Experience], count: int, rng: random.Random
    ) -> Sequence[Plan]:
        """Up to `count` one-step plans for `parent`. `task.tried` has the plans of earlier rounds and their outcomes."""

    def attempt(
        self, task: SearchTask, parent: Candidate, plan: Plan, count: int, rng: random.Random
    ) -> Sequence[KernelSource | NoSource]:
        """Up to `count` sources that carry out `plan` on `parent`; a source is first timed at its declared defaults."""

    def fix(self, task: SearchTask, source: KernelSource, rejected: Rejected, rng: random.Random) -> KernelSource | None:
        """The source with what `rejected` complains about put right, or None to give it up."""

    def summarize(self, task: SearchTask, pair: TeachingPair) -> Experience | None:
        """One general lesson of a pair, or None when there is none."""
