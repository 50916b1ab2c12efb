"""Outputs written past the caches: only large ones, and in memory before anybody is told of them."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from accelopt_backends.cpp import CppBackend
from accelopt_compile.records import KernelSource
from tests.kernels.workloads import task

WORKLOAD = task("gelu_silu").workload
FENCE = b"\x0f\xae\xf8"
"""The machine code of `sfence`."""


def written(stores: str) -> KernelSource:
    return CppBackend().render(WORKLOAD, {"stores": stores})


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the stores of x86-64")
@pytest.mark.parametrize(("stores", "fenced"), [("cached", False), ("streamed", True)])
def test_a_thread_orders_what_it_streamed(stores: str, fenced: bool, tmp_path: Path) -> None:
    """No other instruction that it goes on with has to: a plain store of a flag may overtake them."""
    source = written(stores)
    built = CppBackend().build(source, source.defaults(), str(tmp_path))
    assert fenced == (FENCE in Path(built.path).read_bytes())


def test_from_how_large_an_output_on_is_a_tunable() -> None:
    """Where inputs and outputs together are beyond the caches an output may pay that would fit them; the judge's reader tells."""
    assert (4, 32) == written("streamed").tunables["STREAM_MB"]
    assert "STREAM_MB" not in written("cached").tunables
