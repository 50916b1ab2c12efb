"""Running sums, and what is done with them: a seed is right in C++ and in Triton, or there is none and a reason."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from accelopt_backends.triton import TritonBackend
from tests.backends import seeds
from tests.backends.seed_cases import R

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]


def mamba(d: torch.Tensor, a: torch.Tensor, u: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """A state space's scan, as NKIBench writes it."""
    decay = (0.1 * d[:, None] * a).cumsum(2)
    return (decay.exp() * ((-decay).exp() * (u[:, None] * b)).cumsum(2) * c).sum(1)


RIGHT: dict[str, Case] = {
    "summed over a dimension between": (lambda x: x.cumsum(-1).sum(1), ((3, 5, 7),)),
    "the largest over a dimension between": (lambda x: x.cumsum(-1).amax(1), ((3, 5, 7),)),
    "two of them, summed over a dimension between": (mamba, ((4, 56), (4, 8, 1), (4, 56), (1, 8, 56), (1, 8, 56))),
    "transposed": (lambda x: x.cumsum(-1).t().contiguous() + 1, ((5, 83),)),
    "as one row": (lambda x: x.cumsum(-1).view(-1) * 2, ((5, 84),)),
    "of another": (lambda x: x.cumsum(-1).cumsum(-1) * 2, ((5, 83),)),
    "normalised": (lambda x: F.layer_norm(x.cumsum(-1), (83,)), ((5, 83),)),
    "of a softmax": (lambda x: x.softmax(-1).cumsum(-1) * 3, ((5, 83),)),
    "of one element": (lambda x: x.cumsum(1) * 2 + 1, ((5, 1, 7),)),
    "over a concatenation": (lambda x, y: torch.cat([x, y], -1).cumsum(-1) * 2, ((5, 40), (5, 43))),
    "over a concatenation, normalised": (lambda x, y: F.layer_norm(torch.cat([x, y], -1).cumsum(-1), (83,)), ((5, 40), (5, 43))),
    "spread over rows": (lambda x, y: x.cumsum(0) * y, ((8,), (5, 8))),
}
RIGHT_OR_REFUSED: dict[str, Case] = {
    "summed over rows longer than a block": (lambda x: x.cumsum(-1).sum(0), ((3, 9001),)),
    "the first few": (lambda x: x.cumsum(-1)[:, :40] * 2, ((5, 83),)),
    "summed over its rows": (lambda x: x.cumsum(-1).sum((1, 2)), ((3, 5, 7),)),
    "summed over everything": (lambda x: x.cumsum(-1).sum(), ((3, 5, 7),)),
    "summed over another dimension behind": (lambda x: x.cumsum(1).sum(-1), ((3, 5, 7),)),
    "from the second on": (lambda x: x.cumsum(-1)[:, 1:] * 2, ((5, 83),)),
    "its last": (lambda x: x.cumsum(-1)[:, -1] * 2 + 1, ((5, 83),)),
    "over parts of a row": (lambda x: x.view(5, 12, 7).cumsum(-1).view(5, 84).softmax(-1), ((5, 84),)),
    "beside what it was made of": (lambda x: torch.cat([x.cumsum(-1), x], -1) * 2, ((5, 83),)),
    "along both dimensions": (lambda x: x.cumsum(-1).cumsum(0) * 2, ((5, 83),)),
    "of either dimension": (lambda x: x.cumsum(-1) + x.cumsum(0), ((9, 9),)),
    "of rows, summed over them": (lambda x, y: (x.cumsum(0)[:, None] * y).sum(0), ((5,), (5, 8))),
    "over a concatenation, of parts of rows": (
        lambda x, y: torch.cat([x, y], -1).cumsum(-1).sum((0, 1)) * 2,
        ((5, 3, 40), (5, 3, 43)),
    ),
    "its diagonal": (lambda x: x.cumsum(-1).diagonal() * 2 + 1, ((9, 9),)),
}
CASES = {**RIGHT, **RIGHT_OR_REFUSED}


def test_a_long_running_sum_is_as_exact_as_eager_s(tmp_path: Path) -> None:
    """Eager and Inductor sum in double: 200 000 probabilities end at 1, not at 0.998."""
    x = torch.full((1, 200_003), 1 / 200_003)
    ((workload, _),) = seeds.regions_of(lambda x: x.cumsum(-1) * 2, x)
    source, out = seeds.BACKEND.seed(workload), torch.empty_like(x)
    kernel = seeds.BACKEND.load(seeds.BACKEND.build(source, source.defaults(), str(tmp_path)))
    assert 0 == kernel([x.data_ptr(), out.data_ptr()], [1], 1)
    torch.testing.assert_close(2 * x.double().cumsum(-1), out.double(), rtol=2e-7, atol=0.0)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("backend", [seeds.BACKEND, TritonBackend("triton-cuda-sm_80")], ids=["cpp", "triton"])
@pytest.mark.parametrize("name", CASES)
def test_what_reads_a_running_sum_is_right_or_refused(name: str, backend: Any, tmp_path: Path) -> None:
    """At every structure; in Triton in the interpreter, and compiled."""
    function, shapes = CASES[name]
    for workload, binding in seeds.regions_of(function, *(R(s) for s in shapes)):
        why = backend.supports(workload)
        assert why is None or name in RIGHT_OR_REFUSED
        grammar = {} if why else backend.grammar(workload)
        for values in itertools.product(*grammar.values()) if why is None else ():
            source = backend.render(workload, dict(zip(grammar, values, strict=True)))
            assert "" == seeds.fault(source, workload, binding, tmp_path, backend=backend), values
