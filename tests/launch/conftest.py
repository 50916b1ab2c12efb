"""Every test has its own cache directories and an empty kernel registry."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "accelopt"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    import torch

    from accelopt_compile.launch import kernels, lowering

    torch._dynamo.reset()
    kernels.forget()
    lowering.forget()
    yield tmp_path
    kernels.forget()
