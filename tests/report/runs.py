"""Sample runs: real searches in the simulated world, with their logs and states in a store, and calls as a model room
would have recorded them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from accelopt_cache.kernel_store import Store
from accelopt_cache.run_store import Run
from accelopt_compile.events import RunLog
from accelopt_compile.records import Candidate, Experience, KernelSource, Plan, Rejected
from accelopt_compile.search import SearchResult, SearchSettings, SearchState, SearchTask
from accelopt_compile.search.builtin import BuiltinProposer
from accelopt_compile.search.memory import Memory
from accelopt_compile.search.proposer import Call, NoSource, TeachingPair
from accelopt_compile.search.simulated import SimulatedClock
from tests.search.worlds import World

HOSTILE = "<script>alert('x')</script></pre><img src=https://example.invalid/x onerror=alert(1)>\u202e\x00"


def about(world: World, **given: Any) -> dict[str, Any]:
    """run.json of a world's search, but for what the store adds."""
    task = world.task
    filled: dict[str, Any] = {
        "workload": task.workload.digest,
        "target": task.target,
        "binding": dict(task.binding),
        "family": task.family,
        "name": "exp over rows",
        "settings": {"rounds": task.settings.rounds, "beam_width": task.settings.beam_width},
        "proposer": "builtin",
        "models": {},
        "base_url": None,
        "budget": {"usd": None, "tokens": None, "seconds": None, "candidates": world.candidates},
        "environment": {"cpu": "a simulated one", "threads": "1"},
        "roofline_us": 15.0,
        "seed": 0,
    }
    return filled | given


@dataclass(kw_only=True)
class Talker:
    """Stands for the model agents: the built-in proposer's answers as texts that a model could have written, each call
    recorded in `calls`. `says` goes into every plan, source and reply."""

    clock: SimulatedClock
    says: str = ""
    usd: float | None = 0.002
    calls: list[dict[str, Any]] = field(default_factory=list)
    inner: BuiltinProposer = field(default_factory=BuiltinProposer)
    concurrent = False
    trouble = ""

    def recall(self, task: SearchTask, memory: Memory) -> Sequence[Experience]:
        return self.inner.recall(task, memory)

    def plan(
        self, task: SearchTask, parent: Candidate, experiences: Sequence[Experience], count: int, call: Call
    ) -> Sequence[Plan]:
        plans = self.inner.plan(task, parent, experiences, count, call)
        self.tell("planner", "\n".join(p.text for p in plans))
        return [replace(p, text=f"{p.text} {self.says}".strip()) for p in plans]

    def attempt(
        self, task: SearchTask, parent: Candidate, plan: Plan, count: int, call: Call
    ) -> Sequence[KernelSource | NoSource]:
        return [self.written(a) for a in self.inner.attempt(task, parent, plan, count, call)]

    def written(self, attempt: KernelSource | NoSource) -> KernelSource | NoSource:
        if isinstance(attempt, NoSource):
            return attempt
        source = replace(attempt, text=f"{attempt.text}// {self.says}\n", origin="llm")
        self.tell("executor", source.text)
        return source

    def fix(self, task: SearchTask, source: KernelSource, rejected: Rejected, call: Call) -> KernelSource | None:
        self.tell("fixer", "", problem="timeout")
        return None

    def summarize(self, task: SearchTask, pair: TeachingPair, call: Call) -> Experience | None:
        lesson = self.inner.summarize(task, pair, call)
        self.tell("summarizer", "" if lesson is None else lesson.lesson)
        return None if lesson is None else replace(lesson, lesson=f"{lesson.lesson} {self.says}".strip())

    def tell(self, role: str, text: str, problem: str = "") -> None:
        """Record a call that takes two seconds."""
        self.clock.advance(2.0)
        request = {"role": role, "model": "small-1", "system": "s", "user": "u", "call": "0/0", "max_tokens": 100, "effort": None}
        usage = {"prompt": 1000, "cached": 600, "completion": 200, "estimated": False}
        told = {"text": f"{text} {self.says}", "problem": problem, "detail": "", "usage": usage, "usd": self.usd}
        reply = told | {"seconds": 2.0, "tries": 1, "model": f"small-1 {self.says}".strip(), "request_id": "r"}
        line = {"key": f"k{len(self.calls)}", "at_s": self.clock(), "request": request, "reply": reply}
        self.calls.append({**line, "prompt_digest": "p", "reply_digest": "d"})


def searched(store: Store, world: World, *, resume: SearchState | None = None, run: Run | None = None, **given: Any) -> Run:
    """Run a world's search as a run of the store, to its end."""
    run = run or store.runs.create(about(world, **given))
    assert run is not None
    world.log = RunLog(run.events_path, clock=world.clock)
    world.log.append("begun")
    world.states = Saving(run)
    with run.lock as mine:
        assert mine
        result = world.run(resume=resume)
        if isinstance(world.proposer, Talker):
            run.calls_path.write_text("".join(json.dumps(call) + "\n" for call in world.proposer.calls))
        run.finish(ending(result))
    return run


class Saving(list[SearchState]):
    """Where a world puts its states: into the run, as they come."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def append(self, state: SearchState) -> None:
        super().append(state)
        self.run.save_state(state.to_json())


def ending(result: SearchResult) -> Mapping[str, Any]:
    """result.json."""
    best = result.best
    return {
        "outcome": "baseline" if best is None else "winner",
        "reason": result.reason,
        "speedup": None if best is None else best.verdict.timing.speedup,
        "record": None,
        "evaluated": result.evaluated,
        "rejected": dict(result.rejected),
        "duplicates": result.duplicates,
        "rounds": result.rounds,
        "seconds": result.seconds,
        "spending": {},
    }


class Killed(BaseException):
    """What a process that is killed in the middle of a search looks like from inside."""


def killed(store: Store, world: World, *, after: int, **given: Any) -> Run:
    """A run whose process died after so many evaluations: logs and the last saved state, no result."""
    run = store.runs.create(about(world, **given))
    assert run is not None

    class Dying(RunLog):
        def append(self, kind: str, /, **data: Any) -> None:
            if kind == "verdict" and sum(e["kind"] == "verdict" for e in self.events()) == after:
                raise Killed
            super().append(kind, **data)

    world.log, world.states = Dying(run.events_path, clock=world.clock), Saving(run)
    try:
        world.run()
    except Killed:
        return run
    raise AssertionError("the search ended before it was killed")


def small(**given: Any) -> World:
    """A search of some fifty kernels that ends with a winner."""
    return World(settings=SearchSettings.preset("quick"), candidates=60, **given)


def large(*, says: str = "", usd: float | None = 0.002) -> World:
    """A search of 500 kernels, with a model's costs."""
    settings = replace(SearchSettings.preset("full"), patience=0, stop_at_roofline=None)
    world = World(settings=settings, candidates=500)
    world.proposer = Talker(clock=world.clock, says=says, usd=usd)
    return world
