"""What is remembered, in which order, and what it is worth here."""

from __future__ import annotations

from dataclasses import replace

from accelopt_compile.search import Memory, SearchSettings
from accelopt_compile.search.memory import known_tunables, proven_configurations, similarity
from accelopt_compile.search.simulated import simulated_task
from tests.search.worlds import experience

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
    assert [{"loop": "tiles"}, {"loop": "flat"}] == [c.structure for c in found]


def test_tunables_known_for_like_structures_come_first_and_only_if_valid() -> None:
    """Unknown names are left out, values outside the declared ones replaced, and invalid combinations dropped."""
    source = TASK.backend.render(TASK.workload, {"loop": "tiles"})
    near = experience(structure=dict(source.structure), tunables={"TILE": 128, "UNROLL": 4, "GRAIN": 256, "LANES": 8})
    far = experience(structure={**source.structure, "loop": "rows", "sum": "four"}, tunables={"TILE": 32, "UNROLL": 3})
    invalid = experience(structure=dict(source.structure), tunables={"TILE": 512, "UNROLL": 16})
    found = known_tunables(TASK, [far, invalid, near], source)
    assert [{"TILE": 128, "UNROLL": 4, "GRAIN": 256}, {"TILE": 32, "UNROLL": 1, "GRAIN": 1024}] == found
