"""Which regions share a digest, and which must not."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.fx import Graph, Node
from torch.nn import functional as F

from accelopt_compile.partition import partition
from accelopt_compile.records import Workload
from accelopt_compile.reference import reference
from accelopt_compile.signature import Signed, family_of, sign
from tests.regions.generality import assert_holds
from tests.regions.models import difference, graph_of

A = torch.ops.aten


def only(graph: Graph) -> Signed:
    (region,) = partition(graph).regions
    return sign(region)


def digest(function: Callable[..., Any], *args: torch.Tensor) -> str:
    return only(graph_of(function, *args)).workload.digest


# ---------------------------------------------------------------- regions drawn at random

UNARY = (A.neg.default, A.exp.default, A.tanh.default, A.abs.default)
BINARY = (A.add.Tensor, A.mul.Tensor, A.sub.Tensor, A.maximum.default)
Step = tuple[int, int, int]
STEPS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 99), st.integers(0, 99)), min_size=3, max_size=8)


def build(
    steps: list[Step], names: str, *, swap: bool = False, reorder: bool = False, shape: tuple[int, int] = (96, 64)
) -> Graph:
    """A graph of pointwise calls and row sums. `swap` exchanges commutative operands, `reorder` the order of the inputs and
    of independent nodes."""
    with torch._subclasses.FakeTensorMode():
        graph = Graph()
        inputs = [graph.placeholder(f"{names}{i}") for i in (reversed(range(3)) if reorder else range(3))]
        inputs = inputs[::-1] if reorder else inputs
        for i, node in enumerate(inputs):
            node.meta["val"] = torch.empty(shape) if i < 2 else torch.empty(shape[1])
        values = list(inputs)
        made: dict[int, Node] = {}
        for index, (op, a, b) in enumerate(steps):
            left, right = values[a % len(values)], values[b % len(values)]
            if op < 4:
                args: tuple[Any, ...] = (left,)
                target: Any = UNARY[op]
            else:
                target = BINARY[op - 4]
                args = (right, left) if swap and target is not A.sub.Tensor else (left, right)
            made[index] = call(graph, target, *args)
            values.append(made[index])
        total = values[-1]
        for value in values[3:-1]:
            total = call(graph, A.add.Tensor, *((value, total) if swap else (total, value)))
        graph.output((total,))
        if reorder:
            late_first(graph)
    return graph


def call(graph: Graph, target: Any, *args: Any) -> Node:
    node = graph.call_function(target, args)
    node.meta["val"] = target(*(a.meta["val"] if isinstance(a, Node) else a for a in args))
    return node


def late_first(graph: Graph) -> None:
    """Another topological order: of the nodes that are ready, the last one first."""
    calls = [n for n in graph.nodes if n.op == "call_function"]
    (out,) = graph.find_nodes(op="output")
    done = {n for n in graph.nodes if n.op == "placeholder"}
    while calls:
        node = next(n for n in reversed(calls) if all(s in done for s in n.all_input_nodes))
        calls.remove(node)
        done.add(node)
        out.prepend(node)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_names_order_of_nodes_and_of_commutative_operands_do_not_matter(steps: list[Step]) -> None:
    """Any graph and its renamed, reordered, operand-swapped twin have the same digests, region by region."""
    twins = [build(steps, "x"), build(steps, "other", swap=True, reorder=True)]
    first, second = (sorted(sign(r).workload.digest for r in partition(g).regions) for g in twins)
    assert first == second


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_the_number_of_rows_is_a_symbol(steps: list[Step]) -> None:
    """Regions over 96 and over 160 rows are one workload at two bindings, and the reference is right at both."""
    small, large = build(steps, "x"), build(steps, "x", shape=(160, 64))
    for a, b in zip(partition(small).regions, partition(large).regions, strict=True):
        assert sign(a).workload == sign(b).workload
        one = sign(b)
        values = {n: torch.randn([int(s) for s in n.meta["val"].shape]) for n in b.inputs}
        expected = evaluate(b.nodes, values)
        sizes = list(one.binding.values())
        for k, got in zip(
            one.output_order, reference(one.workload)(*(values[b.inputs[i]] for i in one.input_order), *sizes), strict=True
        ):
            assert difference(expected[b.outputs[k]], got) < 1e-5 or not expected[b.outputs[k]].isfinite().all()


def evaluate(nodes: tuple[Node, ...], values: dict[Node, torch.Tensor]) -> dict[Node, torch.Tensor]:
    known = dict(values)
    for node in nodes:
        args = torch.fx.map_arg(node.args, lambda n: known[n])
        known[node] = node.target(*args)  # type: ignore[operator]
    return known


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_a_workload_survives_its_json(steps: list[Step]) -> None:
    """What is read back has the same digest."""
    for region in partition(build(steps, "x")).regions:
        workload = sign(region).workload
        assert workload == Workload.from_json(workload.to_json())


# ---------------------------------------------------------------- the same idea, written in another way

X = torch.randn(4, 128, 64)
W = torch.randn(64)

SAME = {
    "rms norm": (
        lambda x, w: F.rms_norm(x, (64,), w, 1e-6),
        lambda x, w: w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
        lambda x, w: x * (torch.square(x).mean(2, keepdim=True) + 1e-6).rsqrt() * w,
    ),
    "silu": (lambda x, w: F.silu(x) * w, lambda x, w: w * (x / (1 + torch.exp(-x)))),
    "tanh gelu": (
        lambda x, w: F.gelu(x, approximate="tanh") + w,
        lambda x, w: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))) + w,
        lambda x, w: w + x * 0.5 * (1.0 + torch.tanh((x + 0.044715 * x * x * x) * 0.7978845608)),
    ),
    "erf gelu": (
        lambda x, w: F.gelu(x) + w,
        lambda x, w: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))) + w,
        lambda x, w: 0.5 * (x * (torch.erf(x * 0.70710678) + 1)) + w,
    ),
    "softmax": (lambda x, w: F.softmax(x * w, -1), lambda x, w: torch.softmax(w * x, dim=2)),
    "views and copies": (
        lambda x, w: torch.exp(x.reshape(512, 64).clone().unflatten(0, (4, 128))) + w,
        lambda x, w: torch.exp(x.float().clone().view(4, 128, 64)) * 1.0 + w,
    ),
}


@pytest.mark.parametrize("idea", SAME)
def test_ways_to_write_one_idea_share_a_digest(idea: str) -> None:
    """Library function, and spellings by hand."""
    assert 1 == len({digest(f, X, W) for f in SAME[idea]})


@pytest.mark.parametrize("idea", ["silu", "tanh gelu", "erf gelu", "softmax", "views and copies"])
def test_no_order_of_factors_overflows_where_the_graph_does_not(idea: str) -> None:
    """`0.5 * x * (1 + tanh)` is x at 2e38; twice as much is no float32."""
    x = torch.tensor([1e38, 2e38, 3.3e38, -3.3e38]).repeat(32).reshape(2, 64)
    w = torch.full((64,), 0.5)
    for spelling in SAME[idea]:
        shaped = x.reshape(1, 2, 64).expand(4, 2, 64).repeat(1, 64, 1)
        one = only(graph_of(spelling, shaped, w))
        given = (shaped, w)
        (got,) = reference(one.workload)(*(given[i] for i in one.input_order), *one.binding.values())
        expected = spelling(shaped, w)
        finite = expected.isfinite()
        torch.testing.assert_close(expected[finite], got[finite])


@pytest.mark.parametrize(("number", "place"), [(0.5, 0), (4.0, 1)])
def test_the_number_of_a_product_stands_where_nothing_overflows_by_it(number: float, place: int) -> None:
    """One up to 1 comes first, a larger one last."""
    workload = only(graph_of(lambda x, w: number * x * (x + w), X, W)).workload
    products = [node.args for node in workload.nodes if node.op == "aten.mul.Tensor"]
    assert [place] == [index for index, args in enumerate(products) if number in args]


@pytest.mark.parametrize(
    "product",
    [
        lambda x, w: (x * (x + w)) * 0.5 * (x - w),
        lambda x, w: x * 1e30 * 1e30 * (x + w),
        lambda x, w: x * 1e-30 * 1e-30 * (x + w),
    ],
    ids=["three tensors", "large numbers", "small numbers"],
)
def test_a_product_that_could_overflow_in_another_order_is_left_as_it_is(product: Callable[..., Any]) -> None:
    """Of three tensors any two may; numbers of which the product is none."""
    signed = only(graph_of(product, X, W))
    sums = 2 if "sub" in signed.workload.to_text() else 1
    assert 3 + sums == len(signed.workload.nodes)


def test_parameters_and_arguments_share_a_digest() -> None:
    """It does not matter where a tensor comes from."""

    class Norm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(W)

        def forward(self, y: torch.Tensor) -> torch.Tensor:
            return F.rms_norm(y, (64,), self.scale, 1e-6)

    assert digest(lambda x, w: F.rms_norm(x, (64,), w, 1e-6), X, W) == digest(Norm(), X)


def test_static_and_dynamic_compilation_share_a_digest() -> None:
    """Sizes that are symbols in the workload may be so in the graph."""

    def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x + 1.0, (64,), w)

    marked = X.clone()
    torch._dynamo.mark_dynamic(marked, 0)
    torch._dynamo.mark_dynamic(marked, 1)
    signed = only(graph_of(norm, marked, W))
    assert digest(norm, X, W) == signed.workload.digest
    assert {"s0": 4, "s1": 128} == signed.binding
    assert all(not isinstance(s.size, int) for s in signed.symbol_exprs)


LOOK_UPS: dict[str, Callable[..., Any]] = {
    "embedding": lambda t, i: F.embedding(i, t) * 2,
    "index": lambda t, i: t[i] * 2,
    "positions of another type, in another shape": lambda t, i: F.embedding(i.to(torch.int32)[None, :].t().reshape(-1), t) * 2,
}


@pytest.mark.parametrize("look_up", LOOK_UPS.values(), ids=LOOK_UPS)
def test_the_number_of_rows_of_a_table_is_a_symbol(look_up: Callable[..., Any]) -> None:
    """Kernels are proven on tables of a few rows, and serve every vocabulary."""
    few, many = (only(graph_of(look_up, torch.randn(rows, 64), torch.arange(7))) for rows in (50, 32000))
    assert few.workload.digest == many.workload.digest
    assert {50, 7} == set(few.binding.values())
    assert_holds(few)


def test_the_number_of_rows_that_computed_positions_choose_from_is_none() -> None:
    """A codebook of as many rows as there were columns: with fewer the positions would lie outside."""
    signed = only(graph_of(lambda t, x: F.embedding(x.argmin(-1), t) * 2, torch.randn(30, 64), torch.randn(400, 30)))
    assert 30 not in signed.binding.values()


def test_sizes_that_the_graph_calls_equal_are_one_symbol_where_a_size_is_computed() -> None:
    """With dynamic shapes, a 6 x 6 x 6 tensor has one symbol for three dimensions; joining along one must not mix them up."""
    for dim in range(3):
        signed = only(graph_of(lambda x, d=dim: torch.cat((x, x * 2.0), d).exp(), torch.randn(6, 6, 6), dynamic=True))
        assert {"s0": 6} == signed.binding
        assert_holds(signed)


def test_another_process_finds_the_same_digest() -> None:
    """Whatever its hash seed."""
    code = (
        "import torch; from torch.nn import functional as F; from tests.regions.test_signature import digest;"
        "print(digest(lambda x, w: F.rms_norm(x, (64,), w, 1e-6) * torch.sigmoid(x), torch.empty(4, 128, 64), torch.empty(64)))"
    )
    here = digest(lambda a, b: F.rms_norm(a, (64,), b, 1e-6) * torch.sigmoid(a), X, W)
    run = subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True)
    assert here == run.stdout.strip()


# ---------------------------------------------------------------- what must differ


def base(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.softmax(x * 0.125 + w, -1)


OTHER: dict[str, tuple[Callable[..., Any], torch.Tensor, torch.Tensor]] = {
    "an operator": (lambda x, w: F.softmax(x * 0.125 - w, -1), X, W),
    "a number": (lambda x, w: F.softmax(x * 0.126 + w, -1), X, W),
    "a dtype": (base, X.bfloat16(), W.bfloat16()),
    "the reduced dimension": (lambda x, w: F.softmax(x * 0.125 + w, 1), X, W),
    "the last size": (base, torch.randn(4, 128, 72), torch.randn(72)),
    "strides": (base, X.transpose(0, 1).contiguous().transpose(0, 1), W),
    "a slice of wider rows": (base, torch.randn(4, 128, 80)[..., :64], W),
    "an expanded input": (base, torch.randn(1, 1, 64).expand(4, 128, 64), W),
    "broadcasting": (base, X, torch.randn(4, 128, 64)),
}


@pytest.mark.parametrize("what", OTHER)
def test_what_a_kernel_depends_on_changes_the_digest(what: str) -> None:
    """Each of these would make a kernel for the original wrong."""
    function, x, w = OTHER[what]
    assert digest(base, X, W) != digest(function, x, w)


def test_using_one_tensor_twice_is_not_using_two() -> None:
    """x * x and x * y are different workloads."""
    assert digest(lambda x, y: torch.exp(x) * x, X, X) != digest(lambda x, y: torch.exp(x) * y, X, X + 1)


def test_numerics_flags_count_where_an_operator_heeds_them() -> None:
    """The matrix precision matters to attention and not to a softmax."""
    attention = graph_of(lambda q: F.scaled_dot_product_attention(q, q, q), torch.randn(2, 4, 64, 16))
    softmax = graph_of(base, X, W)
    before = [only(g).workload.digest for g in (attention, softmax)]
    torch.set_float32_matmul_precision("high")
    try:
        after = [only(g).workload.digest for g in (attention, softmax)]
    finally:
        torch.set_float32_matmul_precision("highest")
    assert [False, True] == [a == b for a, b in zip(before, after, strict=True)]


FAMILIES: dict[str, Callable[..., Any]] = {
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "softmax": lambda x, w: F.softmax(x + w, -1),
    "norm": lambda x, w: F.layer_norm(x, (64,), w),
    "reduction": lambda x, w: (x * w).sum(-1),
    "scan": lambda x, w: (x * w).cumsum(-1),
    "argmax": lambda x, w: (x * w).argmax(-1),
    "activation": lambda x, w: torch.tanh(x) * w,
    "pointwise": lambda x, w: (x + w) * x,
    "copy": lambda x, w: x.transpose(0, 2).contiguous(),
    "cross_entropy": lambda x, w: F.cross_entropy(x[0], w[:1].long().clamp(0, 3).expand(128)),
    "embedding": lambda x, w: F.embedding(w.long().clamp(0, 3), x[0]) * 2,
    "rotary": lambda x, w: x * w + torch.cat((-x[..., 32:], x[..., :32]), -1) * (w + 1),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_families_are_told_by_structure(family: str) -> None:
    """Of the largest region."""
    regions = partition(graph_of(FAMILIES[family], X, W)).regions
    assert family == family_of(sign(max(regions, key=lambda r: len(r.nodes))).workload)
