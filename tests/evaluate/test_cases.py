"""Which trials a kernel must stand, and on which buffers it is timed."""

from __future__ import annotations

import pytest

from accelopt_compile.evaluate.baseline import Baselines
from accelopt_compile.evaluate.bench import Bench
from accelopt_compile.evaluate.buffers import arena_bytes, mapped
from accelopt_compile.evaluate.cases import FEW_ELEMENTS, HUGE_ELEMENTS, HUGE_FAMILIES, elements, trials
from accelopt_compile.evaluate.sandbox.arena import Arena
from accelopt_compile.records import Node, Ref, TensorSpec, Workload


def of(columns: int) -> TensorSpec:
    return TensorSpec(dtype="f32", shape=(1, columns), strides=(columns, 1))


def activation() -> Workload:
    node = Node(op="aten.relu.default", args=(Ref("i", 0),), outputs=(of(64),))
    return Workload(inputs=(of(64),), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(of(64),))


def product(columns: int) -> Workload:
    """A row of 64 times a matrix."""
    left, right, out = of(64), TensorSpec(dtype="f32", shape=(64, columns), strides=(columns, 1)), of(columns)
    node = Node(op="aten.mm.default", args=(Ref("i", 0), Ref("i", 1)), outputs=(out,))
    return Workload(inputs=(left, right), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(out,))


def test_where_nothing_is_free_and_all_is_huge_a_few_families_are_tried() -> None:
    small, huge = ({t.case.family for t in trials(product(n), {}, "full", [1, 2], 1)} for n in (64, 1 + HUGE_ELEMENTS // 64))
    assert set(HUGE_FAMILIES) == huge
    assert huge < small


def parameter() -> Workload:
    """A row of numbers, as many as there are."""
    spec = TensorSpec(dtype="f32", shape=("s0",), strides=(1,))
    node = Node(op="aten.relu.default", args=(Ref("i", 0),), outputs=(spec,))
    return Workload(inputs=(spec,), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(spec,), symbols=("s0",))


def test_every_family_meets_the_loop_over_whole_vectors() -> None:
    """13 numbers are a tail alone: where small sizes are so few elements, families, shifts and fences have more of them; the tail
    is tried too."""
    tried = trials(parameter(), {"s0": 1 << 20}, "full", [1, 2], 1)
    most = dict.fromkeys({t.case.family for t in tried}, 0)
    for t in tried:
        most[t.case.family] = max(most[t.case.family], elements(parameter(), dict(t.case.binding)))
    assert min(most.values()) > FEW_ELEMENTS
    assert all(elements(parameter(), dict(t.case.binding)) > FEW_ELEMENTS for t in tried if t.shift or t.fence)
    assert {"s0": 13} in [dict(t.case.binding) for t in tried]
    assert {"s0": 20} == dict(next(t for t in trials(parameter(), {"s0": 20}, "full", [1, 2], 1) if t.shift).case.binding)


def test_every_input_that_indexes_is_put_outside_its_table() -> None:
    """Words, their types and their positions: eager refuses a wrong one of any."""
    table, word, out = (TensorSpec(dtype=d, shape=s, strides=t) for d, s, t in (
        ("f32", (7, 64), (64, 1)), ("i64", ("s0",), (1,)), ("f32", ("s0", 64), (64, 1)),
    ))  # fmt: skip
    looked_up = [Node(op="aten.embedding.default", args=(Ref("i", k), Ref("i", k + 1)), outputs=(out,)) for k in (0, 2)]
    added = Node(op="aten.add.Tensor", args=(Ref("n", 0), Ref("n", 1)), outputs=(out,))
    workload = Workload(
        inputs=(table, word, table, word),
        nodes=(*looked_up, added),
        outputs=(Ref("n", 2),),
        output_specs=(out,),
        symbols=("s0",),
    )
    outside = [(t.outside, t.index) for t in trials(workload, {"s0": 64}, "full", [1, 2], 1) if t.outside]
    assert [("above", 0), ("below", 0), ("above", 1), ("below", 1)] == outside


@pytest.mark.parametrize(("workload", "apart"), [(product(8), 64), (activation(), 1)])
def test_weights_are_timed_as_they_come_from_memory(workload: Workload, apart: int) -> None:
    """Calls of a matrix product take turns on many sets of buffers; other workloads have one."""
    arena = Arena(arena_bytes(workload, [{}]))
    seen: list[int] = []
    try:
        bench = Bench(
            workload,
            {},
            Baselines(workload, {}),
            memory=mapped(arena.descriptor),
            kernel=lambda pointers, sizes, threads: seen.append(pointers[0]),
            threads=1,
            seed=0,
        )
        bench.run("kernel", 200)
    finally:
        arena.close()
    assert (200, apart) == (len(seen), len(set(seen)))
