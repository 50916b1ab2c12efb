"""Devices with memory of their own, as a runner uses them: memory there, the way there and back, waiting, a clock.

Kernels over the host's memory need none of this: their runner works on the arena itself. A device is named by its driver
(`accelopt_backends.base.Attached`): "cuda" for whatever torch calls so, "copies" for a stand-in on the host whose memory is apart
from the arena, so that the whole path runs on a machine without a device.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from accelopt_compile.evaluate.timing import Call, Stopwatch

GRAPH_BELOW_US = 200.0
"""A shorter call is recorded as a graph and replayed, so that no side's time has the host's cost of launching in it."""
WARM_CALLS = 5


@dataclass(frozen=True, kw_only=True)
class Margins:
    """What a measurement through a driver cannot tell, in microseconds. `launch_us`: of a call in a row of replays as the host
    sees them, its launch; `step_us`: the step of the device's clock, below which no difference counts."""

    launch_us: float = 0.0
    step_us: float = 0.0


MARGINS = {"": Margins(), "copies": Margins(), "cuda": Margins(launch_us=15.0, step_us=1.0)}
"""By driver, "" for the host. A graph's replay costs the host 5 to 10 us; events count in steps of half a microsecond."""


class Device(Protocol):
    """See the module. `where` is what torch calls it."""

    where: str

    def open(self) -> None:
        """Make this process able to use it: before walls rise, once. Raises RuntimeError or OSError."""

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Memory there, not initialised."""

    def to(self, host: torch.Tensor) -> torch.Tensor:
        """Bytes of the host (1-d uint8), there."""

    def back(self, there: torch.Tensor, host: torch.Tensor) -> None:
        """Put bytes from there over as many of the host's. Raises RuntimeError."""

    def synchronize(self) -> None:
        """Wait for what was launched. Raises RuntimeError for what went wrong there; the process is then of no more use."""

    def stopwatch(self) -> Stopwatch:
        """The device's clock."""


class Copies:
    """The stand-in: memory of the host that is not the arena, the host's clock."""

    where = "cpu"

    def open(self) -> None:
        return None

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(tuple(shape), tuple(strides), dtype=dtype)

    def to(self, host: torch.Tensor) -> torch.Tensor:
        return host.clone()

    def back(self, there: torch.Tensor, host: torch.Tensor) -> None:
        host.copy_(there)

    def synchronize(self) -> None:
        return None

    def stopwatch(self) -> Stopwatch:
        return HostStopwatch()


class HostStopwatch:
    """Wall clock around single calls."""

    def prepare(self, call: Call) -> Call:
        for _ in range(WARM_CALLS):
            call()
        return call

    def sample_us(self, call: Call) -> float:
        begin = time.perf_counter_ns()
        call()
        return max(time.perf_counter_ns() - begin, 1) / 1e3

    def after_us(self, call: Call, then: Call) -> float:
        call()
        return self.sample_us(then)


class Cuda:
    """The current one of the devices that torch calls "cuda", whoever made it."""

    where = "cuda"

    def open(self) -> None:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.zeros(1, device=self.where)  # makes the context
        self.stopwatch()
        torch.cuda.synchronize()

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(tuple(shape), tuple(strides), dtype=dtype, device=self.where)

    def to(self, host: torch.Tensor) -> torch.Tensor:
        return host.to(self.where)

    def back(self, there: torch.Tensor, host: torch.Tensor) -> None:
        host.copy_(there)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def stopwatch(self) -> Stopwatch:
        return CudaStopwatch()


class CudaStopwatch:
    """Events on the current stream of the current device, around one call after a buffer larger than the second-level cache
    was overwritten: caches are cold, and the host is ahead of the device when the call begins."""

    def __init__(self) -> None:
        about = torch.cuda.get_device_properties(torch.cuda.current_device())
        cache = int(getattr(about, "L2_cache_size", 0)) or (64 << 20)
        self._flush = torch.empty(2 * cache, dtype=torch.uint8, device="cuda")

    def prepare(self, call: Call) -> Call:
        """`call` warmed, and as a replayed graph where it is short and can be recorded; it gives what `call` gave."""
        for _ in range(WARM_CALLS):
            call()
        torch.cuda.synchronize()
        if self.sample_us(call) >= GRAPH_BELOW_US:
            return call
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                call()
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph):
                result = call()
        except RuntimeError:  # it synchronises, or allocates on the host: then it is timed as it is
            torch.cuda.synchronize()
            return call

        def replayed() -> object:
            graph.replay()
            return result

        return replayed

    def sample_us(self, call: Call) -> float:
        """Microseconds of one call on cold caches."""
        return self.after_us(lambda: None, call)

    def after_us(self, call: Call, then: Call) -> float:
        """Microseconds of `then` right after `call`, which began on cold caches."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        self._flush.zero_()
        call()
        begin.record()
        then()
        end.record()
        end.synchronize()
        return max(1e3 * float(begin.elapsed_time(end)), 1e-3)


_DRIVERS: dict[str, type[Copies] | type[Cuda]] = {"copies": Copies, "cuda": Cuda}


def device_named(driver: str) -> Device | None:
    """The device of a driver's name; None for "", the host. Raises KeyError."""
    return _DRIVERS[driver]() if driver else None
