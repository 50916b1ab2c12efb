"""Every region with a product of small models is supported, and right in the interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from accelopt_backends.triton import TritonBackend, matmul
from accelopt_compile.partition import partition
from accelopt_compile.records import Workload
from accelopt_compile.signature import sign
from tests.backends.triton.matmul_cases import fault
from tests.regions.models import build, graphs_of


def workloads(name: str, *, training: bool, dtype: torch.dtype) -> dict[str, tuple[Workload, dict[str, int]]]:
    """The distinct workloads with a product of a model of one layer."""
    model, inputs = build(name, 1)
    found = {}
    for captured in graphs_of(model.to(dtype), inputs, training=training):
        for region in partition(captured.graph, products=TritonBackend.products).regions:
            signed = sign(region)
            if any("mm." in node.op for node in signed.workload.nodes):
                found[signed.workload.digest] = signed.workload, dict(signed.binding)
    return found


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("name", "dtype", "count"), [("llama", torch.bfloat16, 4), ("gpt2", torch.float32, 4), ("bert", torch.float32, 5)]
)
def test_layers_are_right(name: str, dtype: torch.dtype, count: int, tmp_path: Path) -> None:
    found = workloads(name, training=False, dtype=dtype)
    assert count == len(found)
    for workload, binding in found.values():
        assert matmul.matches(workload) is True, matmul.matches(workload)
        assert "" == fault(matmul.render(workload, {}), workload, binding, tmp_path)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_training_is_supported(name: str) -> None:
    """Forward regions keep what the backward needs as further outputs."""
    found = workloads(name, training=True, dtype=torch.float32)
    assert [] == [why for workload, _ in found.values() if (why := matmul.matches(workload)) is not True]
    assert any(len(workload.outputs) > 1 for workload, _ in found.values())
