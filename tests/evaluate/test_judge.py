"""The judge accepts every right way to compute a result and nothing that is wrong beyond rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accelopt_compile.evaluate.answers import Answer, Answers, Case
from accelopt_compile.evaluate.compare import Exact, judge
from accelopt_compile.evaluate.inputs import FAMILIES
from accelopt_compile.evaluate.tolerance import Allowance
from accelopt_compile.records import Node, Ref, TensorSpec, Workload
from tests.evaluate.workloads import softmax_workload

ROWS = 33
WORKLOAD = softmax_workload(257)
ANSWERS = Answers(WORKLOAD)


def answer(family: str, seed: int = 5, answers: Answers = ANSWERS) -> Answer:
    found = answers.get(Case((("s0", ROWS),), family, seed), probes=16)
    assert isinstance(found, Answer), found
    return found


def sequential(x: torch.Tensor) -> torch.Tensor:
    """Softmax with the sum taken one element after the other, in float32."""
    e = (x - x.amax(1, keepdim=True)).exp()
    total = torch.zeros_like(e[:, :1])
    for k in range(e.shape[1]):
        total = total + e[:, k : k + 1]
    return e / total


def base_two(x: torch.Tensor) -> torch.Tensor:
    """Softmax by powers of two, times a reciprocal."""
    e = torch.exp2((x - x.amax(1, keepdim=True)) * 1.4426950408889634)
    return e * (1 / e.sum(1, keepdim=True))


RIGHT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "aten": lambda x: torch.softmax(x, 1),
    "float64": lambda x: torch.softmax(x.double(), 1).float(),
    "sequential": sequential,
    "base two": base_two,
}

WRONG: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros": torch.zeros_like,
    "the mean": lambda x: torch.full_like(x, 1 / x.shape[1]),
    "1 % more": lambda x: torch.softmax(x, 1) * 1.01,
    "0.01 % more": lambda x: torch.softmax(x, 1) * 1.0001,
    "one part in 100000 more": lambda x: torch.softmax(x, 1) * 1.00002,
    "rounded to bfloat16": lambda x: torch.softmax(x, 1).bfloat16().float(),
    "computed in bfloat16": lambda x: torch.softmax(x.bfloat16(), 1).float(),
    "the last column left out of the sum": lambda x: torch.cat([torch.softmax(x[:, :-1], 1), torch.softmax(x, 1)[:, -1:]], 1),
    "small results set to zero": lambda x: torch.where(torch.softmax(x, 1) < 1e-3, 0.0, torch.softmax(x, 1)),
    "one row of another": lambda x: torch.softmax(x, 1).roll(1, 0),
}


PAIRS = [(name, family) for name in RIGHT for family in FAMILIES if (name, family) != ("base two", "nonfinite")]
"""All but one: 0 times inf is NaN by powers of two and not in eager, so there that alternative is wrong."""


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_right_alternatives_are_accepted_on_every_family(name: str, family: str) -> None:
    """Another order of summation, another exponential, or float64 inside: all of them are right."""
    wanted = answer(family)
    assert "" == judge([RIGHT[name](wanted.inputs[0])], wanted.expected).fault


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_rejected_on_normal_inputs(name: str) -> None:
    """A wrong result that a fixed tolerance of 1 % would pass is rejected on ordinary inputs."""
    wanted = answer("normal")
    judgement = judge([WRONG[name](wanted.inputs[0])], wanted.expected)
    assert judgement.fault
    assert judgement.share > 1


def test_softmax_without_maximum_falls_on_large_logits() -> None:
    """What is right on normal inputs and overflows on large ones is found by the family of large ones."""
    x = answer("logits").inputs[0]
    assert judge([x.exp() / x.exp().sum(1, keepdim=True)], answer("logits").expected).fault


def test_swallowed_nan_is_rejected() -> None:
    """NaN and Inf must be where eager has them."""
    wanted = answer("nonfinite")
    assert "NaN" in judge([torch.nan_to_num(torch.softmax(wanted.inputs[0], 1))], wanted.expected).fault


@settings(max_examples=60, deadline=None)
@given(row=st.integers(0, ROWS - 1), column=st.integers(0, 256), off=st.floats(1e-4, 1e3), sign=st.sampled_from([-1, 1]))
def test_one_wrong_element_anywhere_is_found_and_named(row: int, column: int, off: float, sign: int) -> None:
    """A relative error of 1e-4 or more in one element is rejected, and the fault names that element."""
    wanted = answer("normal")
    result = torch.softmax(wanted.inputs[0], 1)
    result[row, column] *= 1 + sign * off
    assert f"first at ({row}, {column})" in judge([result], wanted.expected).fault


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**40), family=st.sampled_from(FAMILIES))
def test_eager_is_always_accepted(seed: int, family: str) -> None:
    """Eager itself passes on every family and seed."""
    wanted = answer(family, seed)
    assert "" == judge([torch.softmax(wanted.inputs[0], 1)], wanted.expected).fault


def test_half_precision_allows_float32_inside_and_no_more() -> None:
    """bfloat16: computing in float32 and rounding once is right; 2 % off is not."""
    answers = Answers(softmax_workload(257, "bf16"))
    wanted = answer("normal", answers=answers)
    right = torch.softmax(wanted.inputs[0].float(), 1).bfloat16()
    assert "" == judge([right], wanted.expected).fault
    assert judge([(right.float() * 1.02).bfloat16()], wanted.expected).fault


def test_integers_must_be_exact() -> None:
    """An integer or boolean output off in one element is rejected; a boolean byte of 2 too."""
    wanted = Exact(eager=torch.arange(6), golden=torch.arange(6))
    assert "" == judge([torch.arange(6)], [wanted]).fault
    assert "first at (5,)" in judge([torch.tensor([0, 1, 2, 3, 4, 6])], [wanted]).fault
    flags = Exact(eager=torch.ones(3, dtype=torch.bool), golden=torch.ones(3, dtype=torch.bool))
    assert judge([torch.tensor([1, 2, 1], dtype=torch.uint8).view(torch.bool)], [flags]).fault


def test_second_moments_are_kept_nonnegative() -> None:
    """An input under a square root is drawn from numbers eager can take; only that input."""
    spec = TensorSpec(dtype="f32", shape=("s0", 4), strides=(4, 1))
    nodes = (
        Node(op="aten.sqrt.default", args=(Ref("i", 1),), outputs=(spec,)),
        Node(op="aten.add.Tensor", args=(Ref("i", 0), Ref("n", 0)), outputs=(spec,)),
    )
    workload = Workload(inputs=(spec, spec), nodes=nodes, outputs=(Ref("n", 1),), output_specs=(spec,), symbols=("s0",))
    wanted = answer("normal", answers=Answers(workload))
    assert bool((wanted.inputs[1] >= 0).all())
    assert bool((wanted.inputs[0] < 0).any())


def test_an_answer_that_proves_nothing_is_skipped_with_a_reason() -> None:
    """Where the reference refuses a size, there is no answer but a reason."""
    spec = TensorSpec(dtype="f32", shape=("s0", 4), strides=(4, 1))
    fixed = TensorSpec(dtype="f32", shape=(5, 4), strides=(4, 1))
    node = Node(op="aten.view.default", args=(Ref("i", 0), (5, 4)), outputs=(fixed,))
    workload = Workload(inputs=(spec,), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(fixed,), symbols=("s0",))
    found = Answers(workload).get(Case((("s0", 3),), "normal", 1), probes=4)
    assert isinstance(found, str)
    assert "refuses" in found


def test_a_rounding_that_cancellation_magnifies_is_allowed() -> None:
    """GELU far below zero is 1 + erf(x) with nearly all digits gone: another correct erf is right, 0.01 % more is not."""
    spec = TensorSpec(dtype="f32", shape=("s0", 512), strides=(512, 1))
    nodes = (
        Node(op="aten.mul.Tensor", args=(Ref("i", 0), 0.70710677), outputs=(spec,)),
        Node(op="aten.erf.default", args=(Ref("n", 0),), outputs=(spec,)),
        Node(op="aten.add.Tensor", args=(Ref("n", 1), 1.0), outputs=(spec,)),
        Node(op="aten.mul.Tensor", args=(Ref("n", 2), Ref("i", 0)), outputs=(spec,)),
    )
    workload = Workload(inputs=(spec,), nodes=nodes, outputs=(Ref("n", 3),), output_specs=(spec,), symbols=("s0",))
    wanted = answer("normal", answers=Answers(workload))
    x = wanted.inputs[0]
    erf = torch.erf(x.double() * 0.70710677).float()
    erf = torch.where(torch.arange(512) % 2 == 0, erf, torch.nextafter(erf, torch.tensor(2.0)))
    assert "" == judge([(erf + 1) * x], wanted.expected).fault
    assert judge([(torch.erf(x * 0.70710677) + 1) * x * 1.0001], wanted.expected).fault


def bias_corrected_step() -> Workload:
    """x / sqrt(v) * sqrt(1 - 0.999 ** (step + 1)): AdamW's, whose step count is one number."""
    many = TensorSpec(dtype="f32", shape=("s0",), strides=(1,))
    one = TensorSpec(dtype="f32", shape=(), strides=())
    nodes = (
        Node(op="aten.add.Tensor", args=(Ref("i", 2), 1.0), outputs=(one,)),
        Node(op="aten.pow.Scalar", args=(0.999, Ref("n", 0)), outputs=(one,)),
        Node(op="aten.sub.Tensor", args=(1.0, Ref("n", 1)), outputs=(one,)),
        Node(op="aten.sqrt.default", args=(Ref("n", 2),), outputs=(one,)),
        Node(op="aten.rsqrt.default", args=(Ref("i", 1),), outputs=(many,)),
        Node(op="aten.mul.Tensor", args=(Ref("i", 0), Ref("n", 4)), outputs=(many,)),
        Node(op="aten.mul.Tensor", args=(Ref("n", 5), Ref("n", 3)), outputs=(many,)),
    )
    return Workload(inputs=(many, many, one), nodes=nodes, outputs=(Ref("n", 6),), output_specs=(many,), symbols=("s0",))


