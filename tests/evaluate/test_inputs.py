"""Inputs lie where the workload can use them, in the layout it names."""

from __future__ import annotations

import pytest
import torch

from accelopt_compile.evaluate.buffers import Buffers
from accelopt_compile.evaluate.inputs import FAMILIES, bindings_to_try, make_inputs
from accelopt_compile.evaluate.roles import roles
from accelopt_compile.records import Node, Ref, TensorSpec, Workload

TABLE = TensorSpec(dtype="f32", shape=(50, 8), strides=(8, 1))
TOKENS = TensorSpec(dtype="i64", shape=("s0",), strides=(1,))
ROWS = TensorSpec(dtype="f32", shape=("s0", 8), strides=(8, 1))


def embedding() -> Workload:
    node = Node(op="aten.embedding.default", args=(Ref("i", 0), Ref("i", 1)), outputs=(ROWS,))
    return Workload(inputs=(TABLE, TOKENS), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(ROWS,), symbols=("s0",))


def cross_entropy() -> Workload:
    """The gather of a decomposed cross-entropy: labels pass through ne, where and unsqueeze first."""
    flags = TensorSpec(dtype="b8", shape=("s0",), strides=(1,))
    column = TensorSpec(dtype="i64", shape=("s0", 1), strides=(1, 1))
    picked = TensorSpec(dtype="f32", shape=("s0", 1), strides=(1, 1))
    scalar = TensorSpec(dtype="i64", shape=(), strides=())
    nodes = (
        Node(op="aten.ne.Scalar", args=(Ref("i", 1), -100), outputs=(flags,)),
        Node(op="aten.full.default", args=((), 0), outputs=(scalar,)),
        Node(op="aten.where.self", args=(Ref("n", 0), Ref("i", 1), Ref("n", 1)), outputs=(TOKENS,)),
        Node(op="aten.unsqueeze.default", args=(Ref("n", 2), 1), outputs=(column,)),
        Node(op="aten.gather.default", args=(Ref("i", 0), 1, Ref("n", 3)), outputs=(picked,)),
    )
    return Workload(inputs=(ROWS, TOKENS), nodes=nodes, outputs=(Ref("n", 4),), output_specs=(picked,), symbols=("s0",))


def test_an_index_is_bounded_by_what_it_indexes() -> None:
    """Tokens of an embedding stay below its rows; labels below the classes, seen through where and unsqueeze."""
    assert ("index", 50) == (roles(embedding(), {"s0": 9})[1].kind, roles(embedding(), {"s0": 9})[1].bound)
    assert ("index", 8) == (roles(cross_entropy(), {"s0": 9})[1].kind, roles(cross_entropy(), {"s0": 9})[1].bound)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_keeps_indices_in_range(family: str) -> None:
    """No family draws an index that eager would refuse."""
    workload, binding = embedding(), {"s0": 200}
    tokens = make_inputs(workload, binding, family, 3, roles(workload, binding))[1]
    assert 0 <= int(tokens.min()) <= int(tokens.max()) < 50


def test_both_ends_of_an_index_are_tried() -> None:
    """One family uses the first and the last row at once."""
    workload, binding = embedding(), {"s0": 20}
    tokens = make_inputs(workload, binding, "constant_rows", 3, roles(workload, binding))[1]
    assert {0, 49} == set(tokens.tolist())


def test_the_same_seed_gives_the_same_inputs_and_another_seed_others() -> None:
    """Inputs are a function of family and seed."""
    workload, binding = embedding(), {"s0": 20}
    first, same, other = (make_inputs(workload, binding, "normal", seed, roles(workload, binding))[0] for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("strides", [(1, "s0"), (16, 2), (0, 1), (8, 1)])
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_layouts_are_what_the_workload_says(strides: tuple[int | str, int], rows: int) -> None:
    """Transposed, strided, expanded and contiguous inputs have exactly their strides, between canaries, at any size."""
    spec = TensorSpec(dtype="bf16", shape=("s0", 8), strides=strides)
    node = Node(op="aten.relu.default", args=(Ref("i", 0),), outputs=(spec,))
    workload = Workload(inputs=(spec,), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(spec,), symbols=("s0",))
    buffers = Buffers(workload, {"s0": rows})
    values = make_inputs(workload, {"s0": rows}, "normal", 4, roles(workload, {"s0": rows}))
    buffers.fill(values, 0)
    assert workload.bound_strides(spec, {"s0": rows}) == buffers.inputs[0].tensor.stride()
    assert torch.equal(values[0], buffers.inputs[0].tensor)
    assert buffers.inputs[0].unchanged()


def test_canaries_notice_one_byte_on_either_side() -> None:
    """A single element written before or behind a tensor is seen."""
    for position in (-1, 8):
        buffers = Buffers(embedding(), {"s0": 1})
        buffers.poison(0)
        output = buffers.outputs[0]
        assert output.intact()
        whole = output._raw.view(torch.float32)
        whole[(output.pointer - output._raw.data_ptr()) // 4 + position] = 0
        assert not output.intact()


def test_the_same_canary_is_not_at_the_same_place_each_time() -> None:
    """One that is too small to show in a result does not hide what reads it from every run."""
    seen = set()
    for _ in range(20):
        buffers = Buffers(embedding(), {"s0": 1})
        buffers.poison(0)
        seen.add(float(buffers.outputs[0]._raw.view(torch.float32)[0]))
    assert len(seen) > 15


def test_sizes_that_are_tried_include_the_ends() -> None:
    """1, 0, the next larger size and the double are among the other sizes of a free dimension."""
    tried = {binding["s0"] for binding in bindings_to_try(embedding(), {"s0": 96})}
    assert {0, 1, 97, 192} <= tried
