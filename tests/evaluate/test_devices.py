"""Kernels on a device with memory of its own: the stand-in on the host, which is another memory than the arena."""

from __future__ import annotations

import math
import mmap
import operator
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from native_backend import AttachedBackend, sample

from accelopt_backends.base import Attached
from accelopt_backends.reference import ReferenceBackend
from accelopt_backends.registry import address_of
from accelopt_compile.attention import FORWARD
from accelopt_compile.errors import EvaluatorDied
from accelopt_compile.evaluate import Evaluator, Limits, open_evaluator, timing
from accelopt_compile.evaluate.baseline import fake_inputs
from accelopt_compile.evaluate.buffers import Buffers
from accelopt_compile.evaluate.cases import on_device, trials
from accelopt_compile.evaluate.crew import turn
from accelopt_compile.evaluate.devices import MARGINS, Copies, device_named
from accelopt_compile.evaluate.doubts import charged, seen_ratio
from accelopt_compile.evaluate.placing import lowerable, placed
from accelopt_compile.evaluate.reference import reference_module
from accelopt_compile.evaluate.sandbox.arena import Arena
from accelopt_compile.evaluate.sandbox.runner import STOPPED, Runner
from accelopt_compile.records import Accepted, Node, Ref, Rejected, Stage, TensorSpec, Workload
from tests.evaluate.workloads import softmax_workload

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


def asked(device: Copies, folder: Path) -> tuple[dict[str, object], torch.Tensor, int]:
    """A runner's answer to one call of a reference kernel, a softmax of 10 rows of four threes; what lies in the output then;
    the bytes in use."""
    workload, backend = softmax_workload(4), ReferenceBackend()
    built = backend.build(backend.seed(workload), {}, str(folder))
    arena = Arena(1 << 20)
    runner = Runner(arena.descriptor, None, {}, device=device)
    memory = torch.frombuffer(mmap.mmap(arena.descriptor, os.fstat(arena.descriptor).st_size), dtype=torch.uint8)
    buffers = Buffers(workload, {"s0": 10}, memory=memory)
    buffers.fill([torch.full((10, 4), 3.0)], 0)
    buffers.poison(0)
    assert {"walls": {}} == runner.answer({"op": "load", "backend": address_of(backend), "artifact": asdict(built)})
    message = {"op": "run", "offsets": buffers.offsets(memory), "sizes": [10], "threads": 1, "span": buffers.span}
    reply = runner.answer({**message, "fences": [], "readonly": []})
    arena.close()
    return reply, buffers.results()[0], buffers.span


def test_each_call_moves_what_is_in_use_there_and_back_once(tmp_path: Path) -> None:
    """Not the whole arena, which holds the largest case."""
    device = Counting()
    reply, result, span = asked(device, tmp_path)
    assert {"status": 0, "fault": ""} == reply
    assert [0.25] * 40 == result.flatten().tolist()
    assert (span, span) == (device.sent, device.returned)
    assert span < 1 << 14


def test_a_device_that_stopped_is_a_status_and_leaves_the_arena_alone(tmp_path: Path) -> None:
    """An index outside of what it indexes stops a device, as it does in eager: no kernel is blamed for that alone."""
    reply, result, _ = asked(Stopping(), tmp_path)
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


# ---------------------------------------------------------------- its clock


class Fixed:
    """A clock on which each call takes what it returns, in microseconds."""

    def __init__(self) -> None:
        self.prepared: list[timing.Call] = []

    def prepare(self, call: timing.Call) -> timing.Call:
        self.prepared.append(call)
        return call

    def sample_us(self, call: timing.Call) -> float:
        taken = call()
        assert isinstance(taken, float)
        return taken

    def after_us(self, call: timing.Call, then: timing.Call) -> float:
        return self.sample_us(then)