@pytest.mark.parametrize("first", [1, 2, ROWS])
def test_what_must_not_be_negative_is_found_at_any_size(first: int) -> None:
    """A variance of one or two elements, and a step count, are positive by luck in one draw; later draws gave NaN, and nothing
    could be verified or timed."""
    answers = Answers(bias_corrected_step())
    answers.get(Case((("s0", first),), "normal", 1), probes=2)
    for family in ("normal", "large", "logits"):
        for seed in range(6):
            found = answers.get(Case((("s0", ROWS),), family, seed), probes=2)
            assert isinstance(found, Answer), (family, seed, found)


def column_mean() -> Workload:
    whole, row = TensorSpec(dtype="f32", shape=(512, 4), strides=(4, 1)), TensorSpec(dtype="f32", shape=(4,), strides=(1,))
    node = Node(op="aten.mean.dim", args=(Ref("i", 0), (0,)), outputs=(row,))
    return Workload(inputs=(whole,), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(row,), symbols=())


def test_sums_may_be_taken_in_any_order_where_none_overflows() -> None:
    """512 numbers up to 2**126: by sign they overflow, one after the other they may not. Such a draw proves nothing."""
    answers, judged = Answers(column_mean()), 0
    for seed in range(40):
        found = answers.get(Case((), "exponents", seed), probes=2)
        if isinstance(found, Answer):
            x = found.inputs[0]
            in_order = x.sort(0).values.cumsum(0)[-1] / 512
            assert "" == judge([in_order], found.expected).fault
            judged += 1
    assert 0 < judged < 40


