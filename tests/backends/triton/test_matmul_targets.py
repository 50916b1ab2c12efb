"""Kernels of matrix products compile for every target, at their defaults and at what the constraint lets through."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from accelopt_backends.triton import TritonBackend, matmul
from accelopt_compile.records import Workload
from tests.backends.triton.matmul_cases import gated, int4_groups, rms, workload_of

HALF = torch.bfloat16


def layer() -> Workload:
    args = (torch.empty(2, 64, 512, dtype=HALF), torch.empty(512, 512, dtype=HALF), torch.empty(512, dtype=HALF))
    return workload_of(lambda x, w, b: F.relu(F.linear(x, w, b)), *args)[0]


def normed() -> Workload:
    x, n, w = torch.empty(2, 64, 512, dtype=HALF), torch.empty(512, dtype=HALF), torch.empty(256, 512, dtype=HALF)
    return workload_of(lambda x, n, a, b: gated(rms(x, n), a, b), x, n, w, w.clone())[0]


def packed() -> Workload:
    scale = torch.empty(256, 4, dtype=HALF)
    return workload_of(
        int4_groups, torch.empty(2, 8, 512, dtype=HALF), torch.empty(256, 256, dtype=torch.uint8), scale, scale.clone()
    )[0]


TARGETS = ("triton-cuda-sm_80", "triton-cuda-sm_90", "triton-hip-gfx942")


@pytest.mark.sweep(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("workload", [layer, normed, packed], ids=["layer", "norm and gated unit", "four bits"])
def test_defaults_and_valid_choices_compile_and_use_tensor_cores(workload: object, target: str, tmp_path: Path) -> None:
    assert callable(workload)
    backend, rng = TritonBackend(target), random.Random(7)
    source = backend.seed(workload())
    for number, chosen in enumerate([source.defaults(), _drawn(backend, source, rng)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        features = backend.build(source, chosen, str(folder)).features["launches"][0]
        assert 0 < features["tensor"]
        assert number or 0 == features["spill_bytes"]


def _drawn(backend: TritonBackend, source: object, rng: random.Random) -> dict[str, int]:
    from accelopt_compile.records import KernelSource

    assert isinstance(source, KernelSource)
    while True:
        chosen = {name: rng.choice(values) for name, values in source.tunables.items()}
        if backend.valid(source, chosen):
            return chosen


def test_tiles_that_shared_memory_or_registers_cannot_hold_are_not_valid() -> None:
    backend = TritonBackend("sm_90")
    source = matmul.render(layer(), {})
    large = source.defaults() | {"BM": 256, "BN": 256, "BK": 128, "WARPS": 16, "STAGES": 5}
    assert not backend.valid(source, large)
    assert not backend.valid(source, source.defaults() | {"BM": 256, "BN": 256, "WARPS": 4})
    assert backend.valid(source, source.defaults())


def test_a_split_sum_leaves_no_program_without_terms() -> None:
    workload, _ = workload_of(lambda x, w, y: y + F.linear(x, w), torch.empty(9, 256), torch.empty(40, 256), torch.empty(9, 40))
    source = matmul.render(workload, {"k": "split"})
    assert not matmul.valid(source, source.defaults() | {"SPLIT": 16, "BK": 64})


def test_float32_is_multiplied_in_full_unless_the_workload_says_otherwise() -> None:
    def written() -> str:
        return matmul.render(workload_of(lambda x, w: F.relu(x @ w), torch.empty(8, 32), torch.empty(32, 16))[0], {}).text

    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        assert 'input_precision="ieee"' in written()
        torch.set_float32_matmul_precision("high")
        assert 'input_precision="tf32"' in written()
    finally:
        torch.set_float32_matmul_precision(before)
