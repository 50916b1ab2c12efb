"""A workload whose answer hardly depends on anything cannot be verified, and says so."""

from __future__ import annotations

from accelopt_compile.evaluate.answers import Answers
from accelopt_compile.evaluate.informative import why_uninformative
from accelopt_compile.records import Node, Ref, TensorSpec, Workload
from tests.evaluate.workloads import softmax_workload

SPEC = TensorSpec(dtype="f32", shape=("s0", 32), strides=(32, 1))


def reasons(workload: Workload) -> list[str]:
    return why_uninformative(workload, Answers(workload), {"s0": 13}, seed=3)


def workload(*nodes: Node, inputs: int = 1) -> Workload:
    last = (Ref("n", len(nodes) - 1),)
    return Workload(inputs=(SPEC,) * inputs, nodes=nodes, outputs=last, output_specs=(SPEC,), symbols=("s0",))


def test_a_softmax_can_be_told_from_impostors() -> None:
    """Nothing is wrong with an ordinary workload."""
    assert [] == reasons(softmax_workload())


def test_a_copy_may_return_its_input() -> None:
    """An impostor that is right is none."""
    assert [] == reasons(workload(Node(op="aten.clone.default", args=(Ref("i", 0),), outputs=(SPEC,))))


def test_an_answer_that_is_always_zero_is_uninformative() -> None:
    """relu of -|x| - 1 is 0 whatever x is."""
    nodes = (
        Node(op="aten.abs.default", args=(Ref("i", 0),), outputs=(SPEC,)),
        Node(op="aten.neg.default", args=(Ref("n", 0),), outputs=(SPEC,)),
        Node(op="aten.relu.default", args=(Ref("n", 1),), outputs=(SPEC,)),
    )
    assert [
        "output 0: the answer to another seed would pass in every case",
        "input 0 changes no output beyond rounding",
    ] == reasons(workload(*nodes))


def test_an_input_below_the_rounding_is_named() -> None:
    """x + 1e-12 y is x: a kernel that leaves y out would pass."""
    nodes = (
        Node(op="aten.mul.Tensor", args=(Ref("i", 1), 1e-12), outputs=(SPEC,)),
        Node(op="aten.sub.Tensor", args=(Ref("i", 0), 0.5), outputs=(SPEC,)),
        Node(op="aten.add.Tensor", args=(Ref("n", 1), Ref("n", 0)), outputs=(SPEC,)),
    )
    assert ["input 1 changes no output beyond rounding"] == reasons(workload(*nodes, inputs=2))