def silu_layer_norm() -> Workload:
    """Layer norm of x / (1 + exp(-x)) over 64 columns, without weight: exp overflows for x below -88."""
    whole = TensorSpec(dtype="f32", shape=("s0", 64), strides=(64, 1))
    row = TensorSpec(dtype="f32", shape=("s0", 1), strides=(1, 1))
    nodes = (
        Node(op="aten.neg.default", args=(Ref("i", 0),), outputs=(whole,)),
        Node(op="aten.exp.default", args=(Ref("n", 0),), outputs=(whole,)),
        Node(op="aten.add.Tensor", args=(Ref("n", 1), 1), outputs=(whole,)),
        Node(op="aten.div.Tensor", args=(Ref("i", 0), Ref("n", 2)), outputs=(whole,)),
        Node(
            op="aten.var_mean.correction",
            args=(Ref("n", 3), (1,)),
            kwargs=(("correction", 0), ("keepdim", True)),
            outputs=(row, row),
        ),
        Node(op="aten.add.Tensor", args=(Ref("n", 4), 1e-5), outputs=(row,)),
        Node(op="aten.rsqrt.default", args=(Ref("n", 5),), outputs=(row,)),
        Node(op="aten.sub.Tensor", args=(Ref("n", 3), Ref("n", 4, 1)), outputs=(whole,)),
        Node(op="aten.mul.Tensor", args=(Ref("n", 7), Ref("n", 6)), outputs=(whole,)),
    )
    return Workload(inputs=(whole,), nodes=nodes, outputs=(Ref("n", 8),), output_specs=(whole,), symbols=("s0",))


@pytest.mark.parametrize("family", ["row_scales", "spikes", "logits"])
def test_a_row_in_which_something_overflows_is_still_allowed_rounding(family: str) -> None:
    """exp(1000) is infinite in float64 too. Moved at random it became NaN, and its row was allowed no error at all."""
    answers = Answers(silu_layer_norm())
    for seed in range(5):
        expected = answer(family, seed, answers).expected[0]
        assert isinstance(expected, Allowance)
        still = expected.limit <= 4e-7 * expected.golden.abs() + 1e-30
        assert not bool(still.all(1).any())


