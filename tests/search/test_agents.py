"""The agents in the loop, in the simulated world, with a model that answers from what the prompt says."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from accelopt_backends.reference import ReferenceBackend
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.events import MemoryLog
from accelopt_compile.llm.client import ROLES, Reply, Request
from accelopt_compile.llm.recording import RecordingClient, ReplayClient
from accelopt_compile.llm.scripted import ScriptedClient
from accelopt_compile.records import KernelSource, Rejected, Stage, Verdict
from accelopt_compile.search import SearchSettings
from accelopt_compile.search.agents import AgentProposer
from accelopt_compile.search.builtin import BuiltinProposer
from accelopt_compile.search.describe import with_lines
from accelopt_compile.search.executor import source_in
from accelopt_compile.search.proposer import NoSource
from accelopt_compile.search.recorded import RecordedProposer
from accelopt_compile.search.simulated import SimulatedEvaluator
from accelopt_compile.search.simulated_model import SimulatedModel
from accelopt_compile.search.trials import Effort
from tests.search.worlds import World

MODELS = {role: ["model"] for role in ROLES}
SETTINGS = SearchSettings(rounds=4, patience=0, hopeless_after=0)


class Heard:
    """A model that writes down what it was asked."""

    def __init__(self, answer: Callable[[Request], str | Reply]) -> None:
        self.requests: list[Request] = []
        self._answer, self._lock = answer, threading.Lock()

    def __call__(self, request: Request) -> str | Reply:
        with self._lock:
            self.requests.append(request)
        return self._answer(request)

    def asked(self, role: str) -> list[Request]:
        return [r for r in self.requests if r.role == role]


def agents(answer: Callable[[Request], str | Reply], **given: object) -> AgentProposer:
    return AgentProposer(ScriptedClient(answer), models=MODELS, **given)  # type: ignore[arg-type]


def test_agents_find_a_faster_kernel_than_the_seed() -> None:
    """Four rounds of plans, kernels and lessons end with a winner that a model wrote."""
    result = World(proposer=agents(SimulatedModel()), settings=SETTINGS).run()
    assert result.best is not None
    assert "llm" == result.best.source.origin


def test_a_run_does_not_depend_on_who_answers_first() -> None:
    """Answers that come in another order make the same run, event for event."""

    def slow(request: Request) -> Reply:
        time.sleep(hash(request.key) % 7 / 1000)
        return SimulatedModel(faults=0.2)(request)

    first, second = (World(proposer=agents(slow), settings=SETTINGS, log=MemoryLog()) for _ in range(2))
    assert first.run() == second.run()
    assert list(first.log.events()) == list(second.log.events())


def test_a_recorded_run_replays_offline(tmp_path: Path) -> None:
    """From the recording alone, without a model, the same run comes out."""
    calls = tmp_path / "calls.jsonl"
    recorder = RecordingClient(ScriptedClient(SimulatedModel(faults=0.2)), calls)
    first = World(proposer=AgentProposer(recorder, models=MODELS), settings=SETTINGS)
    found = first.run()
    second = World(proposer=AgentProposer(ReplayClient(calls), models=MODELS), settings=SETTINGS)
    assert found == second.run()
    assert list(first.log.events()) == list(second.log.events())


def test_an_unusable_answer_costs_one_attempt() -> None:
    """Half of the answers are rubbish; the run goes on and finds something."""
    result = World(proposer=agents(SimulatedModel(faults=0.5)), settings=SETTINGS).run()
    assert result.best is not None


@pytest.mark.parametrize(
    "answer", ["", "I refuse.", "```cpp\n", '{"plans": "x"}', "{" * 5000, "\x00" * 100, "```text\nloop = spiral;\n```"]
)
def test_a_model_that_never_answers_well_leaves_the_seed(answer: str) -> None:
    """No answer of one kind breaks the run; the seed is what there is."""
    result = World(proposer=agents(lambda _: answer), settings=SETTINGS, start=1.5).run()
    assert result.best is not None
    assert "seed" == result.best.source.origin


def test_a_refused_key_ends_the_run_with_the_reason() -> None:
    """After a fatal problem nobody is asked again."""
    model = Heard(lambda _: Reply(problem="authentication", detail="key refused"))
    result = World(proposer=agents(model), settings=SETTINGS).run()
    assert "the language model cannot be asked further: authentication: key refused" in result.reason
    assert {"planner"} == {request.role for request in model.requests}
    assert all(request.call.startswith("0/") for request in model.requests)


def test_the_built_in_proposer_takes_over_from_a_model_in_trouble() -> None:
    """With a companion the search goes on without the model."""
    model = Heard(lambda _: Reply(problem="budget", detail="spent"))
    world = World(proposer=agents(model), companion=BuiltinProposer(), settings=replace(SETTINGS, patience=3))
    result = world.run()
    assert result.best is not None
    assert ["takeover"] == [e["kind"] for e in world.log.events() if e["kind"] == "takeover"]
    assert result.rounds > 1


@dataclass(kw_only=True)
class Noticing(SimulatedEvaluator):
    """Sets `begun` once kernels beyond the seed and its tuning are evaluated."""

    begun: threading.Event = field(default_factory=threading.Event)

    def evaluate(self, source: KernelSource, tunables: Mapping[str, int], *, effort: Effort = "quick") -> Verdict:
        if len({text for text, _, _ in self.evaluations}) > 1:
            self.begun.set()
        return super().evaluate(source, tunables, effort=effort)


def test_the_companion_works_while_the_model_thinks() -> None:
    """Its kernels are evaluated before the model's first answer is there."""
    begun = threading.Event()

    def waits(request: Request) -> Reply:
        assert begun.wait(30)
        return SimulatedModel()(request)

    made_by = partial(Noticing, begun=begun)
    world = World(proposer=agents(waits), companion=BuiltinProposer(), settings=replace(SETTINGS, rounds=1), made_by=made_by)
    assert {"seed", "mutation", "llm"} == {c.source.origin for c in world.run().candidates}


