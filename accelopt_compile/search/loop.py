"""The loop: seed, then rounds of plan, attempt, evaluate, learn and select, then one winner or the reason why none.

Read `search`, then `_Run` from top to bottom: its methods are the steps of a run in their order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from accelopt_compile.errors import InvalidRecord
from accelopt_compile.events import Log
from accelopt_compile.records import Accepted, Candidate, Rejected, canonical_json, sha256_text
from accelopt_compile.search.budget import Budget
from accelopt_compile.search.expand import Expander, Expansion, warm_starts
from accelopt_compile.search.memory import Memory, proven_configurations, winner_experience
from accelopt_compile.search.proposer import Proposer
from accelopt_compile.search.recorded import RecordedProposer
from accelopt_compile.search.selection import Group, elitist_beam, paper_beam, speed, teaching_pairs
from accelopt_compile.search.state import SearchState
from accelopt_compile.search.stopping import decide, stop_reason, wins
from accelopt_compile.search.task import SearchResult, SearchTask, Tried
from accelopt_compile.search.trials import BudgetSpent, Evaluator, Trials

Progress: TypeAlias = Callable[[SearchState], None]
"""Told the state after every round; saving it is what makes a search resumable in another process."""

_EXHAUSTED = "nothing is left to try"
_INTERRUPTED = "it was interrupted"


class SearchInterrupted(KeyboardInterrupt):
    """Ctrl-C during a search. `result` holds what there is: a winner only if its full evaluation was already there."""

    def __init__(self, result: SearchResult) -> None:
        super().__init__("search interrupted; the run log and the last saved state resume it")
        self.result = result


def search(
    task: SearchTask,
    *,
    proposer: Proposer,
    evaluator: Evaluator,
    memory: Memory,
    budget: Budget,
    rng: random.Random,
    clock: Callable[[], float],
    log: Log,
    progress: Progress | None = None,
    resume: SearchState | None = None,
) -> SearchResult:
    """Search for a kernel that beats the baseline on `task`.

    A pure function of its arguments: two calls with equal ones give equal results. `clock` counts seconds, as the
    budget's does. With the `log` of a run that died and the last state it saved (`resume`, None if it saved none) the
    run goes on where it was and evaluates nothing twice. A state of the same workload at another binding is left aside:
    its timings say nothing here.

    Raises SearchInterrupted on Ctrl-C, InvalidRecord for a state of another task, and what the proposer or the
    evaluator raise for failures of their own.
    """
    if resume is not None and dict(resume.binding) != dict(task.binding):
        resume = None
    run = _Run(task, proposer, evaluator, memory, budget, rng, clock, log, progress, resume)
    try:
        reason = run.open() if resume is None else run.stop()
        while reason is None:
            reason = run.round() or run.stop()
        return run.close(reason)
    except KeyboardInterrupt as interrupt:
        raise SearchInterrupted(run.result(_INTERRUPTED, winner=run.winner)) from interrupt


class _Run:
    def __init__(
        self,
        task: SearchTask,
        proposer: Proposer,
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
        self.name = _search_name(task, self.seed)
        known = () if resume is None else resume.known
        self.trials = Trials(evaluator=evaluator, budget=budget, clock=clock, log=log, name=self.name, known=known)
        self.proposer = RecordedProposer(proposer, log=log, name=self.name, seed=self.seed)
        self.roofline_us = task.backend.roofline(task.workload, task.binding, task.threads).seconds * 1e6
        self.budget = budget
        self.before_s = budget.used_s
        self.rounds_done = self.flat_rounds = 0
        self.candidates: list[Candidate] = []
        self.beam: tuple[Candidate, ...] = ()
        self.tried: tuple[Tried, ...] = ()
        self.tuned: set[str] = set()
        self.winner: Candidate | None = None
        if resume is not None:
            self._restore(resume)

    # ------------------------------------------------------------ the steps

    def open(self) -> str | None:
        """Evaluate the seed and earlier winners' configurations. Gives a reason only when there is no seed to start from."""
        expander, task = self._expander(), self.task
        source = task.backend.seed(task.workload)
        self.log.append("seed", search=self.name, workload=task.workload.digest, target=task.target, source=source.digest)
        warm = warm_starts(task, source, proven_configurations(task, self.memory.recall(task)))
        # One sequence, so that the evaluator builds a warm start beside the seed.
        verdicts = self.trials.run_each([(source, source.defaults()), *warm])
        try:
            verdict = next(verdicts)
        except BudgetSpent:
            return f"{self.trials.spent} before the seed was evaluated"
        if not isinstance(verdict, Accepted):
            if isinstance(verdict, Rejected):
                return f"the seed was rejected at {verdict.stage.value}: {verdict.reason}"
            return "the seed was evaluated before"
        seed = Candidate(id=0, parent=None, plan=None, source=source, tunables=source.defaults(), verdict=verdict)
        self.candidates.append(seed)
        expansions = expander.take(seed, warm, verdicts) if self.stop() is None else []
        self._settle(expander, (seed,), expansions)
        self.tried += expander.told
        self._learn("open", expansions)
        self._save()
        return self.stop()

    def round(self) -> str | None:
        """One round over the beam. Gives a reason when no parent has a plan left."""
        expander = self._expander()
        expansions: list[Expansion] = []
        best_before = speed(self._best())
        try:
            for slot, parent in enumerate(self.beam):
                self._expand(expander, f"{self.rounds_done}/{slot}", parent, expansions)
        except BudgetSpent:
            pass  # what the round has so far still selects and teaches; `stop` then ends the search
        planned = len(expansions)
        self._settle(expander, self.beam, expansions)
        self.tried += expander.told
        self._learn(str(self.rounds_done), expansions)
        self.rounds_done += 1
        gained = speed(self._best()) > best_before * self.settings.min_gain
        self.flat_rounds = 0 if gained else self.flat_rounds + 1
        self._save()
        return None if planned else _EXHAUSTED

    def stop(self) -> str | None:
        """Why the search is over, or None."""
        return stop_reason(
            self.settings,
            best=self._best(),
            roofline_us=self.roofline_us,
            rounds_done=self.rounds_done,
            flat_rounds=self.flat_rounds,
            spent=self.trials.spent,
        )

    def close(self, reason: str) -> SearchResult:
        """Decide on the winner, remember the way to it, and report."""
        if self.candidates:
            lesson = winner_experience(self.task, self.candidates[0], self._best())
            self.memory.add([lesson] if lesson is not None else [], capacity=self.settings.memory_capacity)
        final = decide(self.candidates, self.settings, self.trials, self._full_verdict)
        told = reason if final.winner is not None else _no_winner(final.because if self.candidates else "", reason)
        self.log.append("stop", search=self.name, reason=told, winner=None if final.winner is None else final.winner.id)
        return self.result(told, winner=final.winner)

    # ------------------------------------------------------------ their parts

    def _expand(self, expander: Expander, call: str, parent: Candidate, expansions: list[Expansion]) -> None:
        """All plans of one parent: ask for each plan's attempts, then evaluate them. Appends as it goes."""
        experiences = self.memory.recall(self.task)
        plans = self.proposer.plan(call, expander.task(), parent, experiences, self.settings.plans_per_candidate)
        own = [Expansion(parent=parent, plan=plan) for plan in plans]
        expansions += own
        attempts = [attempt for index, e in enumerate(own) for attempt in expander.ask(f"{call}/{index}", e)]
        try:
            expander.evaluate(attempts)
        finally:
            for expansion in own:
                expander.tell(expansion)

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
        pairs = teaching_pairs(groups, self.settings.lessons_per_round)
        lessons = [self.proposer.summarize(f"{call}/{index}", self.task, pair) for index, pair in enumerate(pairs)]
        self.memory.add([lesson for lesson in lessons if lesson is not None], capacity=self.settings.memory_capacity)

    def _full_verdict(self, candidate: Candidate, verdict: Accepted | Rejected) -> None:
        if isinstance(verdict, Accepted) and wins(verdict, self.settings):
            self.winner = replace(candidate, verdict=verdict)
        outcome = verdict.reason if isinstance(verdict, Rejected) else f"{verdict.timing.speedup:.3f}x"
        self.log.append("final", search=self.name, candidate=candidate.id, outcome=outcome)

    def _expander(self) -> Expander:
        return Expander(task=self.task, tried=self.tried, proposer=self.proposer, trials=self.trials, candidates=self.candidates)

    def _best(self) -> Candidate:
        return max(self.candidates, key=lambda c: (speed(c), -c.id))

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
            seconds=self._used_s,
            prior=self.memory.prior,
            recent=self.memory.recent,
            gained=self.memory.gained,
        )
        best = self._best()
        self.log.append(
            "round", search=self.name, round=self.rounds_done, beam=list(state.beam), best=best.id, speedup=speed(best)
        )
        if self.progress is not None:
            self.progress(state)

    def _restore(self, state: SearchState) -> None:
        if (state.workload, state.target) != (self.task.workload.digest, self.task.target):
            raise InvalidRecord(f"the saved search is of workload {state.workload[:12]} on {state.target}, not of this one")
        self.rounds_done, self.flat_rounds, self.tried = state.round, state.flat_rounds, state.tried
        self.candidates, self.tuned = list(state.candidates), set(state.tuned)
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
            evaluated=self.trials.evaluated,
            duplicates=self.trials.duplicates,
            rounds=self.rounds_done,
            seconds=self._used_s,
            experiences=self.memory.gained,
        )


def _no_winner(because: str, stopped: str) -> str:
    """Why there is no winner; and why no further round was tried, where that is another reason."""
    return f"no winner, because {because}; the search stopped because {stopped}" if because else f"no winner, because {stopped}"


def _search_name(task: SearchTask, seed: int) -> str:
    """What marks this search's events in a log that several searches share."""
    return sha256_text(canonical_json([task.workload.digest, task.target, dict(task.binding), seed]))[:16]
