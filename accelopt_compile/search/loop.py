"""The loop: seed, then rounds of plan, attempt, evaluate, learn and select, then one winner or the reason why none.

Read `search`, then `Run` (run.py) from top to bottom.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from accelopt_compile.events import Log
from accelopt_compile.search.budget import Budget
from accelopt_compile.search.memory import Memory
from accelopt_compile.search.proposer import Proposer
from accelopt_compile.search.run import Progress, Run
from accelopt_compile.search.state import SearchState
from accelopt_compile.search.task import SearchResult, SearchTask
from accelopt_compile.search.trials import Evaluator

_INTERRUPTED = "it was interrupted"


class SearchInterrupted(KeyboardInterrupt):
    """Ctrl-C during a search. `result` holds what there is: a winner only if its full evaluation was already there."""

    def __init__(self, result: SearchResult) -> None:
        super().__init__("search interrupted; the next one of this region goes on from what the cache has of it")
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
    run = Run(task, proposer, companion, evaluator, memory, budget, rng, clock, log, progress, resume)
    try:
        reason = run.open() if resume is None else run.stop()
        while reason is None:
            reason = run.round() or run.stop()
        run.polish()
        return run.close(reason)
    except KeyboardInterrupt as interrupt:
        raise SearchInterrupted(run.result(_INTERRUPTED, winner=run.winner)) from interrupt
