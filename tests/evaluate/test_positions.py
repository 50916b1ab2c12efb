"""Positions that a top-k chose: equal elements may change places, nothing else may."""

from __future__ import annotations

import pytest
import torch

from accelopt_compile.evaluate.answers import Answer, Answers, Case
from accelopt_compile.evaluate.compare import judge
from accelopt_compile.records import Node, Ref, TensorSpec, Workload


def top(sort: bool = True) -> Workload:
    """The three largest of 5 rows of 40 integers from -2 to 2 (family small_ints): nearly all ties."""
    outputs = (TensorSpec(dtype="f32", shape=(5, 3), strides=(3, 1)), TensorSpec(dtype="i64", shape=(5, 3), strides=(3, 1)))
    return Workload(
        inputs=(TensorSpec(dtype="f32", shape=(5, 40), strides=(40, 1)),),
        nodes=(Node(op="aten.topk.default", args=(Ref("i", 0), 3, 1, True, sort), outputs=outputs),),
        outputs=(Ref("n", 0), Ref("n", 0, 1)),
        output_specs=outputs,
    )


def answer(workload: Workload) -> Answer:
    found = Answers(workload).get(Case((), "small_ints", 3), probes=4)
    assert isinstance(found, Answer)
    return found


def last_first(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The three largest, the last of equal elements first."""
    values, positions = torch.topk(x.flip(1), 3)
    return values, x.shape[1] - 1 - positions


@pytest.mark.parametrize("sort", [True, False])
def test_another_choice_among_equal_elements_is_right(sort: bool) -> None:
    """An unsorted top-k may come sorted, too."""
    found = answer(top(sort))
    assert "" == judge(list(last_first(found.inputs[0])), found.expected).fault


def test_a_position_of_another_value_is_wrong() -> None:
    """The elements at the positions are compared, not the positions."""
    found = answer(top())
    values, positions = last_first(found.inputs[0])
    positions[2, 1] = int(found.inputs[0][2].argmin())
    fault = judge([values, positions], found.expected).fault
    assert "first at (2, 1): expected 2.0, got -2.0 (the element at the chosen position)" in fault


def test_a_position_chosen_twice_is_wrong() -> None:
    """The value would be right, the choice is not."""
    found = answer(top())
    values, positions = last_first(found.inputs[0])
    positions[0, 1] = positions[0, 0]
    assert "(a position chosen twice)" in judge([values, positions], found.expected).fault


def test_a_position_outside_the_row_is_wrong() -> None:
    """Caught before anything is read there."""
    found = answer(top())
    values, positions = last_first(found.inputs[0])
    positions[4, 2] = 40
    assert "first at (4, 2)" in judge([values, positions], found.expected).fault
