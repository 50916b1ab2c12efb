"""Generated kernels: built for a target that is not here, run in the interpreter, held to the evaluator's own checks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="triton is not installed")

from accelopt_backends.loops.nests import schedule
from accelopt_backends.loops.values import Graph
from accelopt_backends.triton import TritonBackend
from accelopt_compile.records import Workload
from tests.backends.seed_cases import CASES, R, gradient
from tests.backends.seeds import fault, regions_of
from tests.backends.test_in_place_seeds import FLAT, HALF, counts, exchange, step

BACKEND = TritonBackend()

MORE = {
    "positions of the largest": (lambda x: (x.argmax(-1), x.argmin(-1)), ((5, 40),)),
    "any": (lambda x: (x > 1).any(-1), ((5, 40),)),
    "padding": (lambda x: F.pad(x, (1, 2)) * 2, ((5, 40),)),
    "rounding": (lambda x: torch.round(x * 3) + torch.trunc(x * 3), ((5, 40),)),
    "near one": (lambda x: torch.log1p(x.abs()), ((5, 40),)),
    "near zero": (lambda x: torch.expm1(x) * torch.tanh(x), ((5, 40),)),
    "group norm": (lambda x, w, b: F.group_norm(x, 4, w, b), ((2, 8, 5, 5), (8,), (8,))),
    "norm of three": (
        lambda a, b, c: torch.cat([(t * t).sum().view(1) for t in (a, b, c)]).sum().sqrt(),
        ((9, 32), (40,), (64,)),
    ),
    "beside a column": (lambda x, y: torch.cat([x, y.expand(5, 3)], 1) * 2, ((5, 40), (5, 1))),
    "above a row": (lambda x, y: torch.cat([x, y.expand(3, 40)]) * 2, ((5, 40), (1, 40))),
    "log softmax": (lambda x: F.log_softmax(x, -1), ((5, 40),)),
}
ALL = {**CASES, **MORE}


def faults(name: str, folder: Path, dtype: torch.dtype = torch.float32, structures: bool = False) -> list[str]:
    """What is wrong with the kernels of a function's regions."""
    function, shapes = ALL[name]
    found = []
    for workload, binding in regions_of(function, *(R(s).to(dtype) for s in shapes)):
        grammar = BACKEND.grammar(workload) if structures else {}
        for structure in [{}, *({choice: value} for choice, values in grammar.items() for value in values[1:])]:
            found.append(fault(BACKEND.render(workload, structure), workload, binding, folder, backend=BACKEND))
    return found


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", ALL)
def test_a_seed_is_right_on_odd_shapes(name: str, tmp_path: Path) -> None:
    """The generated kernel passes verification for each of the function's regions."""
    found = faults(name, tmp_path)
    assert [""] * max(1, len(found)) == found


@pytest.mark.sweep(3)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["softmax", "layer norm", "swiglu", "rotary", "transpose"])
def test_a_seed_is_right_in_half_precision(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Storage in 16 bits, arithmetic in float32."""
    found = faults(name, tmp_path, dtype)
    assert [""] * max(1, len(found)) == found


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["softmax", "layer norm", "batch norm in training", "softmax over an outer dimension"])
def test_every_structural_choice_gives_a_right_kernel(name: str, tmp_path: Path) -> None:
    """Rows held, walked, walked once; reductions finished row by row, or split."""
    found = faults(name, tmp_path, structures=True)
    assert len(found) > 1
    assert [""] * len(found) == found


@pytest.mark.parametrize("workload", [step(), exchange(FLAT), exchange(HALF), counts()])
def test_outputs_may_lie_over_inputs(workload: Workload, tmp_path: Path) -> None:
    """Everything is read before it is overwritten."""
    assert "" == fault(BACKEND.seed(workload), workload, {"s0": 3000}, tmp_path, backend=BACKEND)


def test_tunables_do_not_change_the_result(tmp_path: Path) -> None:
    """The largest and the smallest value of each."""
    function, shapes = CASES["softmax"]
    ((workload, binding),) = regions_of(function, *(R(s) for s in shapes))
    source = BACKEND.render(workload, {"rows": "looped"})
    for pick in (min, max):
        tunables = {name: pick(values) for name, values in source.tunables.items()}
        assert "" == fault(source, workload, binding, tmp_path, tunables=tunables, backend=BACKEND)


def test_a_position_outside_a_table_is_no_result(tmp_path: Path) -> None:
    """It wraps from below once, as in eager, and is asserted to be inside."""
    ((workload, binding),) = regions_of(lambda w, i: F.embedding(i, w) * 2, R(10, 16), torch.tensor([1, 2, 3]))
    kernel = BACKEND.load(BACKEND.build(BACKEND.seed(workload), BACKEND.seed(workload).defaults(), str(tmp_path)))
    table, positions, out = R(10, 16), torch.tensor([1, 99, 3]), torch.empty(3, 16)
    order = [positions if s.dtype == "i64" else table for s in workload.inputs]
    sizes = [binding[s] for s in workload.symbols]
    assert 0 != kernel([t.data_ptr() for t in [*order, out]], sizes, 1)
    positions[1] = 9
    assert 0 == kernel([t.data_ptr() for t in [*order, out]], sizes, 1)
    assert torch.equal(table[positions] * 2, out)


def test_the_gradient_of_a_cross_entropy_sums_nothing(tmp_path: Path) -> None:
    """Its one-hot rows are known in closed form."""
    ((workload, binding),) = regions_of(gradient, R(7, 21), torch.tensor([0, 20, 3, -100, 21, 5, 5]), R(7, 1))
    assert [] == [v for nest in schedule(Graph(workload)) for v in nest.reductions]
    assert "" == fault(BACKEND.seed(workload), workload, binding, tmp_path, backend=BACKEND)
