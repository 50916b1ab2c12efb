"""Each kernel is evaluated once."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from accelopt_compile.events import MemoryLog
from accelopt_compile.records import Accepted, KernelSource, Rejected, Stage, Verdict
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


DIFFERENT = {
    "a comment that only looks open": ("// /*\nint a;\n// */\n", "// /*\nint b;\n// */\n"),
    "a comment in a literal": ("int x = '/*'; int a; // '*/'\n", "int x = '/*'; int b; // '*/'\n"),
    "a comment behind separators": ("int x = 1'000; // '\nint a;\n", "int x = 1'000; // '\nint b;\n"),
    "a comment over a separator": ("int x = 1'0 /* ' // */; int a;\n", "int x = 1'0 /* ' // */; int b;\n"),
    "a comment begun over two lines": ("/\\\n* // */ int a;\n", "/\\\n* // */ int b;\n"),
    "a comment ended over two lines": ("/* *\\\n/ int a; // */\n", "/* *\\\n/ int b; // */\n"),
    "a literal over two lines": ("int x = '\\ \n/*'; int a; //*/\n", "int x = '\\ \n/*'; int b; //*/\n"),
    "nested": ("/* /* */ int a; /* */\n", "/* /* */ int b; /* */\n"),
    "longer than is read": ("int a;" + " " * 300_000, "int b;" + " " * 300_000),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_kernels_that_differ_have_different_keys(case: str) -> None:
    """Whatever looks like a comment around the difference."""
    one, other = (KernelSource(language="cpp", text=text) for text in DIFFERENT[case])
    assert trial_key(one, {}) != trial_key(other, {})


def test_a_hash_in_a_text_of_python_is_no_comment() -> None:
    """In doubt more is left in."""
    one, other = (KernelSource(language="triton", text=f'f("a #{n}")\n') for n in (1, 2))
    assert trial_key(one, {}) != trial_key(other, {})


@pytest.mark.parametrize("piece", ["/* ", "/*", "//", "/ ", "'", '"', "1'", "\\ ", "\\\n", "/\\\n", "*/", "1.", "# ", " #", "\\"])
@pytest.mark.parametrize("language", ["cpp", "triton"])
def test_no_text_holds_up_its_key(piece: str, language: str) -> None:
    """As long as a kernel may be, of pieces that a reader could try again and again."""
    started = time.process_time()
    trial_key(KernelSource(language=language, text=piece * (256 * 1024 // len(piece))), {})
    assert time.process_time() - started < 2


class Told(SimulatedEvaluator):
    """Rejects everything, and says which text it was."""

    def evaluate(self, source: KernelSource, tunables: Mapping[str, int], *, effort: Effort = "quick") -> Verdict:
        return Rejected(stage=Stage.BUILD, reason=source.text)


def test_of_kernels_with_one_key_the_first_is_evaluated() -> None:
    """Handed over together, the second is the duplicate."""
    first, second = (KernelSource(language="cpp", text=f"// {text}\nint a;\n") for text in ("first", "second"))
    got = list(trials(Told(landscape=Landscape(family="norm", workload=0))).run_each([(first, {}), (second, {})]))
    assert [Rejected(stage=Stage.BUILD, reason=first.text), Duplicate(key=trial_key(first, {}))] == got


def test_a_log_adopts_no_kernel_but_may_reject_one() -> None:
    """A full verdict that a kernel is right is asked for again; one that it is wrong is replayed."""
    right, wrong = MemoryLog(), MemoryLog()
    trials(evaluator(), log=right).run(SEED, SEED.defaults(), effort="full")
    trials(Told(landscape=Landscape(family="norm", workload=0)), log=wrong).run(SEED, SEED.defaults(), effort="full")
    again = evaluator()
    got = [type(trials(again, log=log).run(SEED, SEED.defaults(), effort="full")) for log in (right, wrong)]
    assert ([Accepted, Rejected], 1) == (got, len(again.evaluations))


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
