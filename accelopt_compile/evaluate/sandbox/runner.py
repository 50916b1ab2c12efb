"""The runner: the process in which a candidate is loaded and called, inside its walls (`walls.py`). It knows the arena and
what it is asked; no seed, no right answer, no verdict ever comes here."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from accelopt_backends.registry import backend_at
from accelopt_compile.evaluate.baseline import Baselines
from accelopt_compile.evaluate.bench import Bench
from accelopt_compile.evaluate.buffers import mapped
from accelopt_compile.evaluate.devices import Device
from accelopt_compile.evaluate.sandbox import hygiene
from accelopt_compile.records import Artifact, Workload

STOPPED = 70
"""The status of a call in which the device itself stopped: a failed assertion there, an access that it forbids."""


class Runner:
    """Holds at most one kernel. `baselines` are those that were compiled before this process was forked, or before its walls
    rose, if any; `launcher` is the compiled one, to call the kernel as a program does. With a `device` the used part of the
    arena is copied there for each call, and back after it, so that whoever judges finds in the arena what the kernel left on the
    device, canaries and all."""

    def __init__(
        self,
        descriptor: int,
        baselines: Baselines | None,
        walls: Mapping[str, str],
        *,
        launcher: ModuleType | None = None,
        device: Device | None = None,
    ) -> None:
        self._memory, self._device, self._launcher = mapped(descriptor), device, launcher
        self._baselines, self._walls = baselines, walls
        self._kernel: Any = None
        self._bench: Bench | None = None
        self._pages = hygiene.Pages(self._memory.data_ptr())
        self._threads_before = hygiene.threads()
        self._most_threads = 1

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """One request of the host. What it raises is answered as an error."""
        match message["op"]:
            case "ready":
                return {}
            case "load":
                self._kernel = backend_at(message["backend"]).load(Artifact(**message["artifact"]))
                return {"walls": dict(self._walls)}
            case "run":
                return self.run(message)
            case "bench":
                return {"repeats": self.bench(message).sides(message["ours"], message["base"])}
            case "block":
                assert self._bench is not None
                times = self._bench.block(message["number"], message["order"], message["counts"], check=message["check"])
                return {"times": times}
            case "calls":
                assert self._bench is not None
                self._bench.run(message["side"], message["count"])
                return {}
            case "fresh":
                assert self._bench is not None
                return {"times": self._bench.fresh(message["side"], message["count"])}
            case "second":
                assert self._bench is not None
                return {"times": self._bench.second(message["side"], message["count"], same=message["same"])}
            case "read":
                assert self._bench is not None
                return {"times": self._bench.reads(message["side"], message["count"])}
        return {"error": f"unknown request {message['op']!r}"}

    def run(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """One call of the kernel on the arena. {"status": what it returned} and "fault": what it did to the process that
        its results do not show, "" for nothing."""
        if self._device is not None:
            return self._run_there(self._device, message)
        base = self._memory.data_ptr()
        pointers = [base + offset for offset in message["offsets"]]
        threads = int(message["threads"])
        self._most_threads = max(self._most_threads, threads)
        self._pages.close(message["fences"], message["readonly"])
        hygiene.rubbish_in_memory(bool(message["fences"]))
        status, changed = _called(self._kernel, pointers, message["sizes"], threads)
        fault = hygiene.float_mode() and f"the floating-point mode was changed: {hygiene.float_mode()}"
        if changed:
            fault = "the arrays of its arguments were changed"
        if (started := hygiene.threads() - self._threads_before) >= self._most_threads > 0:
            fault = f"it started {started} threads beside its own, told to use {self._most_threads} in all"
        return {"status": status, "fault": fault}

    def _run_there(self, device: Device, message: Mapping[str, Any]) -> dict[str, Any]:
        """`run` on a device, whose driver has threads of its own, and whose memory has no pages that could be closed. After a
        fault of the device this process is of no more use; what is asked of it next fails."""
        host = self._memory[: message["span"]]
        there = device.to(host)
        pointers = [there.data_ptr() + offset for offset in message["offsets"]]
        try:
            status, changed = _called(self._kernel, pointers, message["sizes"], int(message["threads"]))
            device.synchronize()
            device.back(there, host)
        except RuntimeError as failure:
            return {"status": STOPPED, "fault": f"the device stopped: {failure}"[:500]}
        return {"status": status, "fault": "the arrays of its arguments were changed" if changed else ""}

    def bench(self, message: Mapping[str, Any]) -> Bench:
        if self._bench is None:
            workload, binding = Workload.from_json(message["workload"]), message["binding"]
            self._bench = Bench(
                workload,
                binding,
                self._baselines or Baselines(workload, binding, self._device),
                memory=self._memory,
                kernel=self._kernel,
                threads=message["threads"],
                seed=message["seed"],
                launcher=self._launcher,
                device=self._device,
            )
        return self._bench


def _called(kernel: Any, pointers: Sequence[int], sizes: Sequence[int], threads: int) -> tuple[int, bool]:
    """(what it returned, whether it wrote to its arrays of pointers and sizes). Kernels that are no C functions get lists."""
    function = getattr(kernel, "function", None)
    if function is None:
        return int(kernel(list(pointers), list(sizes), threads)), False
    tensors = (ctypes.c_void_p * len(pointers))(*pointers)
    symbols = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
    before = bytes(tensors), bytes(symbols)
    status = int(function(ctypes.addressof(tensors), ctypes.addressof(symbols), threads))
    return status, before != (bytes(tensors), bytes(symbols))
