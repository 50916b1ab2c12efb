"""The runner: the process in which a candidate is loaded and called, inside its walls (`walls.py`). It knows the arena and
what it is asked; no seed, no right answer, no verdict ever comes here."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

import torch

from accelopt_compile.evaluate.baseline import Baselines
from accelopt_compile.evaluate.bench import Bench
from accelopt_compile.evaluate.buffers import mapped
from accelopt_compile.records import Artifact, Workload


class Runner:
    """Holds at most one kernel. `baselines` are those that were compiled before this process was forked, if any."""

    def __init__(self, descriptor: int, baselines: Baselines | None, walls: Mapping[str, str]) -> None:
        self._memory = mapped(descriptor)
        self._baselines, self._walls = baselines, walls
        self._kernel: Any = None
        self._bench: Bench | None = None
        torch.set_grad_enabled(False)

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """One request of the host. What it raises is answered as an error."""
        match message["op"]:
            case "load":
                module, _, attribute = message["backend"].partition(":")
                backend = getattr(importlib.import_module(module), attribute)()
                self._kernel = backend.load(Artifact(**message["artifact"]))
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
        return {"error": f"unknown request {message['op']!r}"}

    def run(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """One call of the kernel on the arena. {"status": what it returned} and, where it left the processor in another
        floating-point mode, {"fault": which}: that would change the results of the whole program."""
        base = self._memory.data_ptr()
        pointers = [base + offset for offset in message["offsets"]]
        status = int(self._kernel(pointers, message["sizes"], message["threads"]))
        return {"status": status, "fault": _float_mode()}

    def bench(self, message: Mapping[str, Any]) -> Bench:
        if self._bench is None:
            workload, binding = Workload.from_json(message["workload"]), message["binding"]
            self._bench = Bench(
                workload,
                binding,
                self._baselines or Baselines(workload, binding),
                memory=self._memory,
                kernel=self._kernel,
                threads=message["threads"],
                seed=message["seed"],
            )
        return self._bench


def _float_mode() -> str:
    """What the floating-point mode does wrong: "" when it rounds to nearest and keeps subnormal numbers."""
    one, half_ulp, smallest = math.ldexp(1.0, 0), math.ldexp(1.0, -53), math.ldexp(1.0, -1022)  # folded, if written out
    if smallest / math.ldexp(1.0, 1) == 0.0:
        return "subnormal results are flushed to zero"
    if math.ldexp(1.0, -1074) * math.ldexp(1.0, 600) == 0.0:
        return "subnormal operands are taken for zero"
    if one + half_ulp != one or -one - half_ulp != -one or (one + 2 * half_ulp) + half_ulp == one + 2 * half_ulp:
        return "rounding is not to nearest"
    return ""
