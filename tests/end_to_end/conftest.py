"""Every test has its own store and compiles anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def inductor_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests that do not look at it: Inductor's C++ compilations are most of the time here."""
    return tmp_path_factory.mktemp("inductor")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """What one thread takes is told by its own clock, which counts no neighbours: for tests in which a timing decides."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def own_caches(tmp_path: Path, inductor_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "accelopt"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(inductor_cache))
    monkeypatch.chdir(tmp_path)
    import torch
    from torch._dynamo.utils import counters

    from accelopt_compile.launch import kernels, lowering
    from accelopt_compile.outcomes import reports

    torch._dynamo.reset()
    counters.clear()
    kernels.forget()
    lowering.forget()
    reports.clear()
    torch.manual_seed(0)
    yield
    kernels.forget()
