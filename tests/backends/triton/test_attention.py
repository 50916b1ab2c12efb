"""Attention in Triton: right in the interpreter for every layout, mask and size that the workload admits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from accelopt_backends.triton import attention as room
from accelopt_backends.triton import interpreter
from accelopt_compile.records import Artifact, DtypeArg, Node, Ref, SymbolArg, Workload

from ..attention_cases import Case, attention, spec

SIZES = ({"s0": 2, "s1": 17, "s2": 33}, {"s0": 1, "s1": 64, "s2": 64}, {"s0": 1, "s1": 33, "s2": 1}, {"s0": 2, "s1": 1, "s2": 64})
ROWS = (0, 2, 1, 3)
"""Memory order of (batch, sequence, head, dim) tensors seen as (batch, head, sequence, dim)."""
SMALL = {"BLOCK_M": 32, "BLOCK_N": 32}


class Interpreted(Case):
    """One kernel in the interpreter, run at any sizes."""

    def __init__(self, workload: Workload, folder: Path, structure: Mapping[str, str] | None = None, **tunables: int) -> None:
        self.workload = workload
        self.source = room.render(workload, structure or {})
        chosen = {**self.source.defaults(), **tunables}
        assert room.valid(self.source, chosen)
        path = folder / self.source.digest[:16] / "kernel.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(self.source.text)
        artifact = Artifact(path=str(path), source_digest=self.source.digest, tunables=chosen, features={}, build_s=0.0)
        self.kernel = interpreter.load(artifact)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_matches_float64_as_closely_as_eager(dtype: str, causal: bool, tmp_path: Path) -> None:
    """Query and key lengths apart, heads grouped, (B, S, H, D) in memory: one source for every size."""
    case = Interpreted(attention(dtype, kv=2, causal=causal, order=ROWS, lse=True), tmp_path, **SMALL)
    for binding in SIZES:
        case.check(**binding)


@pytest.mark.parametrize("dtype,dim", [("f32", 8), ("bf16", 40), ("f32", 72), ("bf16", 128), ("f16", 256), ("bf16", 5)])
def test_any_head_size(dtype: str, dim: int, tmp_path: Path) -> None:
    """Head sizes that fill a block and those that are padded to one."""
    case = Interpreted(attention(dtype, heads=3, kv=1, dim=dim, lse=True), tmp_path, **SMALL)
    case.check(**SIZES[0])


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
    case = Interpreted(attention(kv=2, mask=spec(kind, *shape), lse=True), tmp_path, **SMALL)
    for binding in SIZES[:3]:
        case.check(**binding)


def _windowed(window: int) -> tuple[Workload, Workload]:
    """(attention whose mask is padding and a window over positions, made in the region; the same with the mask given)."""
    given = attention(kv=2, mask=spec("b8", "s0", 1, "s1", "s2"))
    options = (("dtype", DtypeArg("i64")), ("start", 0), ("step", 1))
    queries, keys = spec("i64", 1, 1, "s1", 1), spec("i64", 1, 1, 1, "s2")
    pairs, full = spec("b8", 1, 1, "s1", "s2"), spec("b8", "s0", 1, "s1", "s2")
    made = (
        Node(op="prims.iota.default", args=(SymbolArg("s1"),), kwargs=options, outputs=(spec("i64", "s1"),)),
        Node(op="aten.reshape.default", args=(Ref("n", 0), (1, 1, SymbolArg("s1"), 1)), outputs=(queries,)),
        Node(op="prims.iota.default", args=(SymbolArg("s2"),), kwargs=options, outputs=(spec("i64", "s2"),)),
        Node(op="aten.reshape.default", args=(Ref("n", 2), (1, 1, 1, SymbolArg("s2"))), outputs=(keys,)),
        Node(op="aten.le.Tensor", args=(Ref("n", 3), Ref("n", 1)), outputs=(pairs,)),
        Node(op="aten.sub.Tensor", args=(Ref("n", 1), window), outputs=(queries,)),
        Node(op="aten.gt.Tensor", args=(Ref("n", 3), Ref("n", 5)), outputs=(pairs,)),
        Node(op="aten.bitwise_and.Tensor", args=(Ref("n", 4), Ref("n", 6)), outputs=(pairs,)),
        Node(op="aten.bitwise_and.Tensor", args=(Ref("n", 7), Ref("i", 3)), outputs=(full,)),
    )

    def behind(arg: object) -> object:
        if arg == Ref("i", 3):
            return Ref("n", len(made) - 1)
        return Ref("n", arg.index + len(made), arg.output) if isinstance(arg, Ref) and arg.kind == "n" else arg

    nodes = [
        replace(n, args=tuple(behind(a) for a in n.args), kwargs=tuple((k, behind(a)) for k, a in n.kwargs)) for n in given.nodes
    ]
    inputs = (*given.inputs[:3], spec("b8", "s0", 1, 1, "s2"))
    return replace(given, inputs=inputs, nodes=(*made, *nodes), outputs=(behind(given.outputs[0]),)), given


def test_a_window_made_of_positions_is_evaluated_in_the_kernel(tmp_path: Path) -> None:
    """Equal to the mask given."""
    made, plain = _windowed(7)
    inside, given = Interpreted(made, tmp_path, **SMALL), Interpreted(plain, tmp_path, **SMALL)
    for binding in ({"s0": 2, "s1": 33, "s2": 64}, {"s0": 1, "s1": 64, "s2": 64}, {"s0": 2, "s1": 1, "s2": 17}):
        values = inside.inputs(binding)
        i, j = torch.arange(binding["s1"])[:, None], torch.arange(binding["s2"])
        mask = (values[3] & (j <= i) & (j > i - 7)).contiguous()
        expected = given.run([*values[:3], mask], binding)[0]
        torch.testing.assert_close(inside.run(values, binding)[0], expected, rtol=1e-6, atol=1e-6)


def test_a_row_with_every_key_masked_is_zero_as_in_eager(tmp_path: Path) -> None:
    """Blocks of masked keys at either end, and rows that see nothing; whole and split."""
    for structure in ("whole", "split"):
        case = Interpreted(attention(mask=spec("f32", "s1", "s2"), lse=True), tmp_path, {"keys": structure}, **SMALL)
        binding = {"s0": 1, "s1": 20, "s2": 100}
        inputs = case.inputs(binding)
        inputs[3].fill_(0.0)
        inputs[3][0] = -math.inf
        inputs[3][:, 70:] = -math.inf
        inputs[3][1, :65] = -math.inf
        out, sums = case.run(inputs, binding)
        exact, exact_sums, _ = case.reference(inputs)
        assert 0.0 == float(out[:, :, 0].abs().max())
        torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(sums.double(), exact_sums, rtol=1e-5, atol=1e-6)


def test_the_lowest_finite_mask_means_uniform_not_nothing(tmp_path: Path) -> None:
    """A row masked by finfo.min everywhere is the mean of the values, as in eager."""
    case = Interpreted(attention(mask=spec("f32", "s1", "s2")), tmp_path, **SMALL)
    binding = {"s0": 1, "s1": 17, "s2": 50}
    inputs = case.inputs(binding)
    inputs[3].fill_(torch.finfo(torch.float32).min)
    (out,) = case.run(inputs, binding)
    torch.testing.assert_close(out, inputs[2].mean(2, keepdim=True).expand_as(out), rtol=1e-5, atol=1e-6)


def test_the_scale_is_the_workloads(tmp_path: Path) -> None:
    """A scale other than 1/sqrt(dim), a negative one too."""
    Interpreted(attention(scale=-0.37, lse=True), tmp_path, **SMALL).check(**SIZES[0])


def test_sizes_of_zero(tmp_path: Path) -> None:
    """No batch and no queries write nothing; no keys give zeros."""
    for structure in ("whole", "split"):
        case = Interpreted(attention(lse=True), tmp_path, {"keys": structure}, **SMALL)
        for batch, queries, keys in ((0, 3, 5), (1, 0, 5), (1, 40, 0), (1, 1, 0)):
            binding = {"s0": batch, "s1": queries, "s2": keys}
            out, _ = case.run(case.inputs(binding), binding)
            assert torch.equal(torch.zeros_like(out), out)


@pytest.mark.parametrize("masked", [False, True])
def test_scores_above_two_to_the_31_stay_right(masked: bool, tmp_path: Path) -> None:
    """The largest takes all: neither 0 nor infinity comes from the rounding of a product."""
    case = Interpreted(attention(mask=spec("f32", "s1", "s2") if masked else None, lse=True), tmp_path, **SMALL)
    for size in (3e2, 2e5):
        binding = {"s0": 1, "s1": 33, "s2": 40}
        inputs = case.inputs(binding)
        inputs[0].mul_(size)
        inputs[1].mul_(size)
        out, sums = case.run(inputs, binding)
        exact, exact_sums, eager = case.reference(inputs)
        assert (out.double() - exact).abs().max() <= 2 * (eager.double() - exact).abs().max() + 1e-5
        torch.testing.assert_close(sums.double(), exact_sums, rtol=1e-6, atol=1e-6)


def test_what_is_no_number_stays_in_its_row(tmp_path: Path) -> None:
    """A query with a NaN, and one whose scores are infinite, give NaN; other rows are right."""
    case = Interpreted(attention(), tmp_path, **SMALL)
    binding = {"s0": 1, "s1": 20, "s2": 40}
    inputs = case.inputs(binding)
    inputs[0][0, 0, 3, 5] = math.nan
    inputs[0][0, 1, 4] = math.inf
    out = case.run(inputs, binding)[0]
    lost = out.isnan().all(-1)
    assert {(0, 0, 3), (0, 1, 4)} == {tuple(place) for place in lost.nonzero().tolist()}
    assert torch.equal(lost, out.isnan().any(-1))


def test_a_score_that_is_no_number_stays_so_behind_a_mask(tmp_path: Path) -> None:
    """Eager adds the mask: a key that nobody may see makes every row NaN when it is."""
    case = Interpreted(attention(mask=spec("b8", "s1", "s2")), tmp_path, **SMALL)
    binding = {"s0": 1, "s1": 5, "s2": 40}
    inputs = case.inputs(binding)
    inputs[3].fill_(True)
    inputs[3][:, 35] = False
    inputs[1][0, 2, 35, 0] = math.nan
    out = case.run(inputs, binding)[0]
    assert bool(out[0, 2].isnan().all()) and not bool(out[0, :2].isnan().any())


@pytest.mark.parametrize("queries", ["s1", 1])
def test_keys_expanded_by_the_graph_are_read_where_they_lie(queries: int | str, tmp_path: Path) -> None:
    """reshape, expand, clone, reshape of two KV heads: no copy of them, and right."""
    case = Interpreted(attention(kv=2, chain=True, queries=queries), tmp_path, BLOCK_N=32)
    case.check(**({"s0": 2, "s1": 33, "s2": 33} if queries == "s1" else {"s0": 2, "s1": 100}))


def test_a_view_of_the_output_is_written_in_its_own_layout(tmp_path: Path) -> None:
    """transpose and reshape to (B, S, H*D) after the attention become strides of the store."""
    plain = attention("bf16", kv=2)
    flat = spec("bf16", "s0", "s1", 4 * 64)
    permute = Node(op="aten.permute.default", args=(Ref("n", 0), (0, 2, 1, 3)), outputs=(spec("bf16", "s0", "s1", 4, 64),))
    reshape = Node(op="aten.reshape.default", args=(Ref("n", 1), ()), outputs=(flat,))
    viewed = replace(plain, nodes=(*plain.nodes, permute, reshape), outputs=(Ref("n", 2),), output_specs=(flat,))
    case, flattened = Interpreted(plain, tmp_path, **SMALL), Interpreted(viewed, tmp_path, **SMALL)
    inputs = case.inputs(SIZES[0])
    expected = case.run(inputs, SIZES[0])[0].transpose(1, 2).flatten(2)
    assert torch.equal(expected, flattened.run(inputs, SIZES[0])[0])


def test_strides_that_are_not_dense(tmp_path: Path) -> None:
    """Keys with sequence innermost and queries with padded rows: no unit stride to rely on."""
    workload = attention("bf16", kv=2)
    keys = spec("bf16", "s0", 2, "s2", 64, order=(0, 1, 3, 2))
    query = replace(workload.inputs[0], strides=("s1*320", "s1*80", 80, 1))
    case = Interpreted(replace(workload, inputs=(query, keys, workload.inputs[2])), tmp_path, **SMALL)
    case.check(**SIZES[0])


@pytest.mark.parametrize("splits", [2, 8, 32])
def test_split_keys_are_joined_in_their_order(splits: int, tmp_path: Path) -> None:
    """Decode of grouped heads: right with shares of keys that are empty, and bitwise equal in two runs, whose programs the
    interpreter takes in opposite orders."""
    case = Interpreted(attention("bf16", kv=2, queries=1, causal=False, lse=True), tmp_path, SPLITS=splits, BLOCK_N=32)
    assert {"keys": "split"} == dict(case.source.structure)
    for keys in (1, 33, 300):
        case.check(s0=1, s1=keys)
    inputs = case.inputs({"s0": 1, "s1": 300})
    first, second = (case.run(inputs, {"s0": 1, "s1": 300})[0] for _ in range(2))
    assert torch.equal(first, second)


def test_a_causal_limit_with_split_keys(tmp_path: Path) -> None:
    """Queries whose first keys are all that they see, although later shares are theirs to read."""
    case = Interpreted(attention(kv=2, causal=True, lse=True), tmp_path, {"keys": "split"}, SPLITS=4, **SMALL)
    for binding in SIZES:
        case.check(**binding)


def test_blocks_that_do_not_fit_are_refused() -> None:
    """More shared memory than a program has, or accumulators than registers; a source of another generator is not judged."""
    source = room.render(attention("bf16", dim=128), {})
    assert room.valid(source, {})
    assert not room.valid(source, {"BLOCK_M": 128, "BLOCK_N": 128, "STAGES": 4, "WARPS": 8})
    assert not room.valid(source, {"BLOCK_M": 128, "WARPS": 2})
    assert room.valid(replace(source, text="def accelopt_kernel(): ..."), {"BLOCK_M": 1 << 20})


def test_what_it_does_not_do_has_a_reason() -> None:
    """Not attention, arithmetic beside it, a choice outside the grammar."""
    plain = attention()
    extra = Node(op="aten.mul.Tensor", args=(Ref("n", 0), 2.0), outputs=plain.output_specs)
    doubled = replace(plain, nodes=(*plain.nodes, extra), outputs=(Ref("n", 1),))
    reasons = [room.matches(w) for w in (replace(plain, nodes=()), doubled)]
    assert ["not exactly one flash attention", "an output beside the attention"] == reasons
    assert room.matches(plain) is True
    with pytest.raises(ValueError, match="outside the grammar"):
        room.render(plain, {"keys": "elsewhere"})
