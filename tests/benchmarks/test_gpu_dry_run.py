"""A GPU check's cases in the simulation, on two small workloads: the same code that runs on a device."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

import torch

from accelopt_backends.registry import backend_named
from accelopt_compile.records import DtypeArg, Node, Ref, TensorSpec, Workload
from benchmarks.device_seam import TorchDevice
from benchmarks.device_workloads import DeviceWorkload
from benchmarks.gpu_worker import answered, scaled


def silu(dtype: str) -> DeviceWorkload:
    narrow, wide = (TensorSpec(dtype=d, shape=("s0", 24), strides=(24, 1)) for d in (dtype, "f32"))
    nodes = (
        Node(op="prims.convert_element_type.default", args=(Ref("i", 0), DtypeArg("f32")), outputs=(wide,)),
        Node(op="aten.sigmoid.default", args=(Ref("n", 0),), outputs=(wide,)),
        Node(op="aten.mul.Tensor", args=(Ref("n", 0), Ref("n", 1)), outputs=(wide,)),
        Node(op="prims.convert_element_type.default", args=(Ref("n", 2), DtypeArg(dtype)), outputs=(narrow,)),
    )
    workload = Workload(inputs=(narrow,), nodes=nodes, outputs=(Ref("n", 3),), output_specs=(narrow,), symbols=("s0",))
    return DeviceWorkload(kind="llama", call="train", dtype=dtype, workload=workload, binding={"s0": 6})


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_seed_is_found_right_in_the_simulation(dtype: str) -> None:
    request = {"op": "correct", "workload": silu(dtype).to_json(), "structure": {}, "most": 2}
    found = answered(request, backend_named("triton"), TorchDevice("cpu"))
    assert (True, "") == (found["ok"], found["detail"])
    assert found["worst_share"] <= 1.0


def test_what_a_case_raises_is_its_answer() -> None:
    request = {"op": "correct", "workload": silu("bf16").to_json(), "structure": {"no such": "choice"}, "most": 1}
    found = answered(request, backend_named("triton"), TorchDevice("cpu"))
    assert not found["ok"]
    assert "no such" in found["detail"]


def test_a_large_binding_multiplies_what_is_free() -> None:
    assert {"s0": 16, "s1": 160, "s2": 1} == scaled({"s0": 2, "s1": 20, "s2": 1}, 8)


def test_memory_of_a_device_is_poisoned_and_copies_keep_their_layout() -> None:
    device = TorchDevice("cpu")
    assert device.empty((2, 3), (3, 1), torch.float32).isnan().all()
    expanded = torch.ones(4, 1).expand(4, 5)
    assert expanded.stride() == device.to(expanded).stride()
    assert torch.equal(expanded.contiguous(), device.back(device.to(expanded)))


def test_nothing_is_timed_without_a_device() -> None:
    assert TorchDevice("cpu").stopwatch() is None
