"""What a device is to a benchmark: memory to put tensors into, a way there and back, a clock. One device is a simulation.

This is the seam that the evaluator's runner (accelopt_compile/evaluate: bench, buffers, clocking) would take where it now
allocates and times on the host. It lacks what only the evaluator has: canaries around tensors, fences, processes to die in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from accelopt_compile.dtypes import DTYPES
from accelopt_compile.evaluate.devices import CudaStopwatch
from accelopt_compile.evaluate.placing import placed
from accelopt_compile.evaluate.reference import reference_module
from accelopt_compile.records import Workload
from benchmarks.device_timing import Stopwatch


class Device(Protocol):
    """Where kernels run. `where` is what torch calls it."""

    name: str
    where: str

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Memory of that layout, filled with poison (NaN in every float type)."""

    def to(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy on the device, of the same layout."""

    def back(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy on the host."""

    def finish(self) -> None:
        """Wait for everything that was launched. Raises RuntimeError for what went wrong there."""

    def stopwatch(self) -> Stopwatch | None:
        """The clock; None where nothing can be timed."""

    def state(self) -> Mapping[str, str]:
        """Name, driver, clocks, temperature, as far as the device says."""


class TorchDevice:
    """A device that torch allocates on; "cpu" for the simulation, on which nothing is timed."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.name = "no device: a simulation on the host" if where == "cpu" else torch.cuda.get_device_name()

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        made = torch.empty_strided(tuple(shape), tuple(strides), dtype=dtype, device=self.where)
        span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if made.numel():
            made.as_strided((span,), (1,)).view(torch.uint8).fill_(0xFF)
        return made

    def to(self, tensor: torch.Tensor) -> torch.Tensor:
        there = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=self.where)
        source, target = tensor, there
        for dim, stride in enumerate(tensor.stride()):
            if stride == 0 and tensor.shape[dim] > 1:
                source, target = source.narrow(dim, 0, 1), target.narrow(dim, 0, 1)
        target.copy_(source)
        return there

    def back(self, tensor: torch.Tensor) -> torch.Tensor:
        raw = tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor
        return raw.cpu().contiguous().clone().view(tensor.dtype)

    def finish(self) -> None:
        if self.where != "cpu":
            torch.cuda.synchronize()

    def stopwatch(self) -> Stopwatch | None:
        return None if self.where == "cpu" else CudaStopwatch()

    def state(self) -> Mapping[str, str]:
        from benchmarks.gpu_machine import device_state

        return {} if self.where == "cpu" else device_state()


def present() -> TorchDevice:
    """The GPU, or the simulation where there is none."""
    return TorchDevice("cuda" if torch.cuda.is_available() else "cpu")


class Region:
    """A workload at a binding on a device: its inputs there, a kernel's call, and the region's own calls."""

    def __init__(self, workload: Workload, binding: Mapping[str, int], inputs: Sequence[torch.Tensor], device: Device) -> None:
        self.workload, self.binding, self.device = workload, dict(binding), device
        self.inputs = [device.to(x) for x in inputs]
        self.sizes = [binding[name] for name in workload.symbols]

    def outputs(self) -> list[torch.Tensor]:
        """Fresh outputs; those that lie over inputs are these."""
        over = dict(self.workload.aliases)
        return [
            self.inputs[over[k]]
            if k in over
            else self.device.empty(
                self.workload.bound_shape(s, self.binding), self.workload.bound_strides(s, self.binding), DTYPES[s.dtype]
            )
            for k, s in enumerate(self.workload.output_specs)
        ]

    def kernel_call(self, kernel: Any, outputs: Sequence[torch.Tensor]) -> Any:
        """A call of a loaded kernel into these outputs; its value is the kernel's status."""
        pointers = [t.data_ptr() for t in (*self.inputs, *outputs)]
        return lambda: kernel(pointers, self.sizes, 1)

    def eager_module(self) -> torch.fx.GraphModule:
        """The region's ATen calls on this device."""
        return placed(reference_module(self.workload, self.binding), self.device.where)