def test_a_mixed_run_is_repeatable_from_its_log() -> None:
    """How long the companion worked depends on the clock; a run that knows it from the log is the same run."""

    def slow(request: Request) -> Reply:
        time.sleep(0.002)
        return SimulatedModel(faults=0.2)(request)

    first = World(proposer=agents(slow), companion=BuiltinProposer(), settings=SETTINGS)
    found = first.run()
    known = MemoryLog()
    for event in first.log.events():
        if event["kind"] == "fill":
            known.append("fill", search=event["search"], round=event["round"], parents=event["parents"])
    second = World(proposer=agents(SimulatedModel(faults=0.2)), companion=BuiltinProposer(), settings=SETTINGS, log=known)
    assert found == second.run()


def test_each_role_asks_its_own_models_in_turn() -> None:
    """A list of models takes turns; a role has its own list."""
    model = Heard(SimulatedModel())
    proposer = AgentProposer(
        ScriptedClient(model), models={"planner": ["p"], "executor": ["a", "b"], "fixer": ["f"], "summarizer": ["s"]}
    )
    World(proposer=proposer, settings=SETTINGS).run()
    used = {role: set(Counter(r.model for r in model.asked(role))) for role in ROLES}
    assert {"p"} == used["planner"]
    assert {"a", "b"} == used["executor"]
    assert used["fixer"] <= {"f"}
    assert {"s"} == used["summarizer"]


def test_a_rejected_kernel_goes_to_the_fixer_with_its_diagnosis() -> None:
    """The fixer reads the kernel, the stage and the reason, and what it gives is evaluated."""
    model = Heard(SimulatedModel())
    world = World(proposer=agents(model), settings=replace(SETTINGS, rounds=8))
    result = world.run()
    assert result.rejected
    fixer = model.asked("fixer")
    assert fixer
    assert all("a flaw of this structure" in request.user for request in fixer)


def test_a_lesson_of_one_round_is_read_in_the_next() -> None:
    """What the summarizer wrote stands in later planners' prompts."""
    model = Heard(SimulatedModel())
    result = World(proposer=agents(model), settings=SETTINGS).run()
    lessons = [e.lesson for e in result.experiences if e.lesson.startswith("**")]
    assert lessons
    assert any(lessons[0] in request.system for request in model.asked("planner"))


def test_a_diagnosis_quotes_the_lines_that_it_names() -> None:
    """Authors see another numbering than compilers: the library is one line for them."""
    told = "kernel.cpp:2:7: error: 'x' was not declared\nline 3: a string\nline 99: nowhere"
    expected = [
        "kernel.cpp:2:7: error: 'x' was not declared",
        "    there: return x;",
        "line 3: a string",
        "    there: }",
        "line 99: nowhere",
    ]
    assert expected == with_lines(told, "int f() {\n  return x;\n}\n").splitlines()


