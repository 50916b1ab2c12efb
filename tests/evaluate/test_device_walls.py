"""The walls around a runner that uses a device: its files stay open, everything else stays closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accelopt_compile.evaluate.sandbox.surroundings import child_environment
from accelopt_compile.evaluate.sandbox.walls import NAMES


@pytest.mark.parametrize("compiles", ["compiles", ""])
def test_only_the_device_s_files_can_be_opened(compiles: str, tmp_path: Path) -> None:
    """For writing those that the backend names, for reading the facts; and the device is opened before the walls are closed.
    Programs, and a folder of its own, are for runners that compile alone."""
    device, fact, other, own = (tmp_path / name for name in ("device", "fact", "other", "own"))
    for path in (device, fact, other):
        path.touch()
    own.mkdir()
    program = Path(__file__).with_name("open_files.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, str(program), *map(str, (device, fact, other, own)), compiles]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    reply = json.loads(done.stdout)
    if missing := {name: why for name, why in reply["walls"].items() if why}:
        pytest.skip(f"this system lacks walls: {missing}")
    assert dict.fromkeys(NAMES, "") == reply["walls"]
    assert ["opened"] == reply["before"]
    expected = {"device": True, "fact": True, "fact written": False, "other": False, "other written": False}
    assert {**expected, "own written": bool(compiles), "programs": bool(compiles)} == reply["found"]


def test_a_child_sees_which_device_the_user_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variables that the backend names, and by no others."""
    monkeypatch.setenv("DEVICES_SHOWN", "3")
    monkeypatch.setenv("ANOTHER_NAME", "x")
    shown = child_environment("/tmp", "/tmp", ["DEVICES_SHOWN"])
    assert "3" == shown["DEVICES_SHOWN"]
    assert "ANOTHER_NAME" not in shown
    assert "DEVICES_SHOWN" not in child_environment("/tmp", "/tmp")
