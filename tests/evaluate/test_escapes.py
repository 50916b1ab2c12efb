"""Out of a runner or a builder nothing gets: see `escapes.py` for what is tried, without any screen of sources."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accelopt_compile.evaluate.sandbox.walls import NAMES

HERE = Path(__file__).parent
NOBODY = 65534
ENDS_ITS_PROCESS = {
    "an endless loop": "timeout",
    "sleeps for ever": "timeout",
    "ignores signals and loops": "timeout",
    "a segmentation fault": "run",
    "endless recursion": "run",
    "aborts": "run",
    "closes every descriptor": "run",
    "gigabytes on standard output": "run",
    "gigabytes on every descriptor": "run",
    "deep JSON on the channel": "run",
    "many threads": "run",
    "overwrites the arena": "mutation",
    "a constructor that ends the process": "run",
    "includes a secret": "build",
    "embeds a secret by the assembler": "build",
}
"""Attacks that cost the candidate its process, and the stage at which the verdict says so."""

FORGERIES = ("forges a success and leaves", "forges many successes")
BUILDS = ("an endless build", "a huge build")


def _readable(run: dict[str, Any]) -> bool:
    """Whether that user can start this interpreter and read what it shall run: one in /root cannot even be started."""
    reads = [sys.executable, "-c", f"import torch; open({str(HERE / 'escapes.py')!r})"]
    try:
        return subprocess.run(reads, **run, capture_output=True).returncode == 0
    except PermissionError:
        return False


@pytest.fixture(scope="module", params=["the user", "an ordinary user"])
def escaped(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """What became of every attack, tried as whoever runs the tests and, where that is root, as nobody."""
    ordinary = request.param == "an ordinary user"
    if ordinary and os.getuid() != 0:
        pytest.skip("only root can become another user; the other half ran as an ordinary one")
    run: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if ordinary else {}
    if ordinary and not _readable(run):
        pytest.skip(f"an ordinary user cannot read {sys.executable} or {HERE}")
    with tempfile.TemporaryDirectory() as folder:
        if ordinary:
            os.chown(folder, NOBODY, NOBODY)
        paths = [str(HERE), *(str(HERE.parents[1] / part) for part in ("", "backends", "cache"))]
        environment = os.environ | {"ACCELOPT_CACHE_DIR": f"{folder}/cache", "HOME": folder, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, str(HERE / "escapes.py"), folder]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=280, **run)
    assert 0 == done.returncode, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    if missing := {name: why for name, why in found["walls"].items() if why}:
        pytest.skip(f"this system lacks walls: {missing}")
    yield found


def test_every_wall_stands(escaped: dict[str, Any]) -> None:
    """Limits, privileges, network, files and system calls, for root and for others."""
    assert dict.fromkeys(NAMES, "") == escaped["walls"]


def test_what_a_kernel_tries_is_refused_or_costs_it_its_process(escaped: dict[str, Any]) -> None:
    """Refused: the kernel goes on and is right. Or its process ends, and the verdict says how. Nothing succeeds."""
    others = {name: found for name, found in escaped["results"].items() if name not in (*FORGERIES, *BUILDS)}
    expected = {name: ENDS_ITS_PROCESS.get(name, "verified") for name in others} | {"a shell": "screen"}
    assert expected == {name: stage for name, (stage, _) in others.items()}


def test_a_forged_success_is_no_success(escaped: dict[str, Any]) -> None:
    """Answers that a kernel writes itself only say that it ran; what it left is judged elsewhere."""
    for name in FORGERIES:
        assert "verified" != escaped["results"][name][0], name


def test_builds_without_end_end(escaped: dict[str, Any]) -> None:
    """In the compiler's own limits, ours of time, or ours of file size."""
    for name in BUILDS:
        assert escaped["results"][name][0] in ("build", "timeout"), escaped["results"][name]


def test_nothing_is_left_behind(escaped: dict[str, Any]) -> None:
    """The secret is there and unread, no file was made, no process or descriptor stayed; the next kernel is judged."""
    assert {"secret": True, "mark": False, "descriptors": 0, "processes": 0} == escaped["left"]
    assert "verified" == escaped["results"]["honest"][0]
