"""The table of tolerances says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from accelopt_compile.evaluate import answers, inputs, roundings, sensitivity, tolerance

TEXT = (Path(inputs.__file__).parent / "README.md").read_text()
DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def rows(start: str) -> list[list[str]]:
    """Cells of the table that begins with the row `start`, without head and rule."""
    table = TEXT[TEXT.index(start) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]


def test_every_family_of_inputs_has_its_reason() -> None:
    """The table lists the families in the order they are tried, each with what it catches."""
    table = rows("| family |")
    assert [f"`{family}`" for family in inputs.FAMILIES] == [row[0] for row in table]
    assert all(row[1] for row in table)


def test_constants_are_those_of_the_code() -> None:
    """A constant that changes must change here, with its reason."""
    table = {row[0].strip("`"): row[1] for row in rows("| constant |")}
    assert {"ROUNDINGS": "8", "ALIKE": "4", "CHAIN": "1024", "HALF_BIAS": "4"} | table == table
    assert (8, 4, 1024, 4) == (roundings.ROUNDINGS, tolerance.ALIKE, roundings.CHAIN, tolerance.HALF_BIAS)
    by_dtype = {d: answers.ILL_CONDITIONED[t] for d, t in DTYPES.items()}
    assert {"f64": 0.01, "f32": 0.01, "f16": 0.1, "bf16": 0.1} == by_dtype
    assert "0.01, half precision 0.1" == table["ILL_CONDITIONED"]


@pytest.mark.parametrize("name", DTYPES)
def test_units_and_floors_are_those_of_the_code(name: str) -> None:
    """The limit on an element that is 0 in eager and in the golden answer is the floor, and nothing else."""
    unit, factor, floor = next(row[1:4] for row in rows("| dtype |") if row[0] == name)
    dtype = DTYPES[name]
    zero = torch.zeros(4, dtype=dtype)
    still = sensitivity.Moves(elements=torch.zeros(4, dtype=torch.float64), along=(0.0, 0.0, 0.0), probes=4)
    assert float(power(unit)) == roundings.UNIT[dtype]
    assert power(floor) == float(tolerance.allow(zero.double(), zero, still, None, 1).limit[0])
    one = torch.ones(4, dtype=torch.float64)
    off = (one + 1).to(dtype)  # eager is off by 1
    limit = float(tolerance.allow(one, off, still, None, 1).limit[0])
    assert float(factor) == round(limit, 1)


def power(text: str) -> float:
    """2^-24 as a number."""
    return 2.0 ** int(text.removeprefix("2^"))
