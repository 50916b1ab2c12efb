"""Regions in order of what a kernel could save."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import torch
from torch.nn import functional as F

from accelopt_compile.hotness import Machine, measure, rank
from accelopt_compile.partition import partition
from accelopt_compile.signature import Signed, sign
from tests.regions.models import graph_of

MACHINE = Machine(bandwidth_bytes_s=1e10, peak_flops_s=1e11)


def signed(function: object, *args: torch.Tensor) -> Signed:
    (region,) = partition(graph_of(function, *args)).regions  # type: ignore[arg-type]
    return sign(region)


def test_bytes_and_bounds_of_a_norm_are_those_of_pencil_and_paper() -> None:
    """Input and output of 100 x 64 floats move once; unfused, each call reads and writes."""
    (cost,) = rank([(signed(lambda x: F.rms_norm(x, (64,)), torch.randn(100, 64)), 3)], MACHINE)
    assert 3 * 2 * 100 * 64 * 4 == cost.bytes_moved
    square, mean, eps, root, product = 2 * 25600, 25600 + 400, 800, 800, 2 * 25600 + 400
    unfused = square + mean + eps + root + product
    assert 3 * unfused == cost.unfused_bytes
    assert abs(cost.gain_bound_s - (cost.seconds_estimate - cost.bytes_moved / 1e10)) < 1e-12


def test_more_calls_and_more_fusion_rank_higher() -> None:
    """A copy has nothing to gain."""
    x = torch.randn(256, 128)
    norm = signed(lambda x: F.layer_norm(x, (128,)), x)
    copy = signed(lambda x: x.t().contiguous(), x)
    ranked = rank([(copy, 50), (norm, 1), (norm, 4)], MACHINE)
    assert [4, 1, 50] == [c.count for c in ranked]
    assert 0 == ranked[-1].gain_bound_s


def test_a_table_counts_by_the_rows_that_are_read() -> None:
    """An embedding of 256 rows out of 10,000."""
    (cost,) = rank([(signed(lambda w, i: F.embedding(i, w) * 2.0, torch.randn(10_000, 64), torch.arange(256)), 1)], MACHINE)
    assert 2 * 256 * 64 * 4 + 256 * 8 == cost.bytes_moved


def test_the_machine_is_measured() -> None:
    """Plausible numbers for any machine that runs this."""
    machine = measure()
    assert 1e8 < machine.bandwidth_bytes_s < 1e13
    assert 1e8 < machine.peak_flops_s < 1e15


def test_a_process_that_was_forked_knows_it() -> None:
    """Also where it imports this only then, as it does where the backend is named by its name."""
    program = """
import os
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
from accelopt_compile.hotness import _forked
os._exit(3 if _forked() else 4)
"""
    assert 3 == subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": ":".join(sys.path)}).returncode


def test_a_fork_is_measured_too() -> None:
    """The pool of threads does not survive the fork, and what asks for it would wait for ever."""
    torch.randn(4096, 4096).sum()
    child = os.fork()
    if child == 0:
        os._exit(0 if measure().bandwidth_bytes_s > 0 else 1)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.05)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert (child, 0) == ended
