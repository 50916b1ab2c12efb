"""The proposer without a language model."""

from __future__ import annotations

import random
from dataclasses import replace

from accelopt_compile.records import Candidate, Plan
from accelopt_compile.search import NoSource, TeachingPair, Tried
from accelopt_compile.search.builtin import BuiltinProposer
from accelopt_compile.search.proposer import Call
from accelopt_compile.search.simulated import GRAMMAR, simulated_task
from tests.search.worlds import candidate, experience

TASK = simulated_task(0)
PROPOSER = BuiltinProposer()


def call(seed: int) -> Call:
    return Call(name="0/0", rng=random.Random(seed))


def kernel(id: int = 0, speedup: float = 1.0, **structure: str) -> Candidate:
    source = TASK.backend.render(TASK.workload, structure)
    return replace(candidate(id, speedup), source=source, tunables=source.defaults())


def test_a_plan_is_one_structural_step_and_none_comes_twice() -> None:
    """Without experience all single changes come up, each once."""
    plans = PROPOSER.plan(TASK, kernel(), (), 100, call(0))
    steps = {tuple(plan.change.items()) for plan in plans}
    expected = {((f"structure.{name}", value),) for name, values in GRAMMAR.items() for value in values[1:]}
    assert expected == steps
    assert len(expected) == len(plans)


def test_without_experience_the_choices_take_turns() -> None:
    """The first plans are about different choices."""
    plans = PROPOSER.plan(TASK, kernel(), (), len(GRAMMAR), call(1))
    assert set(GRAMMAR) == {next(iter(plan.change)).removeprefix("structure.") for plan in plans}


def test_what_helped_comes_first_and_what_hurt_last() -> None:
    """Ordered by speedup and similarity."""
    helped = experience(1.5, change={"structure.store": "stream"})
    more = experience(2.0, change={"structure.exp": "polynomial"})
    hurt = experience(1.8, helped=False, change={"structure.sum": "four"})
    plans = PROPOSER.plan(TASK, kernel(), (hurt, helped, more), 100, call(0))
    steps = [next(iter(plan.change.items())) for plan in plans]
    assert [("structure.exp", "polynomial"), ("structure.store", "stream")] == steps[:2]
    assert ("structure.sum", "four") == steps[-1]


def test_structures_tried_in_this_run_are_not_planned_again() -> None:
    """Neither by the way they were reached then nor by another."""
    there = kernel(loop="tiles", store="stream").source.structure
    task = replace(TASK, tried=(Tried(parent=0, plan=Plan(text=""), structure=there, relative=1.1, outcome=""),))
    plans = PROPOSER.plan(task, kernel(loop="tiles"), (), 100, call(0))
    assert {"structure.store": "stream"} not in [plan.change for plan in plans]


def test_numbers_known_for_the_new_structure_ride_along() -> None:
    """The plan names them, and the first attempt starts from them; then from the parent's, then from the template's. The numbers
    of a parent whose numbers were searched come first: they were measured here."""
    there = dict(kernel(loop="tiles").source.structure)
    known = experience(structure=there, tunables={"TILE": 16, "UNROLL": 4, "GRAIN": 256})
    parent = replace(kernel(), tunables={"TILE": 128, "UNROLL": 2, "GRAIN": 1024})
    (plan,) = PROPOSER.plan(TASK, parent, (known,), 1, call(0))
    assert plan.text == "Set loop to tiles (now rows). Start from GRAIN=256, TILE=16, UNROLL=4."
    borrowed, template = {"TILE": 16, "UNROLL": 4, "GRAIN": 256}, kernel().source.defaults()
    expected = {"searched": [parent.tunables, borrowed, template], "not searched": [borrowed, template]}
    for name, tried in {"searched": parent, "not searched": replace(parent, tunables=template)}.items():
        sources = PROPOSER.attempt(TASK, tried, plan, 3, call(0))
        starts = [source.defaults() for source in sources if not isinstance(source, NoSource)]
        assert expected[name] == starts[: len(expected[name])]


def test_a_change_outside_the_grammar_gives_no_source() -> None:
    """The executor says why instead of raising."""
    (answer,) = PROPOSER.attempt(TASK, kernel(), Plan(text="", change={"structure.loop": "spiral"}), 1, call(0))
    assert NoSource(reason="loop=spiral is not in the grammar") == answer


def test_a_lesson_names_the_change_where_and_how_much() -> None:
    """A plan that helped is kept as it is, with the faster kernel's configuration."""
    seed, child = kernel(), kernel(1, 1.5, loop="tiles")
    pair = TeachingPair(slow=seed, fast=child, plan=Plan(text=""), helped=True, speedup=1.5)
    lesson = PROPOSER.summarize(TASK, pair, call(0))
    assert lesson is not None
    assert "On norm (cpu), loop from rows to tiles made it 1.50x faster." == lesson.lesson
    assert ({"structure.loop": "tiles"}, True) == (lesson.change, lesson.helped)
    assert child.source.structure == lesson.structure


def test_a_plan_that_hurt_is_kept_as_what_to_undo() -> None:
    """`change` is the step that hurt; the configuration is the faster kernel's, here the parent's."""
    seed, child = kernel(), kernel(1, 0.5, loop="tiles")
    pair = TeachingPair(slow=child, fast=seed, plan=Plan(text=""), helped=False, speedup=2.0)
    lesson = PROPOSER.summarize(TASK, pair, call(0))
    assert lesson is not None
    assert ({"structure.loop": "tiles"}, False) == (lesson.change, lesson.helped)
    assert seed.source.structure == lesson.structure


def test_equal_kernels_teach_nothing() -> None:
    """There is no lesson where nothing differs."""
    pair = TeachingPair(slow=kernel(), fast=kernel(1, 1.2), plan=Plan(text=""), helped=True, speedup=1.2)
    assert PROPOSER.summarize(TASK, pair, call(0)) is None
