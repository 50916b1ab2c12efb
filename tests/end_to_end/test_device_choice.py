"""Which backend a graph gets: by the device that its tensors are on. Tensors on a device that is not here are fake ones."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule

from accelopt_backends.base import Ready
from accelopt_backends.registry import automatic, backend_named, classes
from accelopt_compile import torch_backend
from accelopt_compile.choosing import chosen, device_of
from accelopt_compile.config import settings_from
from accelopt_compile.errors import ToolchainMissing
from accelopt_compile.graph_pass import AccelOptPass, signature_of
from accelopt_compile.outcomes import reports
from accelopt_compile.partition import partition
from accelopt_compile.pipeline import bench_for


def fake(*shape: int, device: str = "cuda") -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(shape, device=device)


def graph(device: str, *, given: bool = True) -> GraphModule:
    """relu(x) + x with its values, as after a capture."""
    made = Graph()
    x = made.placeholder("x")
    y = made.call_function(torch.ops.aten.relu.default, (x,))
    z = made.call_function(torch.ops.aten.add.Tensor, (y, x))
    made.output((z,))
    with FakeTensorMode():
        for node in (x, y, z):
            node.meta["val"] = torch.empty(64, 64, device=device)
    if not given:
        x.meta.clear()
    return GraphModule(torch.nn.Module(), made)


def test_a_graph_is_where_most_of_its_inputs_are() -> None:
    """Scalars on the host do not count where there is anything else."""
    assert "cpu" == device_of(graph("cpu"), [torch.ones(3)])
    assert "cuda" == device_of(graph("cuda"), [fake(3)])
    assert "cuda" == device_of(graph("cuda"), [torch.tensor(1.0), torch.tensor(2.0), fake(3), 7])


def test_a_graph_without_inputs_is_where_its_values_are() -> None:
    assert "cuda" == device_of(graph("cuda", given=False), [])
    assert "cpu" == device_of(graph("cpu", given=False), [3])


def test_each_backend_says_for_which_device_it_is() -> None:
    """And the text, which is read without importing it, says what the class does."""
    for name in classes():
        backend = backend_named(name)
        assert (name in automatic(backend.device)) is backend.automatic
        assert not any(name in automatic(other) for other in ("cpu", "cuda", "xpu") if other != backend.device)


def test_the_reference_is_never_chosen_by_itself() -> None:
    assert not any("reference" in automatic(device) for device in ("cpu", "cuda"))
    assert ("cpp",) == automatic("cpu")


def test_a_graph_on_the_host_meets_no_other_device_s_toolchain() -> None:
    """Choosing for it imports only backends of the host."""
    others = [name for name in classes() if backend_named(name).device != "cpu"]
    program = (
        "import sys\nfrom accelopt_compile.config import settings_from\nfrom accelopt_compile.choosing import chosen\n"
        "assert 'cpp' == chosen(settings_from(call={}), 'cpu')[0].name\n"
        f"print([n for n in {others!r} if n in sys.modules or 'accelopt_backends.' + n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert "[]" == done.stdout.strip(), done.stderr


def test_a_simulation_is_only_chosen_by_name() -> None:
    """By itself, kernels that nobody can launch are of no use to a graph."""
    for name in automatic("cuda"):
        ready = backend_named(name).probe()
        if isinstance(ready, Ready) and ready.rung == "simulated":
            assert "simulated" == chosen(settings_from(call={"backend": name}), "cuda")[1].rung
            with pytest.raises(ToolchainMissing, match=f"{name} finds no device here, only its simulation"):
                chosen(settings_from(call={}), "cuda")


def test_a_device_that_no_backend_is_for_is_named() -> None:
    with pytest.raises(ToolchainMissing, match="none has kernels for tensors on xpu"):
        bench_for(settings_from(call={}), "xpu")


def test_a_graph_that_no_backend_serves_is_inductor_s_with_one_message(caplog: pytest.LogCaptureFixture) -> None:
    """However many graphs the model has; each has its report."""
    torch_backend._say_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger="accelopt_compile"):
        for _ in range(3):
            assert torch_backend._planned(graph("xpu"), [fake(64, 64, device="xpu")], settings_from(call={})) is None
    (message,) = [record.message for record in caplog.records if "backend" in record.message]
    assert "no backend works here: none has kernels for tensors on xpu; Inductor compiles alone" == message
    assert 3 == len(reports.all())


def test_a_pass_replaces_only_what_is_on_its_device() -> None:
    """The same region has a signature there and none for another device's kernels; Inductor's cache tells the passes apart."""
    (region,) = partition(graph("cuda").graph).regions
    assert "tensors on cuda; kernels are for the CPU" == signature_of(region)
    assert not isinstance(signature_of(region, device="cuda"), str)
    assert AccelOptPass({}).uuid() != AccelOptPass({}, device="cuda").uuid()


def test_a_bench_says_whether_its_device_has_memory_of_its_own() -> None:
    bench = bench_for(settings_from(call={}))
    assert not bench.attached
    assert replace(bench, attached=True).attached
