"""The attention kernel: right for every layout, mask, size and number of threads that the workload admits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from accelopt_backends.cpp import attention as room
from accelopt_backends.cpp import toolchain
from accelopt_compile.records import DtypeArg, Node, Ref, SymbolArg, Workload

from .attention_cases import TORCH, Case, attention, spec

PREFILL = ({"s0": 2, "s1": 37, "s2": 53}, {"s0": 1, "s1": 130, "s2": 130}, {"s0": 1, "s1": 70, "s2": 9})
DECODE = ({"s0": 2, "s1": 1, "s2": 300}, {"s0": 1, "s1": 2, "s2": 77}, {"s0": 1, "s1": 1, "s2": 1})
ROWS = (0, 2, 1, 3)
"""Memory order of (batch, sequence, head, dim) tensors seen as (batch, head, sequence, dim)."""


@pytest.mark.sweep(2)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_matches_float64_as_closely_as_eager(dtype: str, causal: bool, tmp_path: Path) -> None:
    """Prefill and decode, query and key lengths apart, heads grouped, (B, S, H, D) in memory: one kernel for every size."""
    case = Case(attention(dtype, kv=2, causal=causal, order=ROWS, lse=True), tmp_path)
    for binding in (*PREFILL, *DECODE):
        case.check(**binding)
    case.check(threads=2, **PREFILL[0])
    case.check(threads=2, **DECODE[0])


@pytest.mark.sweep(2)
@pytest.mark.parametrize("dtype,dim", [("f32", 8), ("bf16", 40), ("f32", 72), ("bf16", 128), ("f32", 256), ("bf16", 5)])
def test_any_head_size(dtype: str, dim: int, tmp_path: Path) -> None:
    """Head sizes that fill vectors and tiles, and those that leave tails."""
    case = Case(attention(dtype, heads=3, kv=1, dim=dim, lse=True), tmp_path)
    for binding in (PREFILL[0], DECODE[0]):
        case.check(**binding)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "kind,shape",
    [
        ("f32", ("s1", "s2")),
        ("f32", ("s0", 1, 1, "s2")),
        ("b8", ("s0", 4, "s1", "s2")),
        ("f32", (1, 1, "s1", 1)),
        ("b8", ("s0", 1, 1, "s2")),
    ],
)
def test_masks_broadcast(kind: str, shape: tuple[int | str, ...], tmp_path: Path) -> None:
    """Additive and boolean masks over keys, queries, heads and batch, whatever is broadcast."""
    case = Case(attention(kv=2, mask=spec(kind, *shape), lse=True), tmp_path)
    for binding in (*PREFILL, *DECODE):
        case.check(**binding)


def test_a_mask_made_of_positions_is_evaluated_in_the_kernel(tmp_path: Path) -> None:
    """where(padding & (key position <= query position), 0, -inf), as decoder models write it: equal to the mask given."""
    given = Case(attention(kv=2, mask=spec("b8", "s0", 1, "s1", "s2")), tmp_path)
    plain = given.workload
    full = spec("b8", "s0", 1, "s1", "s2")
    keys, rows = spec("i64", 1, 1, 1, "s2"), spec("i64", 1, 1, "s1", 1)
    options = (("dtype", DtypeArg("i64")), ("start", 0), ("step", 1))
    made = (
        Node(op="prims.iota.default", args=(SymbolArg("s2"),), kwargs=options, outputs=(spec("i64", "s2"),)),
        Node(op="aten.reshape.default", args=(Ref("n", 0), (1, 1, 1, SymbolArg("s2"))), outputs=(keys,)),
        Node(op="aten.le.Tensor", args=(Ref("n", 1), Ref("i", 4)), outputs=(spec("b8", 1, 1, "s1", "s2"),)),
        Node(op="aten.bitwise_and.Tensor", args=(Ref("i", 3), Ref("n", 2)), outputs=(full,)),
        *(replace(n, args=tuple(_moved(a, 4) for a in n.args), kwargs=_moved_kwargs(n, 4)) for n in plain.nodes),
    )
    where = next(i for i, n in enumerate(made) if "where" in n.op)
    made = (*made[:where], replace(made[where], args=(Ref("n", 3), *made[where].args[1:])), *made[where + 1 :])
    padding = spec("b8", "s0", 1, 1, "s2")
    inputs = (*plain.inputs[:3], padding, rows)
    case = Case(replace(plain, inputs=inputs, nodes=made, outputs=(Ref("n", len(made) - 1),)), tmp_path)
    for binding in ({"s0": 2, "s1": 37, "s2": 53}, {"s0": 2, "s1": 1, "s2": 70}):
        values = case.inputs(binding)
        values[4] = torch.arange(binding["s1"]).reshape(1, 1, -1, 1) + 3
        mask = (values[3] & (torch.arange(binding["s2"]) <= values[4])).contiguous()
        assert torch.equal(given.run([*values[:3], mask], binding)[0], case.run(values, binding)[0])


def _moved(arg: object, by: int) -> object:
    return Ref("n", arg.index + by, arg.output) if isinstance(arg, Ref) and arg.kind == "n" else arg


def _moved_kwargs(node: Node, by: int) -> tuple[tuple[str, object], ...]:
    return tuple((name, _moved(value, by)) for name, value in node.kwargs)


def test_masks_in_half_precision_with_a_causal_limit(tmp_path: Path) -> None:
    """A mask in the storage type, on top of the causal limit."""
    case = Case(attention("bf16", kv=2, causal=True, mask=spec("bf16", "s0", 1, "s1", "s2")), tmp_path)
    for binding in (*PREFILL, *DECODE):
        case.check(**binding)


def test_a_row_with_every_key_masked_is_zero_as_in_eager(tmp_path: Path) -> None:
    """Blocks of masked keys at either end, and rows that see nothing."""
    case = Case(attention(mask=spec("f32", "s1", "s2"), lse=True), tmp_path)
    for binding in ({"s0": 1, "s1": 40, "s2": 300}, {"s0": 1, "s1": 2, "s2": 300}):
        inputs = case.inputs(binding)
        inputs[3].fill_(0.0)
        inputs[3][0] = -math.inf
        inputs[3][:, 250:] = -math.inf
        inputs[3][1, :200] = -math.inf
        out, sums = case.run(inputs, binding)
        exact, exact_sums, _ = case.reference(inputs)
        assert 0.0 == float(out[:, :, 0].abs().max())
        torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(sums.double(), exact_sums, rtol=1e-5, atol=1e-6)


def test_the_lowest_finite_mask_means_uniform_not_nothing(tmp_path: Path) -> None:
    """A row masked by finfo.min everywhere is the mean of the values, as in eager."""
    case = Case(attention(mask=spec("f32", "s1", "s2")), tmp_path)
    for binding in ({"s0": 1, "s1": 40, "s2": 50}, {"s0": 1, "s1": 1, "s2": 50}):
        inputs = case.inputs(binding)
        inputs[3].fill_(torch.finfo(torch.float32).min)
        (out,) = case.run(inputs, binding)
        torch.testing.assert_close(out, inputs[2].mean(2, keepdim=True).expand_as(out), rtol=1e-5, atol=1e-6)


def test_the_scale_is_the_workloads(tmp_path: Path) -> None:
    """A scale other than 1/sqrt(dim), a negative one too."""
    case = Case(attention(scale=-0.37, lse=True), tmp_path)
    for binding in (PREFILL[0], DECODE[0]):
        case.check(**binding)


def test_sizes_of_zero(tmp_path: Path) -> None:
    """No batch and no queries write nothing; no keys give zeros (where eager divides by zero)."""
    case = Case(attention(lse=True), tmp_path)
    for batch, queries, keys in ((0, 3, 5), (1, 0, 5), (1, 40, 0), (1, 1, 0)):
        binding = {"s0": batch, "s1": queries, "s2": keys}
        out, _ = case.run(case.inputs(binding), binding)
        assert torch.equal(torch.zeros_like(out), out)


def test_large_scores_do_not_overflow(tmp_path: Path) -> None:
    """Scores of ten thousands: the largest takes all."""
    case = Case(attention(causal=True, lse=True), tmp_path)
    for binding in (PREFILL[1], DECODE[0]):
        inputs = case.inputs(binding)
        inputs[0].mul_(300.0)
        inputs[1].mul_(300.0)
        out, _ = case.run(inputs, binding)
        exact, _, eager = case.reference(inputs)
        assert (out.double() - exact).abs().max() <= 2 * (eager.double() - exact).abs().max() + 1e-5


@pytest.mark.parametrize("queries", ["s1", 1])
def test_keys_expanded_by_the_graph_are_read_where_they_lie(queries: int | str, tmp_path: Path) -> None:
    """reshape, expand, clone, reshape of two KV heads: the same result as keys with two heads, bit for bit."""
    chained = Case(attention(kv=2, chain=True, queries=queries), tmp_path)
    direct = Case(attention(kv=2, queries=queries), tmp_path)
    binding = {"s0": 2, "s1": 40, "s2": 40} if queries == "s1" else {"s0": 2, "s1": 300}
    inputs = chained.inputs(binding)
    assert torch.equal(direct.run(inputs, binding)[0], chained.run(inputs, binding)[0])
    chained.check(**binding)


def test_a_view_of_the_output_is_written_in_its_own_layout(tmp_path: Path) -> None:
    """transpose and reshape to (B, S, H*D) after the attention become strides of the store."""
    plain = attention("bf16", kv=2)
    flat = spec("bf16", "s0", "s1", 4 * 64)
    permute = Node(op="aten.permute.default", args=(Ref("n", 0), (0, 2, 1, 3)), outputs=(spec("bf16", "s0", "s1", 4, 64),))
    reshape = Node(op="aten.reshape.default", args=(Ref("n", 1), ()), outputs=(flat,))
    viewed = replace(plain, nodes=(*plain.nodes, permute, reshape), outputs=(Ref("n", 2),), output_specs=(flat,))
    case, flattened = Case(plain, tmp_path), Case(viewed, tmp_path)
    for binding in (PREFILL[0], DECODE[0]):
        inputs = case.inputs(binding)
        expected = case.run(inputs, binding)[0].transpose(1, 2).flatten(2)
        assert torch.equal(expected, flattened.run(inputs, binding)[0])


def test_strides_that_are_not_dense(tmp_path: Path) -> None:
    """Keys with sequence innermost and queries with padded rows: no unit stride to rely on."""
    workload = attention("bf16", kv=2)
    keys = spec("bf16", "s0", 2, "s2", 64, order=(0, 1, 3, 2))
    query = replace(workload.inputs[0], strides=("s1*320", "s1*80", 80, 1))
    workload = replace(workload, inputs=(query, keys, workload.inputs[2]))
    assert ("copied",) == room.grammar(workload)["keys"]
    case = Case(workload, tmp_path)
    for binding in (*PREFILL, *DECODE):
        case.check(**binding)


@pytest.mark.parametrize("structure", [{"keys": "copied"}, {"softmax": "two_pass"}, {"decode": "whole"}])
def test_every_structure_is_right(structure: dict[str, str], tmp_path: Path) -> None:
    """Each structural choice, with tunables away from their defaults."""
    tunables = {"Q_VECS": 3, "K_TILE": 8, "D_TILE": 4, "K_BLOCK": 48, "EDGE_BLOCK": 24, "ROW_BLOCK": 64, "DIM_VECS": 2}
    dtype = "f32" if "keys" in structure else "bf16"
    case = Case(attention(dtype, heads=3, kv=1, causal=True), tmp_path, structure, **tunables, MIN_SPLIT=128, PREFETCH=0)
    assert room.valid(case.source, tunables)
    for binding in (*PREFILL, *DECODE):
        case.check(**binding)
    case.check(threads=2, **DECODE[0])


def test_two_runs_agree_bit_for_bit_and_inputs_stay(tmp_path: Path) -> None:
    """Keys split between threads are joined in a fixed order."""
    case = Case(attention(heads=4, kv=1), tmp_path)
    binding = {"s0": 1, "s1": 1, "s2": 2000}
    inputs = case.inputs(binding)
    before = [t.clone() for t in inputs]
    first = case.run(inputs, binding, threads=2)[0]
    assert all(torch.equal(first, case.run(inputs, binding, threads=2)[0]) for _ in range(3))
    assert all(torch.equal(a, b) for a, b in zip(before, inputs, strict=True))


@pytest.fixture(params=["avx2", "default"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", request.param)
    toolchain.find.cache_clear()
    yield request.param
    toolchain.find.cache_clear()


def test_older_processors(level: str, tmp_path: Path) -> None:
    """The same text built for narrower vectors."""
    for dtype in ("f32", "bf16") if level == "default" else ("bf16", "f16"):
        case = Case(attention(dtype, heads=6, kv=2, causal=True, lse=True), tmp_path)
        for binding in (PREFILL[0], DECODE[0]):
            case.check(**binding)


def test_invalid_tunables_are_refused() -> None:
    """Tiles that do not fit the registers, and blocks that are no whole number of tiles."""
    source = room.render(attention(), {})
    assert room.valid(source, {})
    assert not room.valid(source, {"Q_VECS": 4, "K_TILE": 8})
    assert not room.valid(source, {"K_BLOCK": 96, "EDGE_BLOCK": 20})


def _dropout(workload: Workload) -> Workload:
    node = workload.nodes[-1]
    return replace(workload, nodes=(*workload.nodes[:-1], replace(node, args=(*node.args[:3], 0.1, False))))


def _doubled(workload: Workload) -> Workload:
    extra = Node(op="aten.mul.Tensor", args=(Ref("n", 0), 2.0), outputs=workload.output_specs)
    return replace(workload, nodes=(*workload.nodes, extra), outputs=(Ref("n", 1),))


def test_what_it_does_not_do_has_a_reason() -> None:
    """Not attention, dropout, arithmetic beside it: one line each; and rendering raises ValueError."""
    plain = attention()
    empty = replace(plain, nodes=())
    reasons = [room.matches(w) for w in (empty, _dropout(plain), _doubled(plain))]
    assert ["not exactly one flash attention", "attention with dropout", "an output beside the attention"] == reasons
    assert room.matches(plain) is True
    with pytest.raises(ValueError, match="dropout"):
        room.render(_dropout(plain), {})
    with pytest.raises(ValueError, match="outside the grammar"):
        room.render(plain, {"keys": "elsewhere"})
    assert set(TORCH) >= {"f32", "bf16", "f16"}
