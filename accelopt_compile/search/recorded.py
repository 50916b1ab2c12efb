"""A proposer whose replies are in the run log: what was once answered is never asked again.

Each call has a name unique within the search ("3/0/1": round 3, beam slot 0, plan 1) and a random generator of its
own, seeded by that name, so that skipping a call that the log already answers changes nothing for the others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from accelopt_compile.events import Log
from accelopt_compile.records import Candidate, Experience, KernelSource, Plan, Rejected, source_from_json
from accelopt_compile.search.proposer import NoSource, Proposer, TeachingPair
from accelopt_compile.search.state import experience_from, experience_id, experience_json, plan_from, plan_json
from accelopt_compile.search.task import SearchTask

_KINDS = ("plans", "attempts", "fix", "lesson")


class RecordedProposer:
    """Wraps a proposer. `seed` and the call's name give each call its chance."""

    def __init__(self, proposer: Proposer, *, log: Log, name: str, seed: int) -> None:
        self._proposer, self._log, self._name, self._seed = proposer, log, name, seed
        self._replies = {
            (str(event["kind"]), str(event["call"])): event["reply"]
            for event in log.events()
            if event["kind"] in _KINDS and event["search"] == name
        }

    def rng(self, call: str) -> random.Random:
        """The generator of one call."""
        return random.Random(f"{self._seed}/{call}")

    def plan(
        self, call: str, task: SearchTask, parent: Candidate, experiences: Sequence[Experience], count: int
    ) -> tuple[Plan, ...]:
        if (reply := self._replies.get(("plans", call))) is None:
            plans = tuple(self._proposer.plan(task, parent, experiences, count, self.rng(call)))[:count]
            recalled = [experience_id(e) for e in experiences]
            reply = self._keep("plans", call, [plan_json(plan) for plan in plans], parent=parent.id, recalled=recalled)
        return tuple(plan_from(plan) for plan in reply)

    def attempt(
        self, call: str, task: SearchTask, parent: Candidate, plan: Plan, count: int
    ) -> tuple[KernelSource | NoSource, ...]:
        if (reply := self._replies.get(("attempts", call))) is None:
            attempts = tuple(self._proposer.attempt(task, parent, plan, count, self.rng(call)))[:count]
            reply = self._keep("attempts", call, [_attempt_json(attempt) for attempt in attempts], parent=parent.id)
        return tuple(_attempt_from(attempt) for attempt in reply)

    def fix(self, call: str, task: SearchTask, source: KernelSource, rejected: Rejected) -> KernelSource | None:
        if ("fix", call) in self._replies:
            reply = self._replies["fix", call]
        else:
            fixed = self._proposer.fix(task, source, rejected, self.rng(call))
            reply = self._keep("fix", call, None if fixed is None else fixed.to_json(), stage=rejected.stage.value)
        return None if reply is None else source_from_json(reply)

    def summarize(self, call: str, task: SearchTask, pair: TeachingPair) -> Experience | None:
        if ("lesson", call) in self._replies:
            reply = self._replies["lesson", call]
        else:
            lesson = self._proposer.summarize(task, pair)
            told = None if lesson is None else experience_json(lesson)
            reply = self._keep("lesson", call, told, slow=pair.slow.id, fast=pair.fast.id)
        return None if reply is None else experience_from(reply)

    def _keep(self, kind: str, call: str, reply: Any, **data: Any) -> Any:
        self._log.append(kind, search=self._name, call=call, reply=reply, **data)
        return reply


def _attempt_json(attempt: KernelSource | NoSource) -> dict[str, Any]:
    return {"no_source": attempt.reason} if isinstance(attempt, NoSource) else attempt.to_json()


def _attempt_from(data: Any) -> KernelSource | NoSource:
    return NoSource(reason=str(data["no_source"])) if "no_source" in data else source_from_json(data)
