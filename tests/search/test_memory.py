"""What is remembered, in which order, and what it is worth here."""

from __future__ import annotations

import random
from dataclasses import replace

from accelopt_compile.records import Plan, sha256_text
from accelopt_compile.search import Memory, SearchSettings, TeachingPair
from accelopt_compile.search.builtin.planner import plan_steps
from accelopt_compile.search.builtin.summarizer import lesson_of
from accelopt_compile.search.memory import known_tunables, most_promising, proven_configurations, similarity, winner_experience
from accelopt_compile.search.simulated import simulated_task
from accelopt_compile.search.state import experience_from, experience_json
from tests.search.worlds import World, candidate, experience

TASK = simulated_task(0)


def test_the_oldest_lessons_are_forgotten_first() -> None:
    """A memory of three keeps the last three, and still hands all to the store."""
    memory = Memory()
    lessons = [experience(lesson=str(i)) for i in range(5)]
    memory.add(lessons[:2], capacity=3)
    memory.add(lessons[2:], capacity=3)
    assert ["2", "3", "4"] == [e.lesson for e in memory.recent]
    assert lessons == list(memory.gained)


def test_earlier_runs_are_not_pushed_out() -> None:
    """Experiences of earlier runs are recalled behind the run's own newest."""
    memory = Memory(prior=[experience(lesson="old")])
    memory.add([experience(lesson="a"), experience(lesson="b")], capacity=2)
    assert ["b", "a", "old"] == [e.lesson for e in memory.recall(TASK)]


def test_a_paper_run_recalls_only_itself() -> None:
    """Memory is per problem in the paper."""
    memory = Memory(prior=[experience(lesson="old")])
    assert () == memory.recall(simulated_task(0, settings=SearchSettings.preset("paper")))


def test_nearer_work_is_recalled_first() -> None:
    """The same workload, then the family, then another architecture, then strange families; other backends never."""
    own = experience(workload=TASK.workload.digest)
    family, arch = experience(), experience(arch="other")
    strange = experience(family="matmul")
    assert (strange, arch, family, own) == tuple(sorted((arch, own, strange, family), key=lambda e: similarity(TASK, e)))
    elsewhere = replace(experience(), backend="other")
    assert (own, family, arch, strange) == Memory(prior=[arch, strange, elsewhere, family, own]).recall(TASK)


def test_a_search_holds_of_a_large_memory_what_it_recalls() -> None:
    """The rest makes no difference to it, and is not saved with its state."""
    family = [experience(1.1 + i / 1000, lesson=str(i)) for i in range(500)]
    prior = [*family, *(experience(family="matmul", lesson=str(i)) for i in range(500))]
    held = most_promising(TASK, prior)
    assert [str(i) for i in range(499, 435, -1)] == [e.lesson for e in held]
    assert Memory(prior=prior).recall(TASK) == Memory(prior=held).recall(TASK) == held


def test_families_of_one_element_type_are_nearer_than_strangers() -> None:
    """What helped a softmax in bfloat16 says more about a norm in bfloat16 than about one in float32."""
    task = replace(TASK, family="norm bf16")
    softmax, wide = experience(family="softmax bf16"), experience(family="softmax")
    assert similarity(task, wide) < similarity(task, softmax) < similarity(task, experience(family="norm bf16"))


def test_a_structure_that_won_on_many_workloads_comes_before_one_that_won_big_once() -> None:
    """Weights add up over workloads, and count once a workload."""
    often = [experience(1.4, workload=str(i), structure={"loop": "tiles"}, tunables={"TILE": 32}) for i in range(3)]
    repeated = [experience(1.9, workload="one", structure={"loop": "flat"}, tunables={"TILE": 64})] * 5
    found = proven_configurations(TASK, [*repeated, *often])
    assert ["tiles", "flat"] == [c.structure["loop"] for c in found]


def test_a_lesson_of_a_busy_machine_outweighs_no_others() -> None:
    """A gain of thousands is worth no more than one of eight, and the way to a winner of such a gain is no lesson."""
    wild = experience(7390.0, workload="wild", structure={"loop": "flat"})
    found = proven_configurations(
        TASK, [wild, *(experience(1.6, workload=str(i), structure={"loop": "tiles"}) for i in range(6))]
    )
    assert ["tiles", "flat"] == [c.structure["loop"] for c in found]
    assert winner_experience(TASK, candidate(0, 0.3), candidate(3, 2217.0)) is None