class Unreadable(BuiltinProposer):
    """Reading what its model said fails, for all but the plans."""

    def __init__(self, failure: BaseException) -> None:
        self.failure = failure

    def attempt(self, *given: object) -> Sequence[KernelSource | NoSource]:
        raise self.failure

    def summarize(self, *given: object) -> None:
        raise self.failure


@pytest.mark.parametrize(
    "failure", [ValueError, RecursionError, OverflowError, UnicodeError, KeyError, TypeError, AttributeError]
)
def test_a_reply_that_cannot_be_read_ends_no_run(failure: type[Exception]) -> None:
    """Attempts become answers without a kernel, with the reason in the log."""
    log = MemoryLog()
    World(proposer=Unreadable(failure("deep")), settings=SETTINGS, log=log, candidates=20).run()
    replies = [attempt for event in log.events() if event["kind"] == "attempts" for attempt in event["reply"]]
    assert replies and all("the answer could not be read" in attempt["no_source"] for attempt in replies)


@pytest.mark.parametrize("failure", [InvalidRecord, AssertionError, KeyboardInterrupt])
def test_errors_of_our_own_and_ctrl_c_end_a_run(failure: type[BaseException]) -> None:
    """They are not the model's doing."""
    with pytest.raises(failure):
        World(proposer=Unreadable(failure("ours")), settings=SETTINGS, candidates=20).run()


@pytest.mark.parametrize("values", ["[" * 100_000, "[1e999]", "5"])
def test_a_bad_declaration_in_any_language_is_no_kernel(values: str) -> None:
    """The reference backend's form of it; for C++ see tests/backends/test_authored.py."""
    text = f'```python\n# TUNABLES: {{"A": {values}}}\nx\n```\n'
    found = source_in(Reply(text=text), ReferenceBackend())
    assert isinstance(found, NoSource) and "TUNABLES" in found.reason


@pytest.mark.parametrize("problem", ["connection", "timeout", "rate_limit", "server", "malformed"])
def test_a_model_that_cannot_be_reached_is_given_up_after_three_calls(problem: str) -> None:
    """The built-in proposer goes on alone, and the log says why."""
    log = MemoryLog()
    heard = Heard(lambda _: Reply(problem=problem, detail="nobody there"))
    world = World(proposer=agents(heard), companion=BuiltinProposer(), settings=SETTINGS, log=log)
    world.run()
    (told,) = [event["because"] for event in log.events() if event["kind"] == "takeover"]
    assert f"the language model did not answer 3 calls in a row: {problem}: nobody there" == told
    assert 3 == len(heard.requests)


def test_calls_that_found_no_place_say_nothing_of_the_model() -> None:
    """A client asks so many at a time; what waited in vain was never sent."""
    heard = Heard(lambda _: Reply(problem="timeout", detail="all places were taken", tries=0))
    World(proposer=(asked := agents(heard)), settings=SETTINGS).run()
    assert 3 <= len(heard.requests)
    assert "" == asked.trouble


class Slow(BuiltinProposer):
    """Takes long for a repair and a lesson, as a model may."""

    concurrent = True

    def __init__(self) -> None:
        self.over = threading.Event()

    def fix(self, *given: object) -> None:
        self.over.wait(60)

    def summarize(self, *given: object) -> None:
        self.over.wait(60)


def test_repairs_and_lessons_end_with_the_budget() -> None:
    """An answer may take minutes more than a search has."""
    slow = Slow()
    asked = RecordedProposer(slow, log=MemoryLog(), name="n", seed=1)
    world = World()
    source = world.task.backend.seed(world.task.workload)
    rejected = Rejected(stage=Stage.BUILD, reason="no")
    began = time.monotonic()
    assert [None, None] == asked.fixes(world.task, [("a", source, rejected), ("b", source, rejected)], left_s=0.05)
    assert [None] == asked.fixes(world.task, [("c", source, rejected)], left_s=-1.0)
    assert 30 > time.monotonic() - began
    slow.over.set()
    assert [None] == asked.fixes(world.task, [("d", source, rejected)], left_s=30.0)


def test_an_answer_between_failures_is_no_trouble() -> None:
    """Only failures in a row count, and a model that answers again is back."""
    replies = iter(["timeout", "timeout", "", "timeout", "timeout"])
    asked = agents(lambda _: Reply(problem=next(replies, "")))
    world = World(proposer=asked, settings=SETTINGS)
    world.run()
    assert "" == asked.trouble
