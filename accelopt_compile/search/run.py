"""A run of the search: its methods are the steps in their order, then their parts, then its state.

Read from top to bottom; loop.py puts the steps together.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from accelopt_compile.errors import InvalidRecord
from accelopt_compile.events import Log
from accelopt_compile.records import Accepted, Candidate, Experience, Rejected, sha256_text
from accelopt_compile.search.budget import Budget
from accelopt_compile.search.expand import Expander, Expansion, warm_starts
from accelopt_compile.search.memory import Memory, placed, proven_configurations, winner_experience
from accelopt_compile.search.proposer import Proposer
from accelopt_compile.search.selection import BELIEVED, Group, elitist_beam, paper_beam, speed, teaching_pairs
from accelopt_compile.search.state import SearchState, experience_json
from accelopt_compile.search.stopping import decide, no_winner, stop_reason, time_again, wins
from accelopt_compile.search.task import SearchResult, SearchTask, Tried, search_name
from accelopt_compile.search.trials import BudgetSpent, Evaluator, Trials
from accelopt_compile.search.turns import Turns
from accelopt_compile.wording import times_text

Progress: TypeAlias = Callable[[SearchState], object]
"""Told the state after every round; saving it is what makes a search resumable in another process."""

_EXHAUSTED = "nothing is left to try"


class Run:
    """One search, from its seed to its result. With `resume` it goes on where that state was saved."""

    def __init__(
        self,
        task: SearchTask,
        proposer: Proposer,
        companion: Proposer | None,
        evaluator: Evaluator,
        memory: Memory,
        budget: Budget,
        rng: random.Random,
        clock: Callable[[], float],
        log: Log,
        progress: Progress | None,
        resume: SearchState | None,
    ) -> None:
        self.task, self.memory, self.log, self.progress, self.clock = task, memory, log, progress, clock
        self.settings = task.settings
        self.seed = rng.getrandbits(64) if resume is None else resume.seed
        self.name = search_name(task, self.seed)
        known = () if resume is None else resume.known
        self.trials = Trials(evaluator=evaluator, budget=budget, clock=clock, log=log, name=self.name, known=known)
        self.candidates: list[Candidate] = []
        self.turns = Turns(task, proposer, companion, memory, budget, self.candidates, log, self.name, self.seed)
        self.roofline_us = task.least().seconds * 1e6
        self.budget = budget
        self.before_s = budget.used_s
        self.judged = resume is not None and bool(resume.candidates)
        self.rounds_done = self.flat_rounds = 0
        self.beam: tuple[Candidate, ...] = ()
        self.tried: tuple[Tried, ...] = ()
        self.tuned: set[str] = set()
        self.winner: Candidate | None = None
        self.refused: set[str] = set()
        """Sources that the full verification found wrong: no lesson for others."""
        self.proven: tuple[Candidate, ...] = ()
        if resume is not None:
            self._restore(resume)

    # ------------------------------------------------------------ the steps

    def open(self) -> str | None:
        """Evaluate the seed and earlier winners' configurations. Gives a reason only when there is no seed to start from."""
        expander, task = self._expander(), self.task
        source = task.backend.seed(task.workload)
        self.log.append("seed", search=self.name, workload=task.workload.digest, target=task.target, source=source.digest)
        warm = warm_starts(task, source, proven_configurations(task, self.memory.recall(task)))
        # One sequence, so that the evaluator builds others beside the first: what won elsewhere is better than the seed more
        # often than not (0.60 of the candidates until 95 % of the final speed, and 0.67 with it second).
        first, rest = warm[:1], warm[1:]
        verdicts = self.trials.run_each([*first, (source, source.defaults()), *rest])
        try:
            of_first = [next(verdicts) for _ in first]
            verdict = next(verdicts)
        except BudgetSpent:
            return f"{self.trials.spent} before the seed was evaluated"
        self.judged = True
        if not isinstance(verdict, Accepted):
            if isinstance(verdict, Rejected):
                return f"the seed was rejected at {verdict.stage.value}: {verdict.reason}"
            return "the seed was evaluated before"
        seed = Candidate(id=0, parent=None, plan=None, source=source, tunables=source.defaults(), verdict=verdict)
        self.candidates.append(seed)
        expansions = expander.take(seed, first, iter(of_first))
        if self.stop() is None:
            expansions += expander.take(seed, rest, verdicts)
        self._settle(expander, (seed,), expansions)
        self.tried += expander.told
        self._learn("open", expansions)
        self._save()
        return self.stop()

    def round(self) -> str | None:
        """One round over the beam. Gives a reason when no parent has a plan left."""
        expander = self._expander()
        best_before = speed(self._best())
        expansions = self.turns.expand(expander, self.rounds_done, self.beam)
        planned = len(expansions)
        self._settle(expander, self.beam, expansions)
        self.tried += expander.told
        self._learn(str(self.rounds_done), expansions)
        self.rounds_done += 1
        gained = speed(self._best()) > best_before * self.settings.min_gain
        self.flat_rounds = 0 if gained else self.flat_rounds + 1
        self._save()
        if planned:
            return None
        idle = self.turns.proposer.trouble or _EXHAUSTED
        if self.turns.companion is None:
            return idle
        self._take_over(idle)
        return None

    def stop(self) -> str | None:
        """Why the search is over, or None. Where a companion can go on, it takes over instead."""
        reason = self._stop_reason()
        stuck = self.turns.proposer.trouble or (reason if reason is not None and self._flat() else "")
        if self.turns.companion is None or not stuck or self._stop_at_once() is not None:
            return reason
        self._take_over(stuck)
        return self._stop_reason()

    def _take_over(self, because: str) -> None:
        """The companion goes on alone."""
        if self.turns.companion is not None:
            self.log.append("takeover", search=self.name, round=self.rounds_done, because=because)
            self.turns.take_over()
            self.flat_rounds = 0

    def _flat(self) -> bool:
        return bool(self.settings.patience) and self.flat_rounds >= self.settings.patience

    def _stop_reason(self) -> str | None:
        return stop_reason(
            self.settings,
            best=self._best(),
            roofline_us=self.roofline_us,
            rounds_done=self.rounds_done,
            flat_rounds=self.flat_rounds,
            spent=self.trials.spent,
        )

    def polish(self) -> None:
        """Descend from the best kernel's numbers, where half of the time is left: other regions want theirs."""
        worth = self.settings.polish_trials and self.candidates and speed(self._best()) >= self.settings.hopeless_below
        if not worth or self.budget.remaining_s < self._used_s or self._stop_at_once() is not None:
            return
        expansions: list[Expansion] = []
        with contextlib.suppress(BudgetSpent):
            self._expander().polish(self._best(), expansions)
        self._learn("polish", expansions)
        self._save()

    def close(self, reason: str) -> SearchResult:
        """Decide on the winner, remember the way to it, and report."""
        time_again(self.candidates, self.settings, self.trials)
        spent = reason == self.trials.spent and self.rounds_done <= 1
        final = decide(self.candidates, self.settings, self.trials, self._full_verdict)
        lesson = None
        if right := [c for c in self.candidates if c.source.digest not in self.refused]:
            seed, best = self.candidates[0], max(right, key=_by_speed)
            if (lesson := winner_experience(self.task, seed, best)) is not None:
                lesson = placed(lesson, slow=seed, fast=best, plan=best.plan, run=self.name, round=str(self.rounds_done))
                self.memory.add([lesson], capacity=self.settings.memory_capacity)
        kept = final.winner is not None or bool(final.proven)
        told = reason if kept else no_winner(final.because if self.candidates else "", reason)
        learned = None if lesson is None else experience_json(lesson)
        won = None if final.winner is None else final.winner.id
        self.log.append("stop", search=self.name, reason=told, winner=won, lesson=learned)
        found = self.result(told, winner=final.winner)
        return replace(found, cut_short=not kept and (spent or final.late))

    # ------------------------------------------------------------ their parts

    def _settle(self, expander: Expander, parents: tuple[Candidate, ...], expansions: list[Expansion]) -> None:
        """Choose the next beam, tune those of it whose numbers nobody has searched, choose again."""
        self.beam = self._select(parents, expansions)
        if self.settings.tuning_trials and self._stop_at_once() is None:
            experiences = self.memory.recall(self.task)
            try:
                for id in dict.fromkeys(c.id for c in self.beam):
                    expander.tune(self.candidates[id], expansions, experiences, tuned=self.tuned, best=self._best())
            except BudgetSpent:
                pass
            self.beam = self._select(parents, expansions)

    def _stop_at_once(self) -> str | None:
        """Why even the numbers need no tuning: the roofline or the budget."""
        return stop_reason(
            self.settings, best=self._best(), roofline_us=self.roofline_us, rounds_done=-1, flat_rounds=0, spent=self.trials.spent
        )

    def _select(self, parents: tuple[Candidate, ...], expansions: list[Expansion]) -> tuple[Candidate, ...]:
        choose = paper_beam if self.settings.selection == "paper" else elitist_beam
        return choose(parents, [e.group() for e in expansions], self.settings.beam_width)

    def _learn(self, call: str, expansions: list[Expansion]) -> None:
        groups: list[Group] = [e.group() for e in expansions]
        believed = math.inf if self.settings.selection == "paper" else BELIEVED
        pairs = teaching_pairs(groups, self.settings.lessons_per_round, believed=believed)
        asked = [(f"{call}/{index}", pair) for index, pair in enumerate(pairs)]
        told = self.turns.proposer.lessons(self.task, asked, left_s=self.budget.remaining_s)
        lessons = [
            placed(lesson, slow=pair.slow, fast=pair.fast, plan=pair.plan, run=self.name, round=call)
            for lesson, pair in zip(told, pairs, strict=True)
            if lesson is not None
        ]
        self.memory.add(lessons, capacity=self.settings.memory_capacity)

    def _full_verdict(self, candidate: Candidate, verdict: Accepted | Rejected) -> None:
        if isinstance(verdict, Accepted) and wins(verdict, self.settings):
            self.winner = replace(candidate, verdict=verdict)
        if isinstance(verdict, Accepted) and self.settings.estimated:
            self.proven += (replace(candidate, verdict=verdict),)
        if isinstance(verdict, Rejected):
            self.refused.add(candidate.source.digest)
        told = verdict.reason if isinstance(verdict, Rejected) else _speed_text(verdict)
        self.log.append("final", search=self.name, candidate=candidate.id, outcome=told)

    def _right(self, lesson: Experience) -> bool:
        """Whether no kernel of a lesson was found wrong since it was learned."""
        return self.refused.isdisjoint({sha256_text(lesson.slow), sha256_text(lesson.fast)})

    def _expander(self) -> Expander:
        return Expander(
            task=self.task, tried=self.tried, proposer=self.turns.proposer, trials=self.trials, candidates=self.candidates
        )

    def _best(self) -> Candidate:
        return max(self.candidates, key=_by_speed)

    # ------------------------------------------------------------ state

    @property
    def _used_s(self) -> float:
        return self.budget.used_s - self.before_s

    def _save(self) -> None:
        state = SearchState(
            workload=self.task.workload.digest,
            target=self.task.target,
            binding=dict(self.task.binding),
            seed=self.seed,
            round=self.rounds_done,
            candidates=tuple(self.candidates),
            beam=tuple(c.id for c in self.beam),
            tried=self.tried,
            known=self.trials.known,
            tuned=tuple(sorted(self.tuned)),
            rejected=dict(self.trials.rejected),
            evaluated=self.trials.evaluated,
            duplicates=self.trials.duplicates,
            flat_rounds=self.flat_rounds,
            taken_over=self.turns.taken_over,
            seconds=self._used_s,
            prior=self.memory.prior,
            recent=self.memory.recent,
            gained=self.memory.gained,
        )
        best = self._best()
        self.log.append(
            "round",
            search=self.name,
            round=self.rounds_done,
            beam=list(state.beam),
            best=best.id,
            speedup=speed(best),
            **({"basis": "estimated"} if self.settings.estimated else {}),
        )
        if self.progress is not None:
            self.progress(state)

    def _restore(self, state: SearchState) -> None:
        if (state.workload, state.target) != (self.task.workload.digest, self.task.target):
            raise InvalidRecord(f"the saved search is of workload {state.workload[:12]} on {state.target}, not of this one")
        if state.taken_over:
            self.turns.take_over()
        self.rounds_done, self.flat_rounds, self.tried = state.round, state.flat_rounds, state.tried
        self.candidates.extend(state.candidates)
        self.tuned = set(state.tuned)
        self.beam = tuple(self.candidates[id] for id in state.beam)
        self.trials.restore(
            rejected=state.rejected, evaluated=state.evaluated, duplicates=state.duplicates, candidates=state.candidates
        )
        self.memory.restore(prior=state.prior, recent=state.recent, gained=state.gained)
        self.budget.carry(seconds=state.seconds, candidates=state.evaluated)

    def result(self, reason: str, *, winner: Candidate | None) -> SearchResult:
        """The run as it stands."""
        return SearchResult(
            best=winner,
            reason=reason,
            candidates=tuple(self.candidates),
            rejected=dict(self.trials.rejected),
            judged=self.judged,
            evaluated=self.trials.evaluated,
            duplicates=self.trials.duplicates,
            rounds=self.rounds_done,
            seconds=self._used_s,
            experiences=tuple(e for e in self.memory.gained if self._right(e)),
            proven=self.proven,
        )


def _by_speed(candidate: Candidate) -> tuple[float, int]:
    return speed(candidate), -candidate.id


def _speed_text(verdict: Accepted) -> str:
    return times_text(verdict.timing.speedup, verdict.timing.basis, 3)
