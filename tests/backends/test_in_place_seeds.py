"""Seeds whose outputs lie over inputs: everything is read before it is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelopt_compile.records import Node, Ref, TensorSpec, Workload
from tests.backends.seeds import BACKEND, fault

FLAT = TensorSpec(dtype="f32", shape=("s0",), strides=(1,))
HALF = TensorSpec(dtype="bf16", shape=("s0",), strides=(1,))
ONE = TensorSpec(dtype="f32", shape=(), strides=())


def step() -> Workload:
    """A count goes up by one, and a tensor by the old and the new count, at once."""
    nodes = (
        Node(op="aten.add.Tensor", args=(Ref("i", 0), 1.0), outputs=(ONE,)),
        Node(op="aten.mul.Tensor", args=(Ref("n", 0), Ref("i", 0)), outputs=(ONE,)),
        Node(op="aten.add.Tensor", args=(Ref("i", 1), Ref("n", 1)), outputs=(FLAT,)),
    )
    return Workload(
        inputs=(ONE, FLAT), nodes=nodes, outputs=(Ref("n", 0), Ref("n", 2)), output_specs=(ONE, FLAT), symbols=("s0",),
        aliases=((0, 0), (1, 1)),
    )  # fmt: skip


def exchange(spec: TensorSpec) -> Workload:
    """Each of two tensors becomes the other one, the first twice as large."""
    nodes = (
        Node(op="aten.mul.Tensor", args=(Ref("i", 1), 2.0), outputs=(spec,)),
        Node(op="aten.clone.default", args=(Ref("i", 0),), outputs=(spec,)),
    )
    return Workload(
        inputs=(spec, spec), nodes=nodes, outputs=(Ref("n", 0), Ref("n", 1)), output_specs=(spec, spec), symbols=("s0",),
        aliases=((0, 0), (1, 1)),
    )  # fmt: skip


def counts() -> Workload:
    """Two single elements, each overwritten by what it was not, beside a tensor."""
    nodes = (
        Node(op="aten.add.Tensor", args=(Ref("i", 1), 1.0), outputs=(ONE,)),
        Node(op="aten.add.Tensor", args=(Ref("i", 0), 1.0), outputs=(ONE,)),
        Node(op="aten.mul.Tensor", args=(Ref("i", 2), Ref("n", 0)), outputs=(FLAT,)),
    )
    return Workload(
        inputs=(ONE, ONE, FLAT), nodes=nodes, outputs=tuple(Ref("n", k) for k in range(3)), output_specs=(ONE, ONE, FLAT),
        symbols=("s0",), aliases=((0, 0), (1, 1), (2, 2)),
    )  # fmt: skip


@pytest.mark.parametrize("workload", [step(), exchange(FLAT), exchange(HALF), counts()])
def test_a_seed_is_right_in_place(workload: Workload, tmp_path: Path) -> None:
    """At every structure, on several threads and in small blocks, so that threads meet."""
    grammar = BACKEND.grammar(workload)
    for structure in [{}, *({name: value} for name, values in grammar.items() for value in values[1:])]:
        source = BACKEND.render(workload, structure)
        tunables = {**source.defaults(), **{name: 1024 for name in ("BLOCK", "GRAIN") if name in source.tunables}}
        assert "" == fault(source, workload, {"s0": 40000}, tmp_path, tunables=tunables, threads=4)