def test_tunables_known_for_like_structures_come_first_and_only_if_valid() -> None:
    """Unknown names are left out, values outside the declared ones replaced, and invalid combinations dropped."""
    source = TASK.backend.render(TASK.workload, {"loop": "tiles"})
    near = experience(structure=dict(source.structure), tunables={"TILE": 128, "UNROLL": 4, "GRAIN": 256, "LANES": 8})
    far = experience(structure={**source.structure, "loop": "rows", "sum": "four"}, tunables={"TILE": 32, "UNROLL": 3})
    invalid = experience(structure=dict(source.structure), tunables={"TILE": 512, "UNROLL": 16})
    found = known_tunables(TASK, [far, invalid, near], source)
    assert [{"TILE": 128, "UNROLL": 4, "GRAIN": 256}, {"TILE": 32, "UNROLL": 1, "GRAIN": 1024}] == found


WRITTEN = {"slow_by": "seed", "fast_by": "llm"}


def test_a_kernel_that_a_model_wrote_is_no_configuration() -> None:
    """Neither its numbers, though they have the names of ours, nor a structure that somebody put down for it."""
    source = TASK.backend.render(TASK.workload, {})
    written = experience(2.0, structure={"loop": "tiles"}, tunables={"TILE": 16}, origin=WRITTEN)
    assert () == proven_configurations(TASK, [written])
    assert [] == known_tunables(TASK, [written], source)
    kernel = replace(candidate(0, 1.0), source=source, tunables=source.defaults())
    expected = plan_steps(TASK, kernel, [], 100, random.Random(0))
    assert expected == plan_steps(TASK, kernel, [written], 100, random.Random(0))


def test_the_way_to_a_written_winner_is_told_in_words() -> None:
    """With the plan and the gain, and without a change, a structure or numbers."""
    best = replace(candidate(3, 1.8), plan=Plan(text="Keep the row\nin registers."), tunables={"TILE": 16})
    found = winner_experience(TASK, candidate(0, 1.0), replace(best, source=replace(best.source, origin="llm")))
    assert found is not None
    told = "Best of a search on norm: the kernel written for plan 'Keep the row in registers.', 1.80x the seed."
    assert (told, {}, {}, {}) == (found.lesson, found.change, found.structure, found.tunables)
    assert ("kernel 0", "kernel 3") == (found.slow, found.fast)


def test_the_builtin_summarizer_tells_of_written_kernels_in_words() -> None:
    """It knows their plan and their speeds, and nothing of their choices."""
    fast = candidate(1, 1.5)
    fast = replace(fast, source=replace(fast.source, origin="llm"), tunables={"TILE": 16})
    pair = TeachingPair(slow=candidate(0, 1.0), fast=fast, plan=Plan(text="Fuse."), helped=True, speedup=1.5)
    found = lesson_of(TASK, pair)
    assert found is not None
    assert ("On norm (cpu), the plan 'Fuse.' made it 1.50x faster.", {}, {}) == (found.lesson, found.change, found.tunables)


def test_every_lesson_of_a_run_says_where_it_is_from() -> None:
    """Run, round, kernels, plan and who wrote them; the source it names is that of its fast kernel."""
    gained = World().run().experiences
    assert len(gained) > 3
    for lesson in gained:
        assert sha256_text(lesson.fast) == lesson.origin["source"]
        assert {"run", "round", "plan", "slow_candidate", "fast_candidate", "slow_by", "fast_by"} <= lesson.origin.keys()
    assert 1 == len({lesson.origin["run"] for lesson in gained})


def test_titles_and_origins_survive_a_saved_run_and_old_ones_lack_them() -> None:
    """The state of a search that was saved before there were any is still read."""
    lesson = experience(title="Tile the rows", origin={"model": "m", "plan": "p"})
    saved = experience_json(lesson)
    assert lesson == experience_from(saved)
    del saved["title"], saved["origin"]
    assert experience() == experience_from(saved)
