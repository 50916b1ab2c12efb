"""The proposer without a language model: plans from the backend's mutation grammar, sources from its templates."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt_compile.records import Candidate, Experience, KernelSource, Plan, Rejected
from accelopt_compile.search.builtin.executor import render_attempts
from accelopt_compile.search.builtin.planner import plan_steps
from accelopt_compile.search.builtin.summarizer import lesson_of
from accelopt_compile.search.memory import Memory
from accelopt_compile.search.proposer import Call, NoSource, TeachingPair
from accelopt_compile.search.task import SearchTask

__all__ = ["BuiltinProposer"]


class BuiltinProposer:
    """A `Proposer` that needs nothing but the backend. It has no state and never repairs a kernel: a template that
    does not build is a bug of ours, not a case for a fixer."""

    concurrent = False
    trouble = ""

    def recall(self, task: SearchTask, memory: Memory) -> Sequence[Experience]:
        return memory.recall(task)

    def plan(
        self, task: SearchTask, parent: Candidate, experiences: Sequence[Experience], count: int, call: Call
    ) -> Sequence[Plan]:
        return plan_steps(task, parent, experiences, count, call.rng)

    def attempt(
        self, task: SearchTask, parent: Candidate, plan: Plan, count: int, call: Call
    ) -> Sequence[KernelSource | NoSource]:
        return render_attempts(task, parent, plan, count, call.rng)

    def fix(self, task: SearchTask, source: KernelSource, rejected: Rejected, call: Call) -> KernelSource | None:
        return None

    def summarize(self, task: SearchTask, pair: TeachingPair, call: Call) -> Experience | None:
        return lesson_of(task, pair)
