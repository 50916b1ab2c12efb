"""What gives plans and sources to the loop: the LLM agents, or the built-in proposer. Same protocol for both."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from accelopt_compile.records import Candidate, Experience, KernelSource, Plan, Rejected
from accelopt_compile.search.task import SearchTask

if TYPE_CHECKING:
    from accelopt_compile.search.memory import Memory  # which imports `selection`, and that TeachingPair


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


@dataclass(frozen=True, kw_only=True)
class Call:
    """One question to a proposer. `name` is unique within the search ("3/0/1": round 3, beam slot 0, plan 1); `rng` is
    the call's only source of chance, seeded by the name, so that leaving out other calls changes nothing for it."""

    name: str
    rng: random.Random


class Proposer(Protocol):
    """Four roles. Every method is a function of its arguments; what a proposer answers is recorded by the loop, so that a
    resumed run does not ask again. No method raises for a bad answer.

    `concurrent`: the methods may be called from several threads at once, and it pays, because they wait for a service.
    """

    @property
    def concurrent(self) -> bool: ...

    @property
    def trouble(self) -> str:
        """Why asking further is pointless (a key refused, money spent), or ""."""
        ...

    def recall(self, task: SearchTask, memory: Memory) -> Sequence[Experience]:
        """The experiences that `plan` is to be given, in this order."""
        ...

    def plan(
        self, task: SearchTask, parent: Candidate, experiences: Sequence[Experience], count: int, call: Call
    ) -> Sequence[Plan]:
        """Up to `count` one-step plans for `parent`. `task.tried` has the plans of earlier rounds and their outcomes."""
        ...

    def attempt(
        self, task: SearchTask, parent: Candidate, plan: Plan, count: int, call: Call
    ) -> Sequence[KernelSource | NoSource]:
        """Up to `count` sources that carry out `plan` on `parent`; a source is first timed at its declared defaults."""
        ...

    def fix(self, task: SearchTask, source: KernelSource, rejected: Rejected, call: Call) -> KernelSource | None:
        """The source with what `rejected` complains about put right, or None to give it up."""
        ...

    def summarize(self, task: SearchTask, pair: TeachingPair, call: Call) -> Experience | None:
        """One general lesson of a pair, or None when there is none."""
        ...
