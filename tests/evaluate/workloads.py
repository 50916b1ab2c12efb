"""Workloads that the tests of the evaluator share."""

from __future__ import annotations

from accelopt_compile.records import Node, Ref, TensorSpec, Workload


def softmax_workload(cols: int = 64, dtype: str = "f32") -> Workload:
    """Softmax over the last dimension as Inductor decomposes it; rows are free."""
    whole = TensorSpec(dtype=dtype, shape=("s0", cols), strides=(cols, 1))
    rows = TensorSpec(dtype=dtype, shape=("s0", 1), strides=(1, 1))
    nodes = (
        Node(op="aten.amax.default", args=(Ref("i", 0), (1,), True), outputs=(rows,)),
        Node(op="aten.sub.Tensor", args=(Ref("i", 0), Ref("n", 0)), outputs=(whole,)),
        Node(op="aten.exp.default", args=(Ref("n", 1),), outputs=(whole,)),
        Node(op="aten.sum.dim_IntList", args=(Ref("n", 2), (1,), True), outputs=(rows,)),
        Node(op="aten.div.Tensor", args=(Ref("n", 2), Ref("n", 3)), outputs=(whole,)),
    )
    return Workload(inputs=(whole,), nodes=nodes, outputs=(Ref("n", 4),), output_specs=(whole,), symbols=("s0",))
