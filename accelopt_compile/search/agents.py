"""The agents of AccelOpt as one `Proposer`: planner, executor, fixer and summarizer, each a language model behind a client.

Nothing here knows a language or an endpoint: the first is the backend's guide, the second the client. A model for each
role, or several that take turns.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from accelopt_compile.llm.client import Client, Reply, Request, Role
from accelopt_compile.records import Candidate, Experience, KernelSource, Plan, Rejected
from accelopt_compile.search.builtin.summarizer import lesson_of
from accelopt_compile.search.executor import executor_prompt, source_in
from accelopt_compile.search.fixer import fixer_prompt
from accelopt_compile.search.memory import Memory
from accelopt_compile.search.planner import planner_prompt, plans_in
from accelopt_compile.search.proposer import Call, NoSource, TeachingPair
from accelopt_compile.search.recall import shown, token_budget
from accelopt_compile.search.summarizer import lesson_in, summarizer_prompt
from accelopt_compile.search.task import SearchTask
from accelopt_compile.search.together import together

MAX_TOKENS: Mapping[Role, int] = {"planner": 8192, "executor": 16384, "fixer": 16384, "summarizer": 4096}
"""Longest answer of each role, reasoning included. It is what a budget keeps back for a call, so it is no larger than needed."""

UNREACHED = frozenset({"connection", "timeout", "rate_limit", "server", "malformed"})
"""Problems of the way to a model, not of what it said."""

MOST_UNREACHED = 3
"""So many calls in a row without an answer, for such a problem, and the model is given up."""

LESSON_TOKENS = token_budget(9000)
"""What lessons may take of a planner's prompt, which is about so long without them (C++, a seed of 80 lines)."""


class AgentProposer:
    """See `Proposer`. `models` names one or more models a role; `effort` is the endpoint's reasoning effort, None leaves it.

    In paper mode each plan is a sample of its own from the same prompt, its profile shuffled anew; else one call gives them
    all, told to differ: a quarter of the cost.
    """

    concurrent = True

    def __init__(
        self,
        client: Client,
        *,
        models: Mapping[Role, Sequence[str]],
        max_tokens: Mapping[Role, int] = MAX_TOKENS,
        effort: str | None = None,
    ) -> None:
        self._client, self._models, self._max_tokens, self._effort = client, models, max_tokens, effort
        self.trouble = ""
        self._lock, self._unreached = threading.Lock(), 0

    def recall(self, task: SearchTask, memory: Memory) -> Sequence[Experience]:
        return [e for e in shown(task, memory, LESSON_TOKENS) if not _numbers_alone(e)]

    def plan(
        self, task: SearchTask, parent: Candidate, experiences: Sequence[Experience], count: int, call: Call
    ) -> Sequence[Plan]:
        samples, each = (count, 1) if task.settings.selection == "paper" else (1, count)
        prompts = [planner_prompt(task, parent, experiences, each, call.rng) for _ in range(samples)]
        for again in range(MOST_UNREACHED):  # without a plan a round is lost, so the way to the model gets another chance
            asked = [partial(self._ask, "planner", one, call, i + again * samples) for i, one in enumerate(prompts)]
            replies = together(asked, concurrent=True)
            if self.trouble or not all(reply.problem in UNREACHED for reply in replies):
                break
        return [plan for reply in replies for plan in plans_in(reply, each)]

    def attempt(
        self, task: SearchTask, parent: Candidate, plan: Plan, count: int, call: Call
    ) -> Sequence[KernelSource | NoSource]:
        text = executor_prompt(task, parent, plan)
        asked = [partial(self._ask, "executor", text, call, i) for i in range(count)]
        return [source_in(reply, task.backend) for reply in together(asked, concurrent=True)]

    def fix(self, task: SearchTask, source: KernelSource, rejected: Rejected, call: Call) -> KernelSource | None:
        if source.origin != "llm":
            return None  # rendered by a template: a bug of ours, not a case for a fixer
        fixed = source_in(self._ask("fixer", fixer_prompt(task, source, rejected), call), task.backend)
        return None if isinstance(fixed, NoSource) else fixed

    def summarize(self, task: SearchTask, pair: TeachingPair, call: Call) -> Experience | None:
        child = pair.fast if pair.helped else pair.slow
        if child.source.origin != "llm":
            return lesson_of(task, pair)  # the change has a name: no need to pay for a sentence
        return lesson_in(self._ask("summarizer", summarizer_prompt(task, pair), call), task, pair)

    def _ask(self, role: Role, text: tuple[str, str], call: Call, sample: int = 0) -> Reply:
        models = self._models[role]
        turn = sum(map(ord, call.name)) + sample
        request = Request(
            role=role,
            model=models[turn % len(models)],
            system=text[0],
            user=text[1],
            call=f"{call.name}#{sample}",
            max_tokens=self._max_tokens[role],
            effort=self._effort,
        )
        reply = self._client.ask(request)
        with self._lock:
            self._observe(reply)
        # Half a surrogate pair is no text: it could be neither hashed nor stored nor sent on.
        return replace(reply, text=reply.text.encode("utf-8", "replace").decode())

    def _observe(self, reply: Reply) -> None:
        """What a reply says about whether asking further makes sense. An answer after a failure is a model that is back."""
        if reply.problem in UNREACHED and reply.tries == 0:
            return  # it was never sent: a full client says nothing about the model
        self._unreached = self._unreached + 1 if reply.problem in UNREACHED else 0
        if reply.fatal:
            self.trouble = f"the language model cannot be asked further: {reply.problem}: {reply.detail}"
        elif self._unreached >= MOST_UNREACHED:
            self.trouble = f"the language model did not answer {self._unreached} calls in a row: {reply.problem}: {reply.detail}"


def _numbers_alone(experience: Experience) -> bool:
    """Whether all that an experience says is another value of a tunable: the tuner finds that out by itself."""
    return bool(experience.change) and all(name.startswith("tunable.") for name in experience.change)
