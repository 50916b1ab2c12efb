"""Attention in Triton compiles for every target, at the declared defaults and at other choices that `valid` lets through."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from accelopt_backends.triton import attention as room
from accelopt_backends.triton import toolchain
from accelopt_backends.triton.targets import target_named
from accelopt_compile.records import KernelSource

from ..attention_cases import attention, spec
from .test_attention_backward import backward

TARGETS = ("sm_80", "sm_90", "gfx942")
SOURCES = {
    "prefill": lambda: room.render(attention("bf16", kv=2, causal=True, lse=True), {}),
    "masked": lambda: room.render(attention("f16", mask=spec("f16", "s0", 1, "s1", "s2"), dim=40), {}),
    "decode": lambda: room.render(attention("bf16", kv=2, queries=1, dim=128), {}),
    "gradients": lambda: room.render(backward("bf16", kv=2, causal=True), {}),
}


def drawn(source: KernelSource, target: str, seed: int) -> dict[str, int]:
    """A random choice of tunables that may be built for the target."""
    random_ = random.Random(seed)
    while True:
        chosen = {name: random_.choice(values) for name, values in source.tunables.items()}
        if room.valid(source, chosen, target_named(target)):
            return chosen


@pytest.mark.sweep(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SOURCES)
def test_defaults_compile_without_spilling(name: str, target: str, tmp_path: Path) -> None:
    """With products on the units for them, and next to nothing spilled."""
    source = SOURCES[name]()
    assert room.valid(source, {}, target_named(target))
    artifact = toolchain.build(source, {}, str(tmp_path), target_named(target))
    launches = artifact.features["launches"]
    assert any(launch.get("tensor", 0) for launch in launches)
    assert all(launch["spill_bytes"] <= 64 for launch in launches)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed,name,target", [(1, "prefill", "sm_80"), (2, "gradients", "sm_90"), (3, "decode", "gfx942")])
def test_other_choices_compile(seed: int, name: str, target: str, tmp_path: Path) -> None:
    """What `valid` lets through for a target fits it."""
    source = SOURCES[name]()
    artifact = toolchain.build(source, drawn(source, target, seed), str(tmp_path), target_named(target))
    assert all(launch["shared_bytes"] <= target_named(target).shared_bytes for launch in artifact.features["launches"])
