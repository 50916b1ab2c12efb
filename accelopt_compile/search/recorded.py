"""A proposer whose replies are in the run log: what was once answered is never asked again.

Answers may come from several threads; they are logged by the caller's thread, in the order of the calls, so that the log of
a run does not depend on who answered first.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from accelopt_compile.errors import AccelOptError
from accelopt_compile.events import Log
from accelopt_compile.records import Candidate, Experience, KernelSource, Plan, Rejected, source_from_json
from accelopt_compile.search.memory import Memory
from accelopt_compile.search.proposer import Call, NoSource, Proposer, TeachingPair
from accelopt_compile.search.state import experience_from, experience_id, experience_json, plan_from, plan_json
from accelopt_compile.search.task import SearchTask
from accelopt_compile.search.together import Pending, together

_KINDS = ("plans", "attempts", "fix", "lesson")

_UNREADABLE = (ValueError, ArithmeticError, RecursionError, LookupError, TypeError, AttributeError)
"""What reading a reply may raise. A reply is foreign text: one that cannot be read is an answer that says nothing, never the
end of a run. Our own errors, a failed assertion and Ctrl-C pass."""

log = logging.getLogger("accelopt_compile.search")

_Asked = tuple[str, str, Any, dict[str, Any]]
"""Kind, call, reply in JSON and further data of one answer: what becomes an event."""


@dataclass(frozen=True, kw_only=True)
class Thought:
    """A parent with its plans and each plan's attempts."""

    call: str
    parent: Candidate
    plans: tuple[Plan, ...]
    attempts: tuple[tuple[KernelSource | NoSource, ...], ...]


class Thinking:
    """Plans and attempts that are being thought of for several parents; `thoughts` waits for them and logs them."""

    def __init__(self, pending: Pending[list[_Asked]], log: Callable[[_Asked], Any], parents: Sequence[Candidate]) -> None:
        self._pending, self._log, self._parents = pending, log, parents

    def done(self, timeout_s: float) -> bool:
        """Whether all is thought; waits for that at most so long."""
        return self._pending.done(timeout_s)

    def thoughts(self) -> list[Thought]:
        return [_thought(asked, parent, self._log) for asked, parent in zip(self._pending.results(), self._parents, strict=True)]


