"""Seeds for every region of real models."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelopt_compile.partition import partition
from accelopt_compile.records import Workload
from accelopt_compile.signature import try_sign
from tests.backends.seeds import BACKEND, fault
from tests.regions import models

UNSUPPORTED_AT_MOST = {"llama": 4, "gpt2": 4, "bert": 1, "vit": 1, "t5": 4}
"""Regions that the generator still leaves to Inductor (integer bookkeeping of masks, attention with saved tensors)."""


def _regions(name: str, training: bool) -> dict[str, tuple[Workload, dict[str, int]]]:
    model, inputs = models.build(name, layers=1)
    found = {}
    for captured in models.graphs_of(model, inputs, training=training):
        for region in partition(captured.graph).regions:
            signed = try_sign(region)
            if not isinstance(signed, str):
                found[signed.workload.digest] = (signed.workload, dict(signed.binding))
    return found


@pytest.mark.sweep(5)
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", sorted(UNSUPPORTED_AT_MOST))
def test_every_supported_region_of_a_model_gets_a_right_seed(name: str, training: bool, tmp_path: Path) -> None:
    """The kernels that the generator writes for a model's regions agree with their references."""
    refused, wrong = [], []
    for digest, (workload, binding) in _regions(name, training).items():
        reason = BACKEND.supports(workload)
        if reason is not None:
            refused.append(reason)
            continue
        found = fault(BACKEND.seed(workload), workload, binding, tmp_path)
        if found:
            wrong.append((digest[:8], found, [n.op for n in workload.nodes]))
    assert [] == wrong
    assert len(refused) <= UNSUPPORTED_AT_MOST[name], refused
