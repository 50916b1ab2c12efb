"""What a graph's name holds beside its calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch

from accelopt_compile.fingerprint import graph_digest

GRAPH = torch.fx.symbolic_trace(torch.nn.Linear(4, 4))
X = (torch.ones(2, 4),)


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


AROUND = {
    "autocast to bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", torch.float16),
    "another default dtype": lambda: default_dtype(torch.float64),
    "no gradients": torch.no_grad,
}


@pytest.mark.parametrize("around", AROUND)
def test_what_is_on_around_a_graph_is_in_its_name(around: str) -> None:
    """None of it is a node of Dynamo's graph, and each changes what is traced from it: regions found for one are not those of
    the other."""
    with AROUND[around]():
        within = graph_digest(GRAPH, X)
    assert within != graph_digest(GRAPH, X)
    with AROUND[around]():
        assert within == graph_digest(GRAPH, X)


def test_an_autocast_that_is_off_or_of_another_device_changes_nothing() -> None:
    """A device that the graph has no tensors on casts nothing of it."""
    plain = graph_digest(GRAPH, X)
    with torch.autocast("cpu", torch.bfloat16, enabled=False):
        assert plain == graph_digest(GRAPH, X)
