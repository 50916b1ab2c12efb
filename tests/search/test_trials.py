"""Each kernel is evaluated once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from accelopt_compile.events import MemoryLog
from accelopt_compile.records import Accepted, KernelSource, Rejected, Verdict
from accelopt_compile.search import Budget
from accelopt_compile.search.simulated import Landscape, SimulatedBackend, SimulatedEvaluator, simulated_workload
from accelopt_compile.search.trials import BudgetSpent, Duplicate, Effort, Trials, normalised, trial_key

BACKEND = SimulatedBackend()
SEED = BACKEND.seed(simulated_workload(0))


class SameObject(SimulatedEvaluator):
    """A toolchain that makes one object code of everything."""

    def evaluate(self, source: KernelSource, tunables: Mapping[str, int], *, effort: Effort = "quick") -> Verdict:
        verdict = super().evaluate(source, tunables, effort=effort)
        assert isinstance(verdict, Accepted)
        return Accepted(errors=verdict.errors, timing=verdict.timing, features={"object_digest": "abc"})


def trials(evaluator: SimulatedEvaluator, *, seconds: float | None = None, log: MemoryLog | None = None) -> Trials:
    budget = Budget(seconds=seconds, clock=evaluator.clock)
    return Trials(evaluator=evaluator, budget=budget, clock=evaluator.clock, log=log or MemoryLog(), name="s")


def evaluator() -> SimulatedEvaluator:
    return SimulatedEvaluator(landscape=Landscape(family="norm", workload=0))


def test_a_kernel_with_other_comments_and_spaces_is_a_duplicate() -> None:
    """Comments, blank lines and C++ white space do not make a kernel new; other tunables do."""
    world = evaluator()
    run = trials(world)
    again = KernelSource(language="cpp", text="/* new\n words */\n" + SEED.text.replace(" = ", "  =\t"), tunables=SEED.tunables)
    assert isinstance(run.run(SEED, SEED.defaults()), Accepted)
    assert isinstance(run.run(again, SEED.defaults()), Duplicate)
    assert isinstance(run.run(SEED, {**SEED.defaults(), "UNROLL": 2}), Accepted)
    assert (2, 2, 1) == (len(world.evaluations), run.evaluated, run.duplicates)


def test_python_indentation_makes_a_difference() -> None:
    """In an indented language only comments, blank lines and trailing white space are nothing."""
    sources = [KernelSource(language="triton", text=text) for text in ("a\n  b  # c\n\n", "a\n  b\n", "a\nb\n")]
    assert ["a\n  b", "a\n  b", "a\nb"] == [normalised(source) for source in sources]


def test_equal_object_code_is_a_duplicate() -> None:
    """Another text that compiles to the same object code is not another candidate."""
    run = trials(SameObject(landscape=Landscape(family="norm", workload=0)))
    other = BACKEND.render(simulated_workload(0), {"loop": "tiles"})
    assert [Accepted, Duplicate] == [type(run.run(s, s.defaults())) for s in (SEED, other)]


def test_kernels_handed_over_together_come_back_in_order() -> None:
    """Duplicates among them included."""
    world = evaluator()
    other = BACKEND.render(simulated_workload(0), {"loop": "flat", "sum": "pairwise"})
    numbers = SEED.defaults()
    got = list(trials(world).run_each([(SEED, numbers), (SEED, numbers), (other, numbers)]))
    assert [Accepted, Duplicate, Rejected] == [type(verdict) for verdict in got]
    assert 2 == len(world.evaluations)


def test_what_the_log_holds_is_replayed() -> None:
    """A second process with the same log asks the evaluator nothing, and spends the same."""
    log = MemoryLog()
    first = trials(evaluator(), log=log).run(SEED, SEED.defaults())
    world = evaluator()
    budget = Budget(seconds=10, candidates=5, clock=world.clock)
    again = Trials(evaluator=world, budget=budget, clock=world.clock, log=log, name="s")
    assert first == again.run(SEED, SEED.defaults())
    assert (0, 9.0, 4) == (len(world.evaluations), budget.remaining_s, budget.remaining_candidates)


def test_another_search_in_the_same_log_is_not_replayed() -> None:
    """Events carry the name of their search."""
    log = MemoryLog()
    trials(evaluator(), log=log).run(SEED, SEED.defaults())
    world = evaluator()
    other = Trials(evaluator=world, budget=Budget(clock=world.clock), clock=world.clock, log=log, name="t")
    other.run(SEED, SEED.defaults())
    assert 1 == len(world.evaluations)


def test_time_for_the_final_evaluation_is_kept_back() -> None:
    """Of 20 s at 1 s a kernel, a quarter is left for the full evaluation, which may always run."""
    world = evaluator()
    run = trials(world, seconds=20)
    with pytest.raises(BudgetSpent):
        for tile in (64, 16, 32, 128, 256):
            for unroll in (1, 2, 4, 8):
                run.run(SEED, {"TILE": tile, "UNROLL": unroll, "GRAIN": 1024})
    assert 15 == run.evaluated
    assert isinstance(run.run(SEED, SEED.defaults(), effort="full"), Accepted)


def test_the_key_tells_efforts_and_numbers_apart() -> None:
    """A full evaluation is not a duplicate of a quick one."""
    keys = {trial_key(SEED, {"A": 1}), trial_key(SEED, {"A": 2}), trial_key(SEED, {"A": 1}, "full")}
    assert 3 == len(keys)
