"""`accelopt prewarm` as a user runs it: in its own process, on a model of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

MODEL = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 192), torch.nn.SiLU(), torch.nn.LayerNorm(192)).eval(), torch.randn(256, 64)
"""


def command(tmp_path: Path, *arguments: str, model: str = MODEL) -> subprocess.Popen[str]:
    (tmp_path / "my_model.py").write_text(model)
    environment = {
        **os.environ,
        "ACCELOPT_CACHE_DIR": str(tmp_path / "store"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "ACCELOPT_MODE": "apply",  # as in an image that serves: prewarm tunes all the same
    }
    line = [sys.executable, "-m", "accelopt_compile.cli", *arguments]
    return subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said_until(running: subprocess.Popen[str], words: str) -> str:
    """What a process says on stderr up to the line with these words."""
    assert running.stderr is not None
    seen = ""
    for line in running.stderr:
        seen += line
        if words in line:
            break
    return seen


def test_what_prewarm_found_is_listed_and_found_again(tmp_path: Path) -> None:
    """Regions are reported with exit code 0 or 3; a second prewarm searches nothing and agrees with the first."""
    first = command(tmp_path, "prewarm", "my_model:build", "--budget-s", "10", "--json")
    printed, errors = first.communicate(timeout=250)
    assert first.returncode in (0, 3), errors
    assert "mode apply ($ACCELOPT_MODE) is for processes that serve; this command tunes" in errors
    regions = [region for graph in json.loads(printed)["graphs"] for region in graph["regions"]]
    assert regions
    assert "tune" == json.loads(printed)["graphs"][0]["mode"]
    winners = {region["workload"] for region in regions if region["outcome"] in ("TUNED", "HIT")}
    listed, _ = command(tmp_path, "cache", "ls", "--outcome", "winner", "--json").communicate(timeout=60)
    assert winners == {record["workload"] for record in json.loads(listed)}
    printed, errors = command(tmp_path, "prewarm", "my_model:build", "--budget-s", "0", "--json").communicate(timeout=250)
    again = [region for graph in json.loads(printed)["graphs"] for region in graph["regions"]]
    assert winners == {region["workload"] for region in again if region["outcome"] == "HIT"}, errors


def test_ctrl_c_is_exit_code_130_and_one_line(tmp_path: Path) -> None:
    """An interrupted search ends with 130, says that it can be resumed, and shows no traceback."""
    running = command(tmp_path, "prewarm", "my_model:build", "--budget-s", "600")
    seen = said_until(running, "searching")
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=120)
    assert 130 == running.returncode, seen + errors
    assert "the same command goes on from there" in errors
    assert "Traceback" not in errors


def test_ctrl_c_inside_generated_code_is_exit_code_130_too(tmp_path: Path) -> None:
    """Python ends a module's process by the signal itself when the interrupt went through an `exec`, as torch's wrappers are."""
    running = command(tmp_path, "prewarm", "my_model:build", model="def build():\n    exec('raise KeyboardInterrupt')\n")
    _, errors = running.communicate(timeout=60)
    assert 130 == running.returncode, errors


def test_ctrl_c_before_the_first_search_does_not_wait_for_compilers(tmp_path: Path) -> None:
    """Baselines are compiled in advance for up to 0.7 of the budget."""
    many = MODEL.replace("torch.nn.LayerNorm(192)", "torch.nn.LayerNorm(192), torch.nn.Linear(192, 64), torch.nn.Softmax(-1)")
    running = command(tmp_path, "prewarm", "my_model:build", "--budget-s", "600", model=many)
    seen = said_until(running, "with Inductor first")
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=20)
    assert 130 == running.returncode, seen + errors
    assert "Traceback" not in errors


def test_what_a_factory_prints_is_no_part_of_the_document(tmp_path: Path) -> None:
    """With --json stdout is one document."""
    talking = MODEL.replace("    torch.manual_seed(0)", "    print('loading')\n    torch.manual_seed(0)")
    printed, errors = command(tmp_path, "prewarm", "my_model:build", "--budget-s", "0", "--json", model=talking).communicate(
        timeout=250
    )
    assert "my_model:build" == json.loads(printed)["factory"]
    assert "loading" in errors