def test_results_that_are_small_beside_others_may_not_be_zero() -> None:
    """What the sensitivity of a row says of its large elements does not excuse its small ones."""
    wanted = answer("logits")
    right = torch.softmax(wanted.inputs[0], 1)
    assert judge([torch.where(right < 1e-7, 0.0, right)], wanted.expected).fault


def test_a_maximum_that_starts_at_zero_falls_far_below() -> None:
    """max(x, 0) is no maximum where all of a row is far below 0."""
    wanted = answer("far_below")
    x = wanted.inputs[0]
    e = (x - x.amax(1, keepdim=True).clamp(min=0)).exp()
    assert judge([e / e.sum(1, keepdim=True)], wanted.expected).fault


def moves(dtype: str = "f32") -> Workload:
    """A copy of the rows in reverse, negated."""
    spec = TensorSpec(dtype=dtype, shape=("s0", 64), strides=(64, 1))
    nodes = (
        Node(op="aten.flip.default", args=(Ref("i", 0), (0,)), outputs=(spec,)),
        Node(op="aten.neg.default", args=(Ref("n", 0),), outputs=(spec,)),
    )
    return Workload(inputs=(spec,), nodes=nodes, outputs=(Ref("n", 1),), output_specs=(spec,), symbols=("s0",))


def test_what_is_only_moved_must_be_equal_to_the_last_bit() -> None:
    """One unit in the last place is an error where nothing is computed."""
    wanted = answer("normal", answers=Answers(moves()))
    right = -wanted.inputs[0].flip(0)
    assert "" == judge([right], wanted.expected).fault
    right[3, 5] = torch.nextafter(right[3, 5], torch.tensor(9.0))
    assert "first at (3, 5)" in judge([right], wanted.expected).fault


def test_the_sign_of_a_zero_that_is_moved_counts() -> None:
    """0 - x is no negation of zeros."""
    wanted = answer("negative_zeros", answers=Answers(moves()))
    assert judge([0.0 - wanted.inputs[0].flip(0)], wanted.expected).fault


def test_subnormals_that_are_moved_are_kept_but_in_bfloat16() -> None:
    """A flushing mode is an error; the instruction that rounds to bfloat16 flushes by itself."""
    for dtype, fault in (("f32", True), ("f16", True), ("bf16", False)):
        wanted = answer("subnormal", answers=Answers(moves(dtype)))
        right = -wanted.inputs[0].flip(0)
        flushed = torch.where(right.abs() < torch.finfo(right.dtype).tiny, right * 0, right)
        assert fault == bool(judge([flushed], wanted.expected).fault)


def test_a_result_that_lies_transposed_is_judged_too() -> None:
    """The golden answer has the strides that the program gives it; what is compared is contiguous."""
    spec = TensorSpec(dtype="f32", shape=("s0", 64), strides=(64, 1))
    turned = TensorSpec(dtype="f32", shape=(64, "s0"), strides=(1, 64))
    nodes = (
        Node(op="aten.exp.default", args=(Ref("i", 0),), outputs=(spec,)),
        Node(op="aten.permute.default", args=(Ref("n", 0), (1, 0)), outputs=(turned,)),
    )
    workload = Workload(inputs=(spec,), nodes=nodes, outputs=(Ref("n", 1),), output_specs=(turned,), symbols=("s0",))
    wanted = answer("normal", answers=Answers(workload))
    right = wanted.inputs[0].exp().t().contiguous()
    assert "" == judge([right], wanted.expected).fault
    right[5, 3] *= 1.0001
    assert "first at (5, 3)" in judge([right], wanted.expected).fault


def test_a_row_of_one_value_is_one_draw_for_the_bias() -> None:
    """One row of eight rounded to the other side is no bias where inputs are alike; among different elements it is one."""
    golden = torch.linspace(1.0, 2.0, 8, dtype=torch.float64)[:, None].expand(8, 512).contiguous()
    output = golden.clone()
    output[3] += 2.0**-9
    size = float(golden.square().sum())
    allowance = Allowance(
        golden=golden,
        eager=golden.to(torch.bfloat16),
        limit=torch.full_like(golden, 1.0),
        finite=None,
        largest=1.0,
        rms=1.0,
        projections=(1e-6, 1e-6, 1e-6),
        norms=(float(golden.numel()), size, size),
    )
    assert "bias along" in judge([output], [allowance]).fault
    assert "" == judge([output], [replace(allowance, alike=True)]).fault
    assert (
        "bias along"
        in judge([golden + 2.0**-9], [replace(allowance, alike=True, golden=golden + 1e-9 * torch.rand(8, 512))]).fault
    )
