"""Kernels on a device with memory of its own: the stand-in on the host, which is another memory than the arena."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import softmax_workload
from native_backend import AttachedBackend, sample

from accelopt_backends.base import Attached
from accelopt_compile.errors import EvaluatorDied
from accelopt_compile.evaluate import Evaluator, Limits, open_evaluator
from accelopt_compile.evaluate.buffers import Buffers
from accelopt_compile.evaluate.cases import on_device, trials
from accelopt_compile.evaluate.crew import turn
from accelopt_compile.evaluate.devices import Copies
from accelopt_compile.evaluate.sandbox.arena import Arena
from accelopt_compile.evaluate.sandbox.runner import STOPPED, Runner
from accelopt_compile.records import Accepted, Rejected, Stage

BINDING = {"s0": 100}


@pytest.fixture(scope="module")
def attached(cache_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """Judges kernels for a softmax of 100 rows of 64 columns on the stand-in."""
    with open_evaluator(
        softmax_workload(),
        BINDING,
        backend=AttachedBackend(),
        threads=1,
        seed=11,
        workdir=str(tmp_path_factory.mktemp("work")),
        limits=Limits(call_s=2.0),
    ) as opened:
        yield opened


def test_a_right_kernel_is_verified_and_timed_there(attached: Evaluator) -> None:
    """Against both baselines, by the device's clock; every wall stands as it does on the host."""
    found = attached.evaluate(sample(), {"WIDTH": 1}, effort="full")
    assert isinstance(found, Accepted), found
    assert {"eager", "inductor"} == set(found.timing.baselines_us)
    assert found.timing.kernel_us > 0
    assert "" == attached.inductor_failure
    assert found.features["walls"].startswith("limits, privileges, network")


@pytest.mark.parametrize(
    ("after", "stage"),
    [
        ("y[0] += 0.01f;", Stage.NUMERICS),
        ("const_cast<float*>(x)[3] = 0.0f;", Stage.MUTATION),
        ("y[-1] = 1.0f;", Stage.MUTATION),
    ],
)
def test_the_referee_sees_what_was_done_there(attached: Evaluator, after: str, stage: Stage) -> None:
    """A wrong value, a changed input, a write beside an output: all of it comes back with the copy."""
    found = attached.evaluate(sample(after=after), {"WIDTH": 1})
    assert isinstance(found, Rejected)
    assert stage is found.stage, found


def test_no_nursery_and_no_runner_outlive_their_work(attached: Evaluator) -> None:
    """A process that has used a device forks none that could: what is left is the referee and a builder."""
    attached.evaluate(sample(), {"WIDTH": 1})
    assert 2 == len(attached.pids())


class Counting(Copies):
    """The stand-in, and how many bytes went each way."""

    def __init__(self) -> None:
        self.sent = self.returned = 0

    def to(self, host: torch.Tensor) -> torch.Tensor:
        self.sent += host.numel()
        return super().to(host)

    def back(self, there: torch.Tensor, host: torch.Tensor) -> None:
        self.returned += there.numel()
        super().back(there, host)


class Stopping(Copies):
    """The stand-in, after a failed assertion."""

    def synchronize(self) -> None:
        raise RuntimeError("device-side assert triggered")


def doubling(pointers: list[int], sizes: list[int], threads: int) -> int:
    """y = 2 x over the sizes' first."""
    given, out = ((ctypes.c_float * sizes[0]).from_address(p) for p in pointers)
    out[:] = [2 * x for x in given]
    return 0


def asked(device: Copies) -> tuple[dict[str, object], torch.Tensor, int]:
    """A runner's answer to one call of `doubling` on 10 threes; what lies in the output then; the bytes in use."""
    workload = softmax_workload(1)
    arena = Arena(1 << 20)
    runner = Runner(arena.descriptor, None, {}, device)
    memory = torch.frombuffer(mmap.mmap(arena.descriptor, os.fstat(arena.descriptor).st_size), dtype=torch.uint8)
    buffers = Buffers(workload, {"s0": 10}, memory=memory)
    buffers.fill([torch.full((10, 1), 3.0)], 0)
    buffers.poison(0)
    runner._kernel = doubling
    message = {"op": "run", "offsets": buffers.offsets(memory), "sizes": [10], "threads": 1, "span": buffers.span}
    reply = runner.answer({**message, "fences": [], "readonly": []})
    arena.close()
    return reply, buffers.results()[0], buffers.span


def test_each_call_moves_what_is_in_use_there_and_back_once() -> None:
    """Not the whole arena, which holds the largest case."""
    device = Counting()
    reply, result, span = asked(device)
    assert {"status": 0, "fault": ""} == reply
    assert [6.0] * 10 == result.flatten().tolist()
    assert (span, span) == (device.sent, device.returned)
    assert span < 4096


def test_a_device_that_stopped_is_a_status_and_leaves_the_arena_alone() -> None:
    """An index outside of what it indexes stops a device, as it does in eager: no kernel is blamed for that alone."""
    reply, result, _ = asked(Stopping())
    assert (STOPPED, "the device stopped: device-side assert triggered") == (reply["status"], reply["fault"])
    assert all(math.isnan(x) for x in result.flatten().tolist())


def test_trials_there_leave_the_host_s_threads_alone_and_stop_the_device_last() -> None:
    workload = softmax_workload(64)
    found = trials(workload, BINDING, "full", [1, 2, 3], 1)
    there = on_device(found)
    assert {1} == {t.threads for t in there}
    assert {t.case.family for t in found} == {t.case.family for t in there}


def test_one_process_at_a_time_has_the_device(tmp_path: Path) -> None:
    """The next one waits, and says so when it waits in vain; another device is another turn."""
    mine = turn(Attached(driver="copies"), str(tmp_path), 1.0)
    with pytest.raises(EvaluatorDied, match="another process has kept the device"):
        turn(Attached(driver="copies"), str(tmp_path), 0.1)
    turn(Attached(driver="cuda"), str(tmp_path), 0.1).release()
    mine.release()
    turn(Attached(driver="copies"), str(tmp_path), 0.1).release()
