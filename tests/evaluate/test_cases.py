"""Which trials a kernel must stand, and on which buffers it is timed."""

from __future__ import annotations

import pytest

from accelopt_compile.evaluate.baseline import Baselines
from accelopt_compile.evaluate.bench import Bench
from accelopt_compile.evaluate.buffers import arena_bytes, mapped
from accelopt_compile.evaluate.cases import HUGE_ELEMENTS, HUGE_FAMILIES, trials
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
