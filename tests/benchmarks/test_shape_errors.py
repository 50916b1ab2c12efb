"""What `check_shapes` calls a wrong value."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.check_shapes import judge  # noqa: E402
from benchmarks.shape_calls import references  # noqa: E402
from benchmarks.shape_cases import CASES  # noqa: E402
from benchmarks.shape_errors import errors  # noqa: E402

SIZES = {"batch": 3}


def judged(found: torch.Tensor, theirs: torch.Tensor, wanted: torch.Tensor, precision: str = "fp32") -> list[str]:
    """The names of the tensors that are wrong."""
    mine, inductor = (errors({"grad.w": t}, {"grad.w": wanted}) for t in (found, theirs))
    return [one["tensor"] for one in judge(mine, inductor, SIZES, precision)]


def test_rounding_is_right_and_one_wrong_element_is_not() -> None:
    """Float32 rounding passes, also where Inductor is exact; one element of a million that is off by a percent does not."""
    wanted = torch.randn(1000, 1000, dtype=torch.float64)
    rounded = wanted.float()
    assert [] == judged(rounded, wanted, wanted)
    spoilt = rounded.clone()
    spoilt[0, 0] += 0.01 * wanted.abs().max()
    assert ["grad.w"] == judged(spoilt, rounded, wanted)


def test_a_missing_or_not_finite_or_misshapen_tensor_is_wrong() -> None:
    """Nothing that cannot be compared passes."""
    wanted = torch.ones(4, dtype=torch.float64)
    for found in (torch.tensor([1.0, 1.0, 1.0, float("nan")]), torch.ones(4, 1), torch.ones(3)):
        assert ["grad.w"] == judged(found, torch.ones(4), wanted)
    assert float("inf") == errors({}, {"loss": wanted})["loss"].l2


def test_inductors_own_error_widens_what_is_allowed() -> None:
    """Twice as wrong as Inductor is still rounding, ten times is not."""
    wanted = torch.randn(4096, dtype=torch.float64)
    noise = 1e-3 * torch.randn(4096, dtype=torch.float64)
    assert [] == judged(wanted + 1.5 * noise, wanted + noise, wanted)
    assert ["grad.w"] == judged(wanted + 10 * noise, wanted + noise, wanted)


def test_what_vanishes_is_held_to_inductors_worst_shape_and_nothing_else_is() -> None:
    """Rounding of a sum that is 0 may be larger than Inductor's at one shape; a gradient with a value may not."""
    wanted = {"grad.w": torch.randn(4096, dtype=torch.float64), "grad.zero": torch.zeros(64, dtype=torch.float64)}
    noise = torch.randn(64, dtype=torch.float64) * 1e-8
    found = {"grad.w": wanted["grad.w"] * (1 + 1e-5), "grad.zero": 5 * noise}
    theirs = errors({"grad.w": wanted["grad.w"], "grad.zero": noise}, wanted)
    elsewhere = errors({"grad.w": wanted["grad.w"] * (1 + 1e-5), "grad.zero": 4 * noise}, wanted)
    assert {"grad.w", "grad.zero"} == {w["tensor"] for w in judge(errors(found, wanted), theirs, SIZES, "fp32")}
    assert ["grad.w"] == [w["tensor"] for w in judge(errors(found, wanted), theirs, SIZES, "fp32", elsewhere)]


@pytest.mark.parametrize("name", CASES)
def test_the_reference_is_float64_all_the_way(name: str) -> None:
    """Loss and gradients of every model come out in float64, at a drawn shape, and no two drawn shapes are equal."""
    shapes = CASES[name].draw(20)
    assert 20 == len({tuple(sizes.items()) for sizes in shapes})
    (found,) = references(CASES[name], shapes[:1], precision="fp32", training=True)
    assert {torch.float64} == {t.dtype for t in found.values()}
    assert "loss" in found
    assert any(key.startswith("grad.") for key in found)
