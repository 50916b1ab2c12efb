"""The loop: seed, then rounds of plan, attempt, evaluate, learn and select, then one winner or the reason why none.

Read `search`, then `_Run` from top to bottom: its methods are the steps of a run in their order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from accelopt_compile.errors import InvalidRecord
from accelopt_compile.events import Log
from accelopt_compile.records import Accepted, Candidate, Rejected, canonical_json, sha256_text
from accelopt_compile.search.budget import Budget
from accelopt_compile.search.expand import Expander, Expansion, warm_starts
from accelopt_compile.search.memory import Memory, placed, proven_configurations, winner_experience
from accelopt_compile.search.proposer import Proposer
from accelopt_compile.search.recorded import RecordedProposer, Thinking
from accelopt_compile.search.selection import BELIEVED, Group, elitist_beam, fastest_texts, paper_beam, speed, teaching_pairs
from accelopt_compile.search.state import SearchState, experience_json
from accelopt_compile.search.stopping import decide, stop_reason, wins
from accelopt_compile.search.task import SearchResult, SearchTask, Tried
from accelopt_compile.search.trials import BudgetSpent, Evaluator, Trials
from accelopt_compile.wording import times_text

Progress: TypeAlias = Callable[[SearchState], object]
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
    companion: Proposer | None = None,
    progress: Progress | None = None,
    resume: SearchState | None = None,
) -> SearchResult:
    """Search for a kernel that beats the baseline on `task`.

    A pure function of its arguments: two calls with equal ones give equal results. `clock` counts seconds, as the
    budget's does. A `companion` (the built-in proposer) fills the time in which a concurrent proposer thinks, and takes over
    when that one can give no more, or its kernels get no faster.

    With the `log` of a run that died and the last state it saved (`resume`, None if it saved none) the run goes on where it
    was and evaluates nothing twice. A state of the same workload at another binding is left aside: its timings say nothing
    here.

    Raises SearchInterrupted on Ctrl-C, InvalidRecord for a state of another task, and what the proposer or the
    evaluator raise for failures of their own.
    """
    if resume is not None and dict(resume.binding) != dict(task.binding):
        resume = None
    run = _Run(task, proposer, companion, evaluator, memory, budget, rng, clock, log, progress, resume)
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
        self.name = _search_name(task, self.seed)
        known = () if resume is None else resume.known
        self.trials = Trials(evaluator=evaluator, budget=budget, clock=clock, log=log, name=self.name, known=known)
        self.proposer = RecordedProposer(proposer, log=log, name=self.name, seed=self.seed)
        self.companion = None if companion is None else RecordedProposer(companion, log=log, name=self.name, seed=self.seed)
        self.mixed, self.taken_over = companion is not None, False
        fills = (event for event in log.events() if event["kind"] == "fill" and event["search"] == self.name)
        self.fills = {int(event["round"]): int(event["parents"]) for event in fills}
        self.roofline_us = task.least().seconds * 1e6
        self.budget = budget
        self.before_s = budget.used_s
        self.rounds_done = self.flat_rounds = 0
        self.candidates: list[Candidate] = []
        self.beam: tuple[Candidate, ...] = ()
        self.tried: tuple[Tried, ...] = ()
        self.tuned: set[str] = set()
        self.winner: Candidate | None = None
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
        best_before = speed(self._best())
        expansions = self._concurrently(expander) if self.proposer.concurrent else self._in_turn(expander, self.proposer, "")
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
        idle = self.proposer.trouble or _EXHAUSTED
        if self.companion is None:
            return idle
        self._take_over(idle)
        return None

    def stop(self) -> str | None:
        """Why the search is over, or None. Where a companion can go on, it takes over instead."""
        reason = self._stop_reason()
        stuck = self.proposer.trouble or (reason if reason is not None and self._flat() else "")
        if self.companion is None or not stuck or self._stop_at_once() is not None:
            return reason
        self._take_over(stuck)
        return self._stop_reason()

    def _take_over(self, because: str) -> None:
        """The companion goes on alone."""
        if self.companion is not None:
            self.log.append("takeover", search=self.name, round=self.rounds_done, because=because)
            self.proposer, self.companion, self.flat_rounds, self.taken_over = self.companion, None, 0, True

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

    def close(self, reason: str) -> SearchResult:
        """Decide on the winner, remember the way to it, and report."""
        lesson = None
        if self.candidates:
            seed, best = self.candidates[0], self._best()
            if (lesson := winner_experience(self.task, seed, best)) is not None:
                lesson = placed(lesson, slow=seed, fast=best, plan=best.plan, run=self.name, round=str(self.rounds_done))
                self.memory.add([lesson], capacity=self.settings.memory_capacity)
        final = decide(self.candidates, self.settings, self.trials, self._full_verdict)
        kept = final.winner is not None or bool(final.proven)
        told = reason if kept else _no_winner(final.because if self.candidates else "", reason)
        learned = None if lesson is None else experience_json(lesson)
        won = None if final.winner is None else final.winner.id
        self.log.append("stop", search=self.name, reason=told, winner=won, lesson=learned)
        return self.result(told, winner=final.winner)

    # ------------------------------------------------------------ their parts

    def _in_turn(self, expander: Expander, proposer: RecordedProposer, prefix: str) -> list[Expansion]:
        """Every parent of the beam after the other, each knowing what came of those before it. What there is when the
        budget ends still selects and teaches; `stop` then ends the search."""
        expansions: list[Expansion] = []
        for slot, parent in enumerate(self._rendered() if self.mixed else self.beam):
            if not expander.spent:
                expansions += self._expanded(expander, proposer, f"{prefix}{self.rounds_done}/{slot}", parent)
        return expansions

    def _expanded(self, expander: Expander, proposer: RecordedProposer, call: str, parent: Candidate) -> list[Expansion]:
        experiences = proposer.recall(self.task, self.memory)
        return expander.evaluate(proposer.think(call, expander.task(), parent, experiences))

    def _concurrently(self, expander: Expander) -> list[Expansion]:
        """All parents at once; while their plans and attempts are being thought of, the companion's are evaluated."""
        parents = [(f"{self.rounds_done}/{slot}", parent) for slot, parent in enumerate(self.beam)]
        thinking = self.proposer.start(expander.task(), parents, self.proposer.recall(self.task, self.memory))
        filled = [] if self.companion is None else self._filled(expander, self.companion, thinking)
        left_s = self.budget.remaining_s
        if expander.spent or not thinking.done(None if math.isinf(left_s) else left_s):
            return filled
        for thought in thinking.thoughts():
            filled += expander.evaluate(thought) if not expander.spent else []
        return filled

    def _filled(self, expander: Expander, companion: RecordedProposer, thinking: Thinking) -> list[Expansion]:
        """The companion's expansions, one parent after the other until the answers are there. How many that were depends on
        the clock, so the log says it, and a run that is repeated from its log does as many."""
        expansions: list[Expansion] = []
        known, done = self.fills.get(self.rounds_done), 0
        for slot, parent in enumerate(self._rendered()):
            if expander.spent or (thinking.done(0.0) if known is None else done >= known):
                break
            expansions += self._expanded(expander, companion, f"fill/{self.rounds_done}/{slot}", parent)
            done += 1
        if known is None:
            self.log.append("fill", search=self.name, round=self.rounds_done, parents=done)
        return expansions

    def _rendered(self) -> tuple[Candidate, ...]:
        """The fastest kernels that templates rendered: those that a grammar can change."""
        return fastest_texts((c for c in self.candidates if c.source.rendered), self.settings.beam_width)

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
        told = self.proposer.lessons(self.task, [(f"{call}/{index}", pair) for index, pair in enumerate(pairs)])
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
        told = verdict.reason if isinstance(verdict, Rejected) else _speed_text(verdict)
        self.log.append("final", search=self.name, candidate=candidate.id, outcome=told)

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
            taken_over=self.taken_over,
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
        if state.taken_over and self.companion is not None:
            self.proposer, self.companion, self.taken_over = self.companion, None, True
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
            proven=self.proven,
        )


def _speed_text(verdict: Accepted) -> str:
    return times_text(verdict.timing.speedup, verdict.timing.basis, 3)


def _no_winner(because: str, stopped: str) -> str:
    """Why there is no winner; and why no further round was tried, where that is another reason."""
    return f"no winner, because {because}; the search stopped because {stopped}" if because else f"no winner, because {stopped}"


def _search_name(task: SearchTask, seed: int) -> str:
    """What marks this search's events in a log that several searches share."""
    return sha256_text(canonical_json([task.workload.digest, task.target, dict(task.binding), seed]))[:16]
