"""Attention under noise: its gradients spelled out are the operator's, moved a little, at every size."""

from __future__ import annotations

import pytest
import torch

from accelopt_compile.evaluate.reference import reference_module, widen
from accelopt_compile.evaluate.sensitivity import sensitivity
from accelopt_compile.records import Node, Ref, TensorSpec, Workload

HEADS, SHARED, DIM = 4, 2, 16


def gradients(causal: bool) -> Workload:
    """Of grouped queries: four query heads on two of keys and values; symbols: batch, queries, keys."""
    q = TensorSpec(dtype="f32", shape=("s0", HEADS, "s1", DIM), strides=(f"s1*{HEADS * DIM}", f"s1*{DIM}", DIM, 1))
    k = TensorSpec(dtype="f32", shape=("s0", SHARED, "s2", DIM), strides=(f"s2*{SHARED * DIM}", f"s2*{DIM}", DIM, 1))
    sums = TensorSpec(dtype="f32", shape=("s0", HEADS, "s1"), strides=(f"s1*{HEADS}", "s1", 1))
    op = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
    node = Node(op=op, args=(*(Ref("i", n) for n in range(6)), 0.0, causal), outputs=(q, k, k))
    return Workload(
        inputs=(q, q, k, k, q, sums), nodes=(node,), outputs=tuple(Ref("n", 0, n) for n in range(3)), output_specs=(q, k, k),
        symbols=("s0", "s1", "s2"),
    )  # fmt: skip


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("batch,queries,keys", [(2, 9, 17), (1, 1, 5), (0, 3, 4), (1, 4, 0)])
def test_gradients_of_attention_move_by_roundings(batch: int, queries: int, keys: int, causal: bool) -> None:
    """A few units of float32, in every element of every gradient."""
    workload, binding = gradients(causal), {"s0": batch, "s1": queries, "s2": keys}
    random = torch.Generator().manual_seed(0)
    inputs = [torch.randn(workload.bound_shape(s, binding), generator=random) for s in workload.inputs]
    golden = reference_module(workload, binding, wide=True)
    answers = golden(*widen(inputs))
    for answer, moves in zip(answers, sensitivity(golden, inputs, answers, probes=4, low=False, seed=1), strict=True):
        assert answer.shape == moves.elements.shape
        assert answer.numel() == 0 or bool((moves.elements <= 1e-4 * answer.abs().max() + 1e-30).all())
