"""Whose turn it is: the proposer's; or its companion's, while the proposer thinks, and for good once that one gives no more."""

from __future__ import annotations

from accelopt_compile.events import Log
from accelopt_compile.records import Candidate
from accelopt_compile.search.budget import Budget
from accelopt_compile.search.expand import Expander, Expansion
from accelopt_compile.search.memory import Memory
from accelopt_compile.search.proposer import Proposer
from accelopt_compile.search.recorded import RecordedProposer, Thinking
from accelopt_compile.search.selection import fastest_texts
from accelopt_compile.search.task import SearchTask


class Turns:
    """The proposer and its companion, if it has one, with their answers from the log under `name`. `candidates` is the run's
    list, which grows."""

    def __init__(
        self,
        task: SearchTask,
        proposer: Proposer,
        companion: Proposer | None,
        memory: Memory,
        budget: Budget,
        candidates: list[Candidate],
        log: Log,
        name: str,
        seed: int,
    ) -> None:
        self.task, self.memory, self.budget, self.candidates, self.log, self.name = task, memory, budget, candidates, log, name
        self.proposer = RecordedProposer(proposer, log=log, name=name, seed=seed)
        self.companion = None if companion is None else RecordedProposer(companion, log=log, name=name, seed=seed)
        self.mixed, self.taken_over = companion is not None, False
        fills = (event for event in log.events() if event["kind"] == "fill" and event["search"] == name)
        self.fills = {int(event["round"]): int(event["parents"]) for event in fills}

    def expand(self, expander: Expander, round: int, beam: tuple[Candidate, ...]) -> list[Expansion]:
        """One round over the beam."""
        return self._concurrently(expander, round, beam) if self.proposer.concurrent else self._in_turn(expander, round, beam)

    def take_over(self) -> None:
        """The companion goes on alone."""
        if self.companion is not None:
            self.proposer, self.companion, self.taken_over = self.companion, None, True

    def _in_turn(self, expander: Expander, round: int, beam: tuple[Candidate, ...]) -> list[Expansion]:
        """Every parent of the beam after the other, each knowing what came of those before it. What there is when the
        budget ends still selects and teaches; the run then stops."""
        expansions: list[Expansion] = []
        for slot, parent in enumerate(self._rendered() if self.mixed else beam):
            if not expander.spent:
                expansions += self._expanded(expander, self.proposer, f"{round}/{slot}", parent)
        return expansions

    def _expanded(self, expander: Expander, proposer: RecordedProposer, call: str, parent: Candidate) -> list[Expansion]:
        experiences = proposer.recall(self.task, self.memory)
        return expander.evaluate(proposer.think(call, expander.task(), parent, experiences))

    def _concurrently(self, expander: Expander, round: int, beam: tuple[Candidate, ...]) -> list[Expansion]:
        """All parents at once; while their plans and attempts are being thought of, the companion's are evaluated."""
        parents = [(f"{round}/{slot}", parent) for slot, parent in enumerate(beam)]
        thinking = self.proposer.start(expander.task(), parents, self.proposer.recall(self.task, self.memory))
        filled = [] if self.companion is None else self._filled(expander, round, self.companion, thinking)
        if expander.spent or not thinking.done(self.budget.remaining_s):
            return filled
        for thought in thinking.thoughts():
            filled += expander.evaluate(thought) if not expander.spent else []
        return filled

    def _filled(self, expander: Expander, round: int, companion: RecordedProposer, thinking: Thinking) -> list[Expansion]:
        """The companion's expansions, one parent after the other until the answers are there. How many that were depends on
        the clock, so the log says it, and a run that is repeated from its log does as many."""
        expansions: list[Expansion] = []
        known, done = self.fills.get(round), 0
        for slot, parent in enumerate(self._rendered()):
            if expander.spent or (thinking.done(0.0) if known is None else done >= known):
                break
            expansions += self._expanded(expander, companion, f"fill/{round}/{slot}", parent)
            done += 1
        if known is None:
            self.log.append("fill", search=self.name, round=round, parents=done)
        return expansions

    def _rendered(self) -> tuple[Candidate, ...]:
        """The fastest kernels that templates rendered: those that a grammar can change."""
        return fastest_texts((c for c in self.candidates if c.source.rendered), self.task.settings.beam_width)