class RecordedProposer:
    """Wraps a proposer. `seed` and the call's name give each call its chance."""

    def __init__(self, proposer: Proposer, *, log: Log, name: str, seed: int) -> None:
        self._proposer, self._log, self._name, self._seed = proposer, log, name, seed
        self._replies = {
            (str(event["kind"]), str(event["call"])): event["reply"]
            for event in log.events()
            if event["kind"] in _KINDS and event["search"] == name
        }

    @property
    def concurrent(self) -> bool:
        return self._proposer.concurrent

    @property
    def trouble(self) -> str:
        return self._proposer.trouble

    def recall(self, task: SearchTask, memory: Memory) -> Sequence[Experience]:
        return self._proposer.recall(task, memory)

    def call(self, name: str) -> Call:
        """The call of that name, with its own chance."""
        return Call(name=name, rng=random.Random(f"{self._seed}/{name}"))

    def think(self, call: str, task: SearchTask, parent: Candidate, experiences: Sequence[Experience]) -> Thought:
        """All plans of one parent, and all attempts at them, now."""
        return _thought(self._think(call, task, parent, experiences), parent, self._keep)

    def start(self, task: SearchTask, parents: Sequence[tuple[str, Candidate]], experiences: Sequence[Experience]) -> Thinking:
        """The same for several parents at once, in the background."""
        calls = [partial(self._think, call, task, parent, experiences) for call, parent in parents]
        return Thinking(Pending(calls), self._keep, [parent for _, parent in parents])

    def fixes(
        self, task: SearchTask, broken: Sequence[tuple[str, KernelSource, Rejected]], *, left_s: float
    ) -> list[KernelSource | None]:
        """A repair of each source, or None where it is given up, as all are that are not there in `left_s` seconds."""
        calls = [partial(self._fix, call, task, source, rejected) for call, source, rejected in broken]
        return [None if reply is None else source_from_json(reply) for reply in self._in_time(calls, left_s)]

    def lessons(self, task: SearchTask, pairs: Sequence[tuple[str, TeachingPair]], *, left_s: float) -> list[Experience | None]:
        """The lesson of each pair, or None where there is none, or none in `left_s` seconds."""
        calls = [partial(self._lesson, call, task, pair) for call, pair in pairs]
        return [None if reply is None else experience_from(reply) for reply in self._in_time(calls, left_s)]

    def _in_time(self, calls: Sequence[Callable[[], _Asked]], left_s: float) -> list[Any]:
        """The replies, logged; None for each where somebody else gives them and they take longer."""
        if not self.concurrent:
            answered = together(calls, concurrent=False)
        elif left_s > 0 and (pending := Pending(calls)).done(left_s):
            answered = pending.results()
        else:
            return [None] * len(calls)
        return [self._keep(asked) for asked in answered]

    # ------------------------------------------------------------ one answer each, recorded or asked for; from any thread

    def _think(self, call: str, task: SearchTask, parent: Candidate, experiences: Sequence[Experience]) -> list[_Asked]:
        first = self._plans(call, task, parent, experiences)
        plans = [plan_from(plan) for plan in first[2]]
        calls = [partial(self._attempts, f"{call}/{index}", task, parent, plan) for index, plan in enumerate(plans)]
        return [first, *together(calls, concurrent=self.concurrent)]

    def _plans(self, call: str, task: SearchTask, parent: Candidate, experiences: Sequence[Experience]) -> _Asked:
        def ask() -> Any:
            count = task.settings.plans_per_candidate
            return [plan_json(plan) for plan in self._proposer.plan(task, parent, experiences, count, self.call(call))[:count]]

        recalled = [experience_id(e) for e in experiences]
        return self._answered("plans", call, ask, lambda _: [], parent=parent.id, recalled=recalled)

    def _attempts(self, call: str, task: SearchTask, parent: Candidate, plan: Plan) -> _Asked:
        def ask() -> Any:
            count = task.settings.attempts_per_plan
            return [_attempt_json(a) for a in self._proposer.attempt(task, parent, plan, count, self.call(call))[:count]]

        return self._answered("attempts", call, ask, lambda why: [{"no_source": why}], parent=parent.id)

    def _fix(self, call: str, task: SearchTask, source: KernelSource, rejected: Rejected) -> _Asked:
        def ask() -> Any:
            fixed = self._proposer.fix(task, source, rejected, self.call(call))
            return None if fixed is None else fixed.to_json()

        return self._answered("fix", call, ask, lambda _: None, stage=rejected.stage.value)

    def _lesson(self, call: str, task: SearchTask, pair: TeachingPair) -> _Asked:
        def ask() -> Any:
            lesson = self._proposer.summarize(task, pair, self.call(call))
            return None if lesson is None else experience_json(lesson)

        return self._answered("lesson", call, ask, lambda _: None, slow=pair.slow.id, fast=pair.fast.id)

    def _answered(self, kind: str, call: str, ask: Callable[[], Any], unread: Callable[[str], Any], /, **data: Any) -> _Asked:
        """The recorded reply, else that of `ask`; `unread` gives the one that stands for an answer nobody can read."""
        if (kind, call) in self._replies:
            return kind, call, self._replies[kind, call], data
        try:
            return kind, call, ask(), data
        except AccelOptError:
            raise
        except _UNREADABLE as failure:
            why = f"the answer could not be read: {type(failure).__name__}: {str(failure)[:200]}"
            log.warning("%s %s: %s", kind, call, why)
            return kind, call, unread(why), data

    def _keep(self, asked: _Asked) -> Any:
        """Log an answer, unless the log has it; the reply."""
        kind, call, reply, data = asked
        if (kind, call) not in self._replies:
            self._log.append(kind, search=self._name, call=call, reply=reply, **data)
            self._replies[kind, call] = reply
        return reply


def _thought(asked: Sequence[_Asked], parent: Candidate, log: Callable[[_Asked], Any]) -> Thought:
    plans, *attempts = [log(one) for one in asked]
    return Thought(
        call=asked[0][1],
        parent=parent,
        plans=tuple(plan_from(plan) for plan in plans),
        attempts=tuple(tuple(_attempt_from(a) for a in given) for given in attempts),
    )


def _attempt_json(attempt: KernelSource | NoSource) -> dict[str, Any]:
    if isinstance(attempt, NoSource):
        return {"no_source": attempt.reason}
    attempt.text.encode()  # half a surrogate pair could be neither hashed nor built
    return attempt.to_json()


def _attempt_from(data: Any) -> KernelSource | NoSource:
    return NoSource(reason=str(data["no_source"])) if "no_source" in data else source_from_json(data)
