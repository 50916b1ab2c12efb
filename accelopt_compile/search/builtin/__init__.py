"""The proposer without a language model: plans from the backend's mutation grammar, sources from its templates."""

from __future__ import annotations

import random
from collections.abc import Sequence

from accelopt_compile.records import Candidate, Experience, KernelSource, Plan, Rejected
from accelopt_compile.search.builtin.executor import render_attempts
from accelopt_compile.search.builtin.planner import plan_steps
from accelopt_compile.search.builtin.summarizer import lesson_of
from accelopt_compile.search.proposer import NoSource, TeachingPair
from accelopt_compile.search.task import SearchTask

__all__ = ["BuiltinProposer"]


class BuiltinProposer:
    """A `Proposer` that needs nothing but the backend. It has no state and never repairs a kernel: a template that
    does not build is a bug of ours, not a case for a fixer."""

    def plan(
        self, task: SearchTask, parent: Candidate, experiences: Sequence[Experience], count: int, rng: random.Random
    ) -> Sequence[Plan]:
        return plan_steps(task, parent, experiences, count, rng)

    def attempt(
        self, task: SearchTask, parent: Candidate, plan: Plan, count: int, rng: random.Random
    ) -> Sequence[KernelSource | NoSource]:
        return render_attempts(task, parent, plan, count, rng)

    def fix(self, task: SearchTask, source: KernelSource, rejected: Rejected, rng: random.Random) -> KernelSource | None:
        return None

    def summarize(self, task: SearchTask, pair: TeachingPair) -> Experience | None:
        return lesson_of(task, pair)
