"""Fixtures of the store's tests: a root of its own for every test, and child processes that use it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accelopt_cache import Store

REPOSITORY = Path(__file__).resolve().parents[2]

Child = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache root of this test; it does not exist yet."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("ACCELOPT_ALLOW_SHARED", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def store(root: Path) -> Store:
    """An empty store on disk."""
    return Store.open()


@pytest.fixture
def child(root: Path) -> Iterator[Child]:
    """Starts `tests.cache.writer` on this root; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, at: Path | str | None = None, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        path = os.pathsep.join(str(REPOSITORY / part) for part in ("", "backends", "cache"))
        command = [sys.executable, "-m", "tests.cache.writer", str(root if at is None else at), *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": path, **(env or {})}
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=-1, stderr=-1, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
