"""The top-k kernel: the same values as eager, at positions that hold them, for any row."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from accelopt_backends.cpp import CppBackend, topk
from accelopt_compile.records import DtypeArg, Node, Ref, TensorSpec, Workload

from .attention_cases import TORCH, spec

BACKEND = CppBackend()


def top(dtype: str = "f32", length: int = 1000, k: int = 7, largest: bool = True) -> Workload:
    """Values and positions of the k largest or smallest of rows of `length`; s0 rows."""
    outputs = (spec(dtype, "s0", k), spec("i64", "s0", k))
    node = Node(op="aten.topk.default", args=(Ref("i", 0), k, 1, largest), outputs=outputs)
    return chosen_from(spec(dtype, "s0", length), (node,))


def chosen_from(given: TensorSpec, nodes: tuple[Node, ...]) -> Workload:
    """Values and positions of the last node, a top-k."""
    last = len(nodes) - 1
    return Workload(
        inputs=(given,), nodes=nodes, outputs=(Ref("n", last), Ref("n", last, 1)), output_specs=nodes[-1].outputs, symbols=("s0",)
    )  # fmt: skip


def after(workload: Workload, op: str, *args: object, out: str = "f32") -> Workload:
    """The workload with one element-wise step before its top-k; its values come in `out`."""
    (node,) = workload.nodes
    shape, k = workload.inputs[0].shape, node.outputs[0].shape[1]
    step = Node(op=op, args=tuple(Ref("i", 0) if a == "x" else a for a in args), outputs=(spec(out, *shape),))
    chosen = Node(op=node.op, args=(Ref("n", 0), *node.args[1:]), outputs=(spec(out, "s0", k), node.outputs[1]))
    return chosen_from(workload.inputs[0], (step, chosen))


class Built:
    """One kernel, built once."""

    def __init__(self, workload: Workload, folder: Path, bound: str = "", **tunables: int) -> None:
        self.workload = workload
        source = BACKEND.render(workload, {"bound": bound} if bound else {})
        assert [] == list(BACKEND.screen(source))
        self.kernel = BACKEND.load(BACKEND.build(source, {**source.defaults(), **tunables}, str(folder)))

    def __call__(self, x: torch.Tensor, threads: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (x.shape[0], int(self.workload.output_specs[0].shape[1]))
        values = torch.full(shape, math.nan, dtype=TORCH[self.workload.output_specs[0].dtype])
        positions = torch.full(shape, -1)
        assert 0 == self.kernel([x.data_ptr(), values.data_ptr(), positions.data_ptr()], [x.shape[0]], threads)
        return values, positions


def rows(dtype: str, length: int) -> dict[str, torch.Tensor]:
    """Four rows of each kind that a selection may trip over."""
    normal = torch.randn(4, length, generator=torch.Generator().manual_seed(1))
    ramp = torch.arange(4.0 * length).view(4, length)
    some = normal.clone()
    some[:, ::3], some[:, 1::7], some[:, 2::11] = math.nan, math.inf, -math.inf
    last = normal.clone()
    last[:, -1] = math.nan
    masked = torch.full_like(normal, -math.inf)
    masked[:, : max(1, length // 100)] = 1.0
    kinds = {
        "normal": normal, "up": ramp, "down": -ramp, "equal": torch.zeros_like(normal), "ties": normal.round(), "masked": masked,
        "some nan": some, "last nan": last, "all nan": torch.full_like(normal, math.nan), "minus nan": -normal.abs().sub(9).log(),
    }  # fmt: skip
    return {name: x.to(TORCH[dtype]) for name, x in kinds.items()}


def check(built: Built, x: torch.Tensor, k: int, largest: bool, threads: int) -> None:
    """Values as eager, whatever ties; each position once, holding its value."""
    values, positions = built(x, threads)
    torch.testing.assert_close(values, torch.topk(x, k, largest=largest).values, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(x.gather(1, positions), values, rtol=0, atol=0, equal_nan=True)
    assert all(k == len(set(row)) for row in positions.tolist())


@pytest.mark.sweep(2)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype,length,k", [("f32", 20000, 9), ("bf16", 1000, 50), ("f16", 129, 8), ("bf16", 1, 1)])
def test_chooses_as_eager_does(dtype: str, length: int, k: int, largest: bool, tmp_path: Path) -> None:
    """Every way to bound the answer, one thread and several: ties, infinities and NaN of either sign in their places."""
    workload = top(dtype, length, k, largest)
    for bound in topk.grammar(workload)["bound"]:
        built = Built(workload, tmp_path, bound, BLOCK=128, SPARE=256, GRAIN=64)
        for x in rows(dtype, length).values():
            check(built, x, k, largest, 1)
            check(built, x, k, largest, 8)


def test_equal_elements_come_in_the_order_of_their_positions(tmp_path: Path) -> None:
    """Ties are broken the same way whatever the number of threads."""
    built = Built(top(length=5000, k=3), tmp_path)
    for threads in (1, 8):
        _, positions = built(torch.zeros(1, 5000), threads)
        assert [[0, 1, 2]] == positions.tolist()


def test_steps_before_the_selection_are_applied_to_what_is_chosen(tmp_path: Path) -> None:
    """A negative scale turns the order of numbers, and leaves NaN the largest; values come scaled, in the type of the step."""
    for largest in (True, False):
        turned = after(top(largest=largest), "aten.mul.Tensor", "x", -0.5)
        for bound in topk.grammar(turned)["bound"]:
            scaled = Built(turned, tmp_path, bound, BLOCK=128, SPARE=256, GRAIN=64)
            for x in rows("f32", 1000).values():
                values, positions = scaled(x)
                wanted = torch.topk(x * -0.5, 7, largest=largest).values
                torch.testing.assert_close(values, wanted, rtol=0, atol=0, equal_nan=True)
                torch.testing.assert_close(x.gather(1, positions) * -0.5, values, rtol=0, atol=0, equal_nan=True)
    x = rows("f32", 1000)["normal"]
    wide = Built(after(top("bf16"), "prims.convert_element_type.default", "x", DtypeArg("f32")), tmp_path)
    assert torch.equal(torch.topk(x.bfloat16().float(), 7).values, wide(x.bfloat16())[0])


def test_a_row_inside_a_larger_tensor_is_read_where_it_lies(tmp_path: Path) -> None:
    """The logits of the last position: a selection before the top-k is only an offset."""
    outputs = (spec("f32", "s0", 3), spec("i64", "s0", 3))
    nodes = (
        Node(op="aten.select.int", args=(Ref("i", 0), 1, 4), outputs=(spec("f32", "s0", 200),)),
        Node(op="aten.topk.default", args=(Ref("n", 0), 3, 1), outputs=outputs),
    )
    workload = chosen_from(spec("f32", "s0", 5, 200), nodes)
    x = torch.randn(6, 5, 200)
    values, positions = Built(workload, tmp_path)(x)
    expected = torch.topk(x[:, 4], 3)
    assert torch.equal(expected.values, values)
    assert torch.equal(expected.indices, positions)


@pytest.mark.parametrize(
    "workload,reason",
    [
        (top("f32", 10, 20), "rows shorter than k"),
        (after(top(), "aten.mul.Tensor", "x", 0.0), "aten.mul.Tensor before the top-k"),
        (after(top(), "aten.exp.default", "x"), "aten.exp.default before the top-k"),
        (
            replace(top(), inputs=(TensorSpec(dtype="f32", shape=("s0", 1000), strides=(1, "s0")),)),
            "rows that are not contiguous",
        ),
    ],
)
def test_says_why_a_workload_is_refused(workload: Workload, reason: str) -> None:
    """Steps that do not keep the order, and layouts that cannot be read as rows, stay with the baseline."""
    assert reason == BACKEND.supports(workload)
    with pytest.raises(ValueError, match=reason.replace(".", r"\.")):
        BACKEND.render(workload, {})


def test_too_short_rows_are_declined(tmp_path: Path) -> None:
    """A symbolic row may turn out shorter than k: the caller then runs the reference, which raises as eager does."""
    workload = replace(top(), inputs=(spec("f32", "s0", "s1"),), symbols=("s0", "s1"))
    built = Built(workload, tmp_path)
    assert 0 != built.kernel([0, 0, 0], [1, 6], 1)
