"""Attention's baselines on a device have that device's operators: traced on fake tensors, as none is here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(240)
def test_attention_s_baselines_are_the_device_s_own_operators() -> None:
    """Flash in 16 bits without a mask, else the memory-efficient one, forward and backward; never the host's."""
    program = Path(__file__).with_name("placed_attention.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *(p for p in sys.path if p)])}
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=environment, timeout=200)
    assert 0 == done.returncode, done.stderr[-2000:]
    for dtype, masked, backward, found in json.loads(done.stdout):
        kind = "flash" if dtype == "bf16" and not masked else "efficient"
        assert [f"aten._scaled_dot_product_{kind}_attention{'_backward' if backward else ''}.default"] == found
