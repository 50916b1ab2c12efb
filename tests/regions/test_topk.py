"""A top-k stands alone: it takes the scaling before it along, and nothing else."""

from __future__ import annotations

import torch

from accelopt_compile.partition import partition
from accelopt_compile.signature import sign
from tests.regions.models import graph_of


def test_scaling_goes_along_and_softmax_does_not() -> None:
    """Sampling from logits: the selection is one region, the probabilities of what was chosen another."""

    def sample(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, positions = torch.topk(logits.float() / 0.7, 50)
        return torch.softmax(values, -1), positions

    regions = partition(graph_of(sample, torch.randn(64, 1000).bfloat16())).regions
    found = [[node.op.split(".")[1] for node in sign(region).workload.nodes] for region in regions]
    assert [["convert_element_type", "div", "topk"], ["amax", "sub", "exp", "sum", "div"]] == found


def test_what_others_read_stays_outside() -> None:
    """Scaled logits that are masked by the k-th value: the scaling is shared, so the selection reads its result."""

    def mask(logits: torch.Tensor) -> torch.Tensor:
        scaled = logits / 0.7
        return scaled.masked_fill(scaled < torch.topk(scaled, 5).values[..., -1:], 0.0)

    regions = partition(graph_of(mask, torch.randn(64, 1000))).regions
    assert ["aten.topk.default"] in [[node.op for node in sign(region).workload.nodes] for region in regions]
