"""Kernels and searches for the tests of this room, all in the simulated world."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from accelopt_compile.events import Log, MemoryLog
from accelopt_compile.records import Accepted, Candidate, ErrorReport, Experience, KernelSource, Plan, Timing
from accelopt_compile.search import Budget, Memory, Proposer, SearchResult, SearchSettings, SearchState, search
from accelopt_compile.search.builtin import BuiltinProposer
from accelopt_compile.search.simulated import Landscape, SimulatedEvaluator, simulated_task


def candidate(id: int, speedup: float, *, parent: int | None = 0, text: str | None = None) -> Candidate:
    """A kernel that runs at `speedup` times the baseline."""
    timing = Timing(
        kernel_us=100 / speedup, baselines_us={"eager": 100.0}, speedup=speedup, low=speedup, high=speedup, blocks=5, threads=1
    )
    return Candidate(
        id=id,
        parent=parent,
        plan=None if parent is None else Plan(text=f"plan of {id}"),
        source=KernelSource(language="cpp", text=f"kernel {id}" if text is None else text),
        tunables={},
        verdict=Accepted(errors=ErrorReport(worst_share=0.1, cases=1), timing=timing),
    )


def experience(speedup: float = 1.5, *, helped: bool = True, workload: str = "w", **given: object) -> Experience:
    """An experience of the simulated backend."""
    fields: dict[str, object] = {"family": "norm", "arch": "cpu", "change": {"structure.loop": "tiles"}, "lesson": "tiles"}
    fields |= given
    return Experience(backend="simulated", workload=workload, helped=helped, speedup=speedup, **fields)  # type: ignore[arg-type]


@dataclass(kw_only=True)
class World:
    """One search in the simulated world, ready to run; every part can be replaced."""

    number: int = 0
    family: str = "norm"
    settings: SearchSettings = field(default_factory=lambda: SearchSettings.preset("default"))
    seed: int = 0
    seconds: float | None = None
    candidates: int | None = 500
    start: float = 0.8
    prior: Sequence[Experience] = ()
    proposer: Proposer = field(default_factory=BuiltinProposer)
    companion: Proposer | None = None
    log: Log = field(default_factory=MemoryLog)
    states: list[SearchState] = field(default_factory=list)
    made_by: Callable[..., SimulatedEvaluator] = SimulatedEvaluator

    def __post_init__(self) -> None:
        landscape = Landscape(family=self.family, workload=self.number, start=self.start)
        self.evaluator = self.made_by(landscape=landscape, seed=self.seed)
        self.clock = self.evaluator.clock
        self.memory = Memory(prior=self.prior)
        self.task = simulated_task(self.number, family=self.family, settings=self.settings)
        self.budget = Budget(seconds=self.seconds, candidates=self.candidates, clock=self.clock)

    def run(self, *, resume: SearchState | None = None) -> SearchResult:
        return search(
            self.task,
            proposer=self.proposer,
            companion=self.companion,
            evaluator=self.evaluator,
            memory=self.memory,
            budget=self.budget,
            rng=random.Random(self.seed),
            clock=self.clock,
            log=self.log,
            progress=self.states.append,
            resume=resume,
        )
