"""What goes into one region, and what stays outside and why."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch.fx import Graph, Node
from torch.nn import functional as F

from accelopt_compile.nodes import op_name
from accelopt_compile.partition import Partition, partition
from accelopt_compile.regions import Region, nested
from accelopt_compile.signature import family_of, sign
from tests.regions.models import Checked, graph_of, graphs_of

A = torch.ops.aten
X = torch.randn(4, 128, 64)


def calls(region: Region) -> list[str]:
    return [op_name(n).split(".")[1] for n in region.nodes if isinstance(n.target, torch._ops.OpOverload)]


def is_widened(node: Node) -> bool:
    converts = node.target is torch.ops.prims.convert_element_type.default
    return converts and node.all_input_nodes[0].meta["val"].dtype == torch.bfloat16


def assert_sound(graph: Graph, cut: Partition) -> None:
    """Regions are disjoint but for constants and widened values, convex, dense, and their quotient graph has no cycle."""
    home: dict[Node, Any] = {}
    for region in cut.regions:
        for node in region.nodes:
            if node.all_input_nodes and not is_widened(node):
                assert node not in home
            home.setdefault(node, region)
        assert set(region.inputs).isdisjoint(region.nodes)
    before: dict[Any, set[Any]] = {}
    for node in graph.nodes:
        here = home.get(node, node)
        before.setdefault(here, set()).update(s for n in node.all_input_nodes if (s := home.get(n, n)) is not here)
    done: set[Any] = set()
    while ready := [v for v in before if v not in done and before[v] <= done]:
        done.update(ready)
    assert set(before) == done


def test_a_group_norm_is_one_region() -> None:
    """Inductor shows its statistics through an `as_strided` that only regroups them."""
    x, w = torch.randn(2, 32, 8, 8), torch.randn(32)
    graph = graph_of(lambda x, w, b: F.group_norm(x, 8, w, b), x, w, w.clone())
    cut = partition(graph)
    assert_sound(graph, cut)
    assert [1] == [len(region.outputs) for region in cut.regions]


def test_the_mean_of_a_loss_is_left_to_inductor() -> None:
    """It reduces few values behind work on many: with it in the region the number of rows would be no free size."""
    logits, labels = torch.randn(512, 4096), torch.randint(0, 4096, (512,))
    graph = graph_of(F.cross_entropy, logits, labels)
    cut = partition(graph)
    assert_sound(graph, cut)
    (signed,) = [sign(region) for region in cut.regions]
    assert {"s0": 512} == signed.binding
    assert {spec.shape[0] for spec in (*signed.workload.inputs, *signed.workload.output_specs) if spec.shape} == {"s0"}
    assert "a reduction of few values, behind a region" in cut.refused.values()
    assert digest_of_loss(700) == signed.workload.digest


def digest_of_loss(rows: int) -> str:
    (region,) = partition(graph_of(F.cross_entropy, torch.randn(rows, 4096), torch.randint(0, 4096, (rows,)))).regions
    return sign(region).workload.digest


@pytest.mark.parametrize("rows", [2, 2048])
def test_a_reduction_that_work_waits_for_stays_in_its_region(rows: int) -> None:
    """A norm behind a table (looked up in, not computed with), and one of a few columns of a matrix."""

    def looked_up(table: torch.Tensor, at: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(F.embedding(at, table), (64,), w)

    (region,) = partition(graph_of(looked_up, torch.randn(20_000, 64), torch.arange(rows), torch.ones(64))).regions
    assert {"embedding", "mean"} <= set(calls(region))
    (region,) = partition(graph_of(lambda x: x * x[:, :2].mean(-1, keepdim=True), torch.randn(rows, 1024))).regions
    assert "mean" in calls(region)


def test_what_meets_a_convolution_in_the_graphs_inputs_and_outputs_alone_keeps_its_regions() -> None:
    """The images and weights of a convolution, and an attention's softmax, are all given back for the gradient."""

    def both(x: torch.Tensor, w: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.relu(F.conv2d(x, w) * 2), torch.softmax(q * 2, -1), x * 3

    x, w, q = torch.randn(2, 8, 32, 32), torch.randn(8, 8, 3, 3), torch.randn(2, 8, 64, 64)
    cut = partition(graph_of(both, x, w, q))
    assert ["pointwise", "softmax"] == sorted(family_of(sign(region).workload).partition(" ")[0] for region in cut.regions)
    assert "Inductor lays it out channels last, for a convolution" in cut.refused.values()


def test_a_merged_region_that_is_none_says_why_for_every_call() -> None:
    """A batch norm between two convolutions, and what its backward pass wants of it."""

    def normed(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(F.batch_norm(F.conv2d(x, w), None, None, training=True))
        return F.conv2d(y, w), y <= 0

    cut = partition(graph_of(normed, torch.randn(2, 8, 32, 32), torch.randn(8, 8, 3, 3)))
    assert () == cut.regions
    whys = {why for name, why in cut.refused.items() if not name.startswith("convolution")}
    assert {"Inductor lays it out channels last, for a convolution"} == whys


def test_parts_of_a_region_hold_nothing_that_it_left_out() -> None:
    logits, labels = torch.randn(512, 4096), torch.randint(0, 4096, (512,))
    for region in partition(graph_of(F.cross_entropy, logits, labels)).regions:
        assert all(set(part.nodes) <= set(region.nodes) for part in nested(region))


def test_a_view_of_the_bits_is_a_wall() -> None:
    """A float's bits as an integer are no regrouping: the region that reads both reads two tensors."""
    graph = graph_of(lambda x: (x.view(torch.int32) - 1065353216).float() * 2**-23 + x * 0.5, torch.randn(64, 512))
    cut = partition(graph)
    assert_sound(graph, cut)
    assert "a view of the bits as another type" in cut.refused.values()
    assert not any(node.target is A.view.dtype for region in cut.regions for node in region.nodes)


def test_an_as_strided_that_overlaps_stays_outside() -> None:
    graph = graph_of(lambda x: torch.as_strided(x * 2, (63, 2), (1, 1)).exp(), torch.randn(64))
    assert "aten.as_strided that does more than regroup dimensions" in partition(graph).refused.values()


def test_a_widened_value_that_two_regions_read_is_stored_by_neither() -> None:
    """Each region widens its own copy: in float32 it would be twice the traffic that Inductor's fusion has."""
    m = torch.randn(64, 64, dtype=torch.bfloat16)

    def block(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        mixed = (torch.softmax(wide, -1).bfloat16() @ m).float()
        return (mixed * wide).bfloat16()

    graph = graph_of(block, X.bfloat16())
    cut = partition(graph)
    assert_sound(graph, cut)
    assert 2 == len(cut.regions)
    stored = [n.meta["val"].dtype for region in cut.regions for n in (*region.inputs, *region.outputs)]
    assert torch.float32 not in stored


def test_residual_add_and_norm_are_one_region_and_can_be_taken_apart() -> None:
    """The sum is used again after a matrix product, so that it is an output too."""
    w, m = torch.randn(64), torch.randn(64, 64)

    def block(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        r = x + y
        return r + F.rms_norm(r, (64,), w) @ m

    graph = graph_of(block, X, X.clone())
    cut = partition(graph)
    assert_sound(graph, cut)
    first, second = cut.regions
    assert ("add", 2) == (calls(first)[0], len(first.outputs))
    assert ["add"] == calls(second)
    assert [["add"], calls(first)[1:]] == [calls(part) for part in nested(first)]


def test_what_feeds_several_equal_consumers_is_merged_into_none() -> None:
    """Otherwise the first of two layers would have a key of its own."""

    def twice(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        c = angle.cos() * 0.5
        return torch.relu(torch.relu(x * c) @ X[0].T @ X[0] * c)

    graph = graph_of(twice, X, X[0].clone())
    cut = partition(graph)
    assert_sound(graph, cut)
    assert [["cos", "mul"], ["mul", "relu"], ["mul", "relu"]] == [calls(r) for r in cut.regions]


def test_constants_are_copied_into_each_region_that_reads_them() -> None:
    """A shared `full` is no input of a region."""

    def masked(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        zero = torch.full((), 0.0)
        return torch.where(m, torch.where(m, x, zero).exp() @ X[0].T @ X[0], zero).exp()

    cut = partition(graph_of(masked, X, X > 0))
    assert 2 == len(cut.regions)
    assert all("full" in calls(r) and 2 == len(r.inputs) for r in cut.regions)


def test_attention_takes_views_and_leaves_arithmetic() -> None:
    """Rotary-like arithmetic on the queries is a region of its own; the expansion of keys belongs to attention."""

    def attend(q: torch.Tensor, k: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        k = k[:, :, None].expand(2, 2, 2, 64, 16).reshape(2, 4, 64, 16)
        return F.scaled_dot_product_attention(q * c + c, k, k).transpose(1, 2).contiguous()

    cut = partition(graph_of(attend, torch.randn(2, 4, 64, 16), torch.randn(2, 2, 64, 16), torch.randn(64, 16)))
    arithmetic, attention, copy = cut.regions
    assert ["mul", "add"] == calls(arithmetic)
    assert "expand" in calls(attention) and "mul" not in calls(attention)
    assert ["permute", "clone"] == calls(copy)


WALLS = {
    "draws random numbers": lambda x: torch.rand_like(x) * x,
    "depends on data": lambda x: x[x > 0].exp(),
    "is in no class": lambda x: torch.linalg.qr(x)[0].exp(),
    "dtype": lambda x: torch.view_as_complex(x.reshape(4, 128, 32, 2)).abs(),
}


@pytest.mark.parametrize("reason", WALLS)
def test_a_wall_has_a_reason(reason: str) -> None:
    """Each refused call says why in words."""
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    try:
        cut = partition(graph_of(WALLS[reason], X))
    finally:
        torch._dynamo.config.capture_dynamic_output_shape_ops = False
    assert any(reason in why for why in cut.refused.values()), cut.refused


def test_every_call_is_in_a_region_or_refused() -> None:
    """Nothing goes missing without a word."""
    graph = graph_of(lambda x: (x @ x.transpose(1, 2)).softmax(-1).sum() + torch.rand(()), X)
    cut = partition(graph)
    inside = {n.name for r in cut.regions for n in r.nodes}
    assert {n.name for n in graph.nodes if n.op == "call_function"} == inside | set(cut.refused)


def test_one_cheap_call_on_little_data_is_not_worth_a_kernel() -> None:
    """And the reason names the call."""
    cut = partition(graph_of(lambda x: x.relu(), X[0, :8]))
    assert () == cut.regions
    assert any("not worth a kernel" in why for why in cut.refused.values())


def adamw(count: int) -> torch.optim.AdamW:
    """After one step, with gradients for the next."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(64, 96)) for _ in range(count)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    optimizer.step()
    return optimizer


def test_the_update_of_each_parameter_is_one_region() -> None:
    """AdamW: parameters of one shape share a digest; the results that are written back are the region's outputs."""
    (graph,) = graphs_of(adamw(3).step, {}, training=False)
    cut = partition(graph.graph)
    assert_sound(graph.graph, cut)
    assert 3 == len(cut.regions)
    assert 1 == len({sign(r).workload.digest for r in cut.regions})
    assert ["optimizer"] * 3 == [family_of(sign(r).workload) for r in cut.regions]
    assert {"aten.copy_ writes to an argument"} == {why for name, why in cut.refused.items() if name.startswith("copy_")}


def test_a_replaced_update_updates_in_place_as_before() -> None:
    """Parameters and state after a step with every region replaced by its reference."""
    expected, ours = adamw(2), adamw(2)
    expected.step()
    torch._dynamo.reset()
    checked = Checked()
    torch.compile(ours.step, backend=checked)()
    assert 2 == len(checked.digests)
    assert checked.worst < 1e-6
    torch.testing.assert_close(ours.param_groups[0]["params"], expected.param_groups[0]["params"])
    torch.testing.assert_close(ours.state_dict()["state"], expected.state_dict()["state"])


def test_five_thousand_nodes_take_less_than_a_few_seconds() -> None:
    """Chains of norms with a long residual; quadratic work would take minutes."""
    with torch._subclasses.FakeTensorMode():
        graph = Graph()
        x, w = graph.placeholder("x"), graph.placeholder("w")
        x.meta["val"], w.meta["val"] = torch.empty(128, 64), torch.empty(64, 64)

        def call(target: Any, *args: Any) -> Node:
            node = graph.call_function(target, args)
            node.meta["val"] = target(*(a.meta["val"] if isinstance(a, Node) else a for a in args))
            return node

        late = []
        for _ in range(620):
            n = call(A.mul.Tensor, x, call(A.rsqrt.default, call(A.mean.dim, call(A.mul.Tensor, x, x), [1], True)))
            late.append(call(A.exp.default, n))
            x = call(A.add.Tensor, x, call(A.mm.default, call(A.tanh.default, n), w))
        for value in late:
            x = call(A.add.Tensor, x, value)
        graph.output((x,))
    assert 5000 < len(graph.nodes)
    start = time.process_time()
    cut = partition(graph)
    assert time.process_time() - start < 5
    assert_sound(graph, cut)
