"""In which order rows are taken."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from accelopt_backends.loops.affine import Mono
from accelopt_backends.loops.nests import schedule
from accelopt_backends.loops.order import along_memory
from accelopt_backends.loops.values import Graph
from tests.backends.seeds import regions_of

BATCH, LENGTH, HEADS = 3, 20, 5


def rotated(q: torch.Tensor, cos: torch.Tensor) -> torch.Tensor:
    return q * cos + torch.cat((-q[..., 32:], q[..., :32]), -1)


def turns(size: Mono, binding: Mapping[str, int]) -> int:
    return size.coef * math.prod(binding[name] for name in size.symbols)


def test_pointwise_rows_follow_the_output_in_memory() -> None:
    """Heads lie inside positions there, whatever the dimensions' order says."""
    q = torch.randn(BATCH, LENGTH, HEADS, 64).transpose(1, 2)
    ((workload, binding),) = regions_of(rotated, q, torch.randn(BATCH, 1, LENGTH, 64))
    graph = Graph(workload)
    nests = schedule(graph)
    for nest in nests:
        along_memory(graph, nest)
    assert [[BATCH, LENGTH, HEADS]] * len(nests) == [[turns(graph.sizes[a], binding) for a in nest.par] for nest in nests]


def test_rows_that_are_reduced_keep_their_order() -> None:
    """Their results lie in arrays that later nests read by the row's number."""
    x = torch.randn(LENGTH, HEADS, 64).transpose(0, 1)
    ((workload, _),) = regions_of(lambda x: torch.softmax(x, -1), x)
    graph = Graph(workload)
    for nest in schedule(graph):
        before = list(nest.par)
        along_memory(graph, nest)
        assert before == nest.par
