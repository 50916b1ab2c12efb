"""Which lessons a prompt shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accelopt_compile.records import Experience
from accelopt_compile.search import Memory, SearchSettings
from accelopt_compile.search.recall import (
    SHARE_OF_PROMPT,
    by_overlap,
    by_words,
    distinct,
    fitting,
    has_fts5,
    ranked,
    shown,
    token_budget,
    tokens_of,
    words_of,
)
from accelopt_compile.search.simulated import simulated_task
from tests.search.worlds import experience

TASK = simulated_task(0)
PAPER = simulated_task(0, settings=SearchSettings.preset("paper"))
MANY = 100_000


def lesson(text: str, speedup: float = 1.5, **given: object) -> Experience:
    return experience(speedup, lesson=text, **given)


def stranger(text: str, speedup: float = 1.5, **given: object) -> Experience:
    return lesson(text, speedup, family="matmul", **given)


def texts(experiences: list[Experience]) -> list[str]:
    return [e.lesson for e in experiences]


def test_structure_comes_before_words() -> None:
    """The same workload, then the family on this architecture, then on another, then strangers that speak of the task."""
    own = lesson("of the same workload", workload=TASK.workload.digest)
    family, arch = lesson("of the family"), lesson("of the family elsewhere", arch="other")
    words = stranger("exp of float32 rows: exp exp", 3.0)
    assert [own, family, arch, words] == ranked(TASK, [words, arch, family, own])


def test_strangers_come_by_how_well_their_words_match() -> None:
    """And not at all without a word in common, or from another backend."""
    exact = stranger("Keep exp in float32 registers.")
    vague = stranger("Accumulate long sums of products in two float32 halves and add them up when all of the loop is done.")
    none, elsewhere = stranger("Pack the panels of B."), replace(exact, backend="other")
    assert [exact, vague] == ranked(TASK, [none, vague, elsewhere, exact])


def test_words_of_a_task_are_its_operators_family_and_types() -> None:
    """Types also by their long names, as lessons write them."""
    assert ("exp", "norm", "bf16", "f32", "float32") == words_of(replace(TASK, family="norm bf16"))


@pytest.mark.parametrize("rank", [by_words, by_overlap])
def test_both_ways_to_rank_by_words_put_the_better_match_first(rank: object) -> None:
    """With full text search and, where SQLite has none, by shared words."""
    found = rank(["exp", "float32"], (("", "sum"), ("", "exp and then sums"), ("", "exp in float32")))  # type: ignore[operator]
    assert [2, 1] == sorted(found, key=lambda i: -found[i])
    assert {} == rank([], (("a", "b"),))  # type: ignore[operator]


@pytest.mark.parametrize("word", ['"', "exp*", "NEAR(", "a AND b", "heading:exp", "'; DROP TABLE lessons; --", "é\ud800"])
def test_no_word_is_a_query_language(word: str) -> None:
    """What a person or a file gives is looked for as words."""
    assert has_fts5()
    assert set(by_words([word], (("", "exp"), ("", "é")))) <= {0, 1}


def test_a_budget_is_kept_and_a_lesson_that_is_too_long_gives_way() -> None:
    """The next that fits is shown in its place."""
    huge = lesson("word " * 100_000, 9.0)
    small = [lesson(f"advice number {n} of its own", 2.0 - n / 100) for n in range(20)]
    budget = 5 * tokens_of(small[0])
    found = shown(TASK, Memory(prior=[huge, *small]), budget)
    assert small[:5] == found
    assert sum(map(tokens_of, found)) <= budget
    assert [] == shown(TASK, Memory(prior=small), 0)


def test_the_budget_is_a_share_of_the_whole_prompt() -> None:
    """At most 15 % of what is sent are lessons."""
    lessons = token_budget(10_000)
    assert 1764 == lessons
    assert lessons / (lessons + 10_000) <= SHARE_OF_PROMPT


def test_a_runs_own_lessons_come_newest_first_and_before_all_others() -> None:
    """However much earlier ones promise."""
    memory = Memory(prior=[lesson("an earlier one", 9.0, workload=TASK.workload.digest)])
    memory.add([lesson("my first one"), lesson("my second one")], capacity=16)
    assert ["my second one", "my first one", "an earlier one"] == texts(shown(TASK, memory, MANY))


def test_near_duplicates_are_shown_once() -> None:
    """Case, punctuation and the measured speedup make no other lesson; numbers of the advice and its direction do."""
    same = [
        lesson("Double the tile from 256 to 512, 1.20x faster."),
        lesson("double the TILE from 256 to 512: 1.3x faster"),
        lesson("Another text.", title="Use wide loads"),
        lesson("Yet another text.", title="**Use wide loads**"),
    ]
    others = [lesson("Double the tile from 128 to 256, 1.20x faster."), replace(same[0], helped=False)]
    assert [same[0], same[2], *others] == list(distinct([*same, *others]))


@pytest.mark.parametrize(
    "empty",
    [
        lesson("No optimization found."),
        lesson("The kernels are equal.", title="No optimisation"),
        lesson("There is no general optimization here."),
        lesson(" "),
    ],
)
def test_lessons_that_teach_nothing_are_never_shown(empty: Experience) -> None:
    """Not in paper mode either, where they keep their place in the queue."""
    memory = Memory(prior=[empty])
    memory.add([empty, lesson("a real one")], capacity=16)
    for task in (TASK, PAPER):
        assert ["a real one"] == texts(shown(task, memory, MANY))


def test_paper_mode_shows_the_runs_own_queue_and_nothing_else() -> None:
    """In its order, duplicates included; over the budget the oldest go first."""
    memory = Memory(prior=[lesson("an earlier one", 9.0)])
    memory.add([lesson(text) for text in ("gone", "one", "two", "two", "three")], capacity=4)
    assert ["one", "two", "two", "three"] == texts(shown(PAPER, memory, MANY))
    assert ["two", "three"] == texts(shown(PAPER, memory, 2 * tokens_of(lesson("three"))))


def test_a_ranked_list_alone_is_cut_to_the_budget_in_its_order() -> None:
    """For a planner that was handed experiences and no memory."""
    listed = [lesson("the second one"), lesson("No optimization."), lesson("the first one"), lesson("The second one!")]
    assert ["the second one", "the first one"] == texts(fitting(listed, MANY))


def test_what_is_shown_is_a_function_of_its_arguments() -> None:
    """Ties go to the newer, which `prior` has first."""
    prior = [stranger(f"exp and float32, remark {n}") for n in range(50)]
    first = shown(TASK, Memory(prior=prior), MANY)
    assert prior == first
    assert first == shown(TASK, Memory(prior=prior), MANY)
