"""Regions around matrix products: what joins them, what stays outside, and that without a budget nothing changes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from accelopt_backends.base import Products
from accelopt_compile.evaluate.reference import reference_module, widen
from accelopt_compile.evaluate.tolerance import reduced_elements
from accelopt_compile.family import family_of
from accelopt_compile.fingerprint import graph_digest
from accelopt_compile.hotness import Machine, rank
from accelopt_compile.nodes import op_name
from accelopt_compile.partition import Partition, partition
from accelopt_compile.records import Workload
from accelopt_compile.regions import Region, nested
from accelopt_compile.signature import sign
from tests.regions.generality import assert_holds
from tests.regions.models import build, graph_of, graphs_of
from tests.regions.test_partition import assert_sound

W = torch.randn(96, 64)
X = torch.randn(2, 12, 64)


def calls(region: Region) -> list[str]:
    return [op_name(n).split(".")[1] for n in region.nodes if isinstance(n.target, torch._ops.OpOverload)]


def products(cut: Partition) -> list[Region]:
    return [r for r in cut.regions if {"mm", "addmm", "bmm", "baddbmm"} & set(calls(r))]


def test_without_a_budget_products_are_walls() -> None:
    graph = graph_of(lambda x: F.relu(F.linear(x, W)) * 2, X)
    cut = partition(graph)
    assert [["relu", "mul"]] == [calls(r) for r in cut.regions]
    assert "aten.mm is in no class of operators that a region may hold" in cut.refused.values()


def test_bias_activation_and_residual_follow_their_product() -> None:
    graph = graph_of(lambda x, b, y: y + F.relu(F.linear(x, W, b)), X, torch.randn(96), torch.randn(2, 12, 96))
    cut = partition(graph, products=Products(most=1))
    assert_sound(graph, cut)
    assert [["reshape", "addmm", "reshape", "relu", "add"]] == [calls(r) for r in products(cut)]


def test_the_two_products_of_a_gated_unit_are_one_region_if_the_budget_allows() -> None:
    def unit(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.silu(F.linear(x, a)) * F.linear(x, b)

    graph = graph_of(unit, X, W, W.clone())
    assert [2] == [calls(r).count("mm") for r in products(partition(graph, products=Products(most=2)))]
    (alone,) = products(partition(graph, products=Products(most=1)))
    assert 1 == calls(alone).count("mm")
    assert_sound(graph, partition(graph, products=Products(most=1)))


def test_projections_that_nothing_joins_stay_apart_and_are_left_to_the_library() -> None:
    graph = graph_of(lambda x, q, k: (F.linear(x, q), F.linear(x, k)), X, W, W.clone())
    cut = partition(graph, products=Products(most=2))
    assert [] == products(cut)
    assert "aten.mm with nothing to fuse is left to the library" in cut.refused.values()


def test_an_activation_between_two_products_belongs_to_the_first() -> None:
    graph = graph_of(lambda x, w, y: y + F.linear(F.gelu(F.linear(x, W)), w), X, torch.randn(64, 96), X.clone())
    cut = partition(graph, products=Products(most=2))
    assert_sound(graph, cut)
    first, second = products(cut)
    assert (True, 1) == ("erf" in calls(first), calls(first).count("mm"))
    assert ["mm", "reshape", "add"] == calls(second)[-3:]


def test_a_norm_that_feeds_only_its_product_is_in_its_region_and_can_be_taken_out() -> None:
    graph = graph_of(lambda x, n: F.relu(F.linear(F.rms_norm(x, (64,), n), W)), X, torch.randn(64))
    (region,) = partition(graph, products=Products(most=2)).regions
    assert {"mean", "rsqrt", "mm", "relu"} <= set(calls(region))
    norm, product = nested(region)
    assert (False, True) == ("mm" in calls(norm), "mm" in calls(product))


def test_a_norm_that_three_projections_read_stays_outside() -> None:
    def project(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.rms_norm(x, (64,), n)
        return tuple(F.relu(F.linear(y, W * k)) for k in range(1, 4))

    cut = partition(graph_of(project, X, torch.randn(64)), products=Products(most=2))
    assert all("mean" not in calls(r) for r in products(cut))


def test_weights_in_few_bits_are_widened_inside_the_region() -> None:
    def layer(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        weight = torch.stack((packed & 15, packed >> 4), -1).view(96, 4, 16).to(x.dtype) * scale[:, :, None]
        return F.linear(x, weight.view(96, 64))

    packed = torch.randint(0, 255, (96, 32), dtype=torch.uint8)
    graph = graph_of(layer, X, packed, torch.rand(96, 4))
    (region,) = partition(graph, products=Products(most=2)).regions
    assert {torch.float32, torch.uint8} == {n.meta["val"].dtype for n in region.inputs}


FEW = Products(most=2, rows=4)


def test_a_product_of_few_rows_is_a_region_by_itself() -> None:
    """What it costs is to read the weights. All around it is cut as if the library had it."""
    given = torch.randn(1, 1, 64), torch.randn(64), torch.randn(1, 1, 64)
    graph = graph_of(lambda x, n, y: F.rms_norm(F.linear(F.rms_norm(x, (64,), n), W[:64]) + y, (64,)), *given)
    cut, without = partition(graph, products=FEW), partition(graph)
    assert_sound(graph, cut)
    first, product, last = cut.regions
    assert ["mm"] == [c for c in calls(product) if c not in ("permute", "reshape")]
    assert [calls(r) for r in without.regions] == [calls(first), calls(last)]


def test_weights_in_few_bits_are_widened_inside_a_product_of_few_rows() -> None:
    narrow = torch.ones(96, 64, dtype=torch.int8)
    graph = graph_of(lambda x, w, s: F.linear(x, w.to(x.dtype) * s), torch.randn(1, 64), narrow, torch.rand(96, 1))
    (region,) = partition(graph, products=FEW).regions
    assert torch.int8 in {n.meta["val"].dtype for n in region.inputs}


def test_a_product_in_more_bytes_than_a_backend_takes_is_a_wall() -> None:
    cut = partition(graph_of(lambda x: F.linear(x, W), torch.randn(1, 64)), products=Products(most=1, rows=1, widest=2))
    assert [] == products(cut)
    assert "aten.mm in float32 is left to the library" in cut.refused.values()


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_product_of_more_rows_or_of_unknown_many_is_a_wall_for_who_takes_few(dynamic: bool) -> None:
    x = torch.randn(3 if dynamic else 5, 64)
    cut = partition(graph_of(lambda x: F.relu(F.linear(x, W)) * 2, x, dynamic=dynamic), products=FEW)
    assert [["relu", "mul"]] == [calls(r) for r in cut.regions]
    assert "aten.mm of more than 4 rows, or nobody knows how many, is left to the library" in cut.refused.values()


def test_a_reduction_of_the_result_stays_outside() -> None:
    graph = graph_of(lambda x: torch.softmax(F.relu(F.linear(x, W)), -1), X)
    (region,) = products(partition(graph, products=Products(most=2)))
    assert ["relu"] == calls(region)[-1:]


def test_products_of_integers_are_walls() -> None:
    ints = torch.ones(8, 8, dtype=torch.int32)
    cut = partition(graph_of(lambda x: torch.relu(x @ x), ints), products=Products(most=2))
    assert "aten.mm of integers" in cut.refused.values()


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("name", "regions"), [("llama", 7), ("gpt2", 8)])
def test_layers_of_models_give_the_same_few_workloads(name: str, regions: int) -> None:
    """Two layers: attention's output with residual, gated unit or MLP with its norm, MLP's output with residual."""
    model, inputs = build(name, 2)
    captured = max(graphs_of(model, inputs, training=False), key=lambda c: len(c.graph.nodes))
    cut = partition(captured.graph, products=Products(most=2))
    assert_sound(captured.graph, cut)
    signed = [sign(r) for r in products(cut)]
    for one in signed:
        assert_holds(one)
    assert regions == len(signed)
    assert 4 == len({s.workload.digest for s in signed})


def test_training_graphs_are_sound_too() -> None:
    model, inputs = build("llama", 1)
    for captured in graphs_of(model, inputs, training=True):
        cut = partition(captured.graph, products=Products(most=2))
        assert_sound(captured.graph, cut)
        for region in products(cut):
            assert_holds(sign(region))


def signed_layer() -> tuple[Workload, dict[str, int]]:
    (region,) = products(partition(graph_of(lambda x, w: F.relu(F.linear(x, w)), X, W), products=Products(most=2)))
    signed = sign(region)
    return signed.workload, signed.binding


def test_rows_are_free_and_what_is_summed_over_is_not() -> None:
    workload, binding = signed_layer()
    assert {"s0": 2, "s1": 12} == binding
    assert ["matmul", 64] == [family_of(workload), reduced_elements(workload, binding)]
    assert workload == Workload.from_json(workload.to_json())


def test_a_workload_with_a_product_has_an_answer_in_float64() -> None:
    workload, binding = signed_layer()
    inputs = [torch.randn(workload.bound_shape(s, binding)) for s in workload.inputs]
    inputs[1] = W.t()
    (wide,) = reference_module(workload, binding, wide=True)(*widen(inputs))
    (eager,) = reference_module(workload, binding)(*inputs)
    assert torch.float64 == wide.dtype
    torch.testing.assert_close(eager.double(), wide, rtol=1e-4, atol=1e-4)


def test_a_products_flops_are_two_for_each_term() -> None:
    (region,) = products(partition(graph_of(lambda x, w: F.relu(F.linear(x, w)), X, W), products=Products(most=2)))
    (cost,) = rank([(sign(region), 1)], Machine(bandwidth_bytes_s=1e9, peak_flops_s=1e9))
    assert 2 * 24 * 96 * 64 + 24 * 96 == cost.flops


def test_a_graph_has_another_name_for_another_budget() -> None:
    gm = torch.fx.symbolic_trace(torch.nn.Linear(4, 4))
    assert graph_digest(gm, ()) != graph_digest(gm, (), extra=("products 2",))