def test_each_side_is_prepared_anew_for_a_block_and_sampled_once_a_pair() -> None:
    """A sample there is one call, in nanoseconds; what a checked block wrote is the unprepared call's to give."""
    clock = Fixed()
    rig = timing.DeviceRig(lambda: lambda: 2.0, lambda: lambda: 3.0, clock)
    assert ((1, 2000.0), (1, 3000.0)) == rig.repeats()
    assert [(2000.0, 3000.0)] * 3 == rig.block(1, [True, False, True], (1, 1))
    assert 4 == len(clock.prepared)
    assert rig.last is not None
    assert 2.0 == rig.last()


def test_launching_is_no_work_of_the_kernel_s() -> None:
    """A true gain of 2 whose calls cost the host more than the device is none of a cheat's; ten times slower than it says is."""
    margin = MARGINS["cuda"].launch_us
    assert seen_ratio(2.0 + 9.0, 4.0 + 9.0, launch_us=margin) > 2.0
    assert 1.0 > seen_ratio(200.0, 40.0, launch_us=margin)
    assert 2.0 == seen_ratio(20.0, 40.0, launch_us=MARGINS[""].launch_us)


def test_less_than_a_step_of_the_clock_is_not_charged() -> None:
    before = timing.Paired(ratio=2.0, low=1.8, high=2.2, ours_us=5.0, base_us=10.0, blocks=12)
    assert 2.0 == charged(before, longer_us=0.9, step_us=1.0).ratio
    assert 2.0 > charged(before, longer_us=5.0, step_us=1.0).ratio


def test_every_driver_has_margins_and_the_host_has_no_device() -> None:
    assert device_named("") is None
    assert isinstance(device_named("copies"), Copies)
    assert {"", "copies", "cuda"} == set(MARGINS)


# ---------------------------------------------------------------- baselines there


def attention(rows: int = 8) -> Workload:
    """Attention plus a constant that is made from nothing."""
    spec = TensorSpec(dtype="f32", shape=(1, 2, rows, 16), strides=(32 * rows, 16 * rows, 16, 1))
    sums = TensorSpec(dtype="f32", shape=(1, 2, rows), strides=(2 * rows, rows, 1))
    given = tuple(Ref("i", k) for k in range(3))
    nodes = (
        Node(op=f"{FORWARD}.default", args=(*given, 0.0, True), outputs=(spec, sums)),
        Node(op="aten.full.default", args=((1, 2, rows, 16), 1.0), outputs=(spec,)),
        Node(op="aten.add.Tensor", args=(Ref("n", 0, 0), Ref("n", 1)), outputs=(spec,)),
    )
    return Workload(inputs=(spec,) * 3, nodes=nodes, outputs=(Ref("n", 2),), output_specs=(spec,), symbols=())


def test_what_is_made_from_nothing_is_made_on_the_device() -> None:
    module = placed(reference_module(attention(), {}), "meta")
    made = [n.kwargs["device"].type for n in module.graph.nodes if "device" in n.kwargs]
    assert ["meta"] == made


def test_attention_there_is_the_operator_that_the_device_picks() -> None:
    """Inductor gets ATen calls alone; on this host, the picked one is the host's."""
    workload = attention()
    module = placed(reference_module(workload, {}), "meta")
    for node in module.graph.nodes:  # back to the host, whose tensors can be computed with
        if "device" in node.kwargs:
            node.update_kwarg("device", torch.device("cpu"))
    module.recompile()
    inputs = [torch.randn(1, 2, 8, 16) for _ in range(3)]
    (expected,) = reference_module(workload, {})(*inputs)
    torch.testing.assert_close(expected, module(*inputs)[0])
    traced = lowerable(module, fake_inputs(workload, {}))
    called = [n.target for n in traced.graph.nodes if n.op == "call_function"]
    assert any("scaled_dot_product" in str(target) for target in called)
    assert all(isinstance(target, torch._ops.OpOverload) or target is operator.getitem for target in called)
    torch.testing.assert_close(expected, traced(*inputs)[0])
