"""The process in which a GPU check's cases run: one JSON request a line in, one answer a line out.

A fault of the device stays in the process that caused it: after one, every later call fails. So the worker answers with it and
ends; the parent starts another one. Requests: {"op": "correct" | "time" | "model", ...}; answers: {"ok": ..., "detail": ...}.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from accelopt_backends.base import Backend, Missing
from accelopt_backends.registry import backend_named
from accelopt_compile.evaluate.answers import Answers
from accelopt_compile.evaluate.cases import Trial, trials
from accelopt_compile.evaluate.compare import judge
from accelopt_compile.evaluate.simulation import reduced, simulated_trials
from accelopt_compile.records import KernelSource
from benchmarks import device_timing
from benchmarks.device_seam import Region, TorchDevice, present
from benchmarks.device_workloads import DeviceWorkload

FAULTED = 3
"""Exit status after a fault of the device."""

FAULTS = ("CUDA error", "Triton Error [CUDA]", "HIP error", "Triton Error [HIP]")
"""What a message has in it after a fault that stays."""

Answer = dict[str, Any]


def correct(request: Mapping[str, Any], backend: Backend, device: TorchDevice) -> Answer:
    """A structure's kernel at its defaults, on every quick case, twice each: near the float64 answer, and the same bits again."""
    one = DeviceWorkload.from_json(request["workload"])
    source = backend.render(one.workload, request["structure"])
    kernel, build_s = _loaded(backend, source)
    asked = _trials(one, device, most=int(request["most"]))
    answers, worst, done = Answers(one.workload), 0.0, 0
    for trial in asked:
        answer = answers.get(trial.case, probes=trial.probes)
        if isinstance(answer, str):
            continue
        first: list[torch.Tensor] = []
        for call in range(2):
            region = Region(one.workload, dict(trial.case.binding), answer.inputs, device)
            outputs = region.outputs()
            status = region.kernel_call(kernel, outputs)()
            device.finish()
            if status != 0:
                return {"ok": False, "detail": f"the kernel returned {status} on {trial}"}
            results = [device.back(t) for t in outputs]
            found = judge(results, answer.expected)
            if found.fault:
                return {"ok": False, "detail": f"wrong on {trial}: {found.fault}"}
            if call and not all(_same(a, b) for a, b in zip(first, results, strict=True)):
                return {"ok": False, "detail": f"two calls differ on {trial}"}
            first, worst = results, max(worst, found.share)
        done += 1
    ok = done > 0
    return {
        "ok": ok,
        "detail": "" if ok else "no case could be verified",
        "cases": done,
        "worst_share": round(worst, 4),
        "build_s": round(build_s, 2),
    }


def _trials(one: DeviceWorkload, device: TorchDevice, *, most: int) -> list[Trial]:
    if device.where == "cpu":
        return simulated_trials(one.workload, one.binding, "quick", [11, 12])[:most]
    return trials(one.workload, one.binding, "quick", [11, 12], threads=1)[:most]


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def _loaded(backend: Backend, source: KernelSource) -> tuple[Any, float]:
    folder = tempfile.mkdtemp(prefix="accelopt-gpu-")  # the kernel's file lives as long as the process
    artifact = backend.build(source, source.defaults(), folder)
    return backend.load(artifact), artifact.build_s


def timed(request: Mapping[str, Any], backend: Backend, device: TorchDevice) -> Answer:
    """One region at a large binding: our seed, eager, Inductor, Inductor with max-autotune, and the roofline. In a simulation
    each side runs once and nothing is timed."""
    one = DeviceWorkload.from_json(request["workload"])
    simulated = device.where == "cpu"
    binding = reduced(one.workload, one.binding) if simulated else scaled(one.binding, int(request["scale"]))
    region = Region(one.workload, binding, _inputs(one, binding), device)
    kernel, _ = _loaded(backend, backend.seed(one.workload))
    outputs = region.outputs()
    eager = region.eager_module()
    sides: dict[str, Callable[[], object]] = {"ours": region.kernel_call(kernel, outputs), "eager": lambda: eager(*region.inputs)}
    notes = {}
    for name, autotune in (("inductor", False), ("max-autotune", True)):
        if simulated and autotune:
            notes[name] = "not compiled in a dry run"
            continue
        try:
            compiled = _inductor(region, autotune=autotune)
        except Exception as failure:  # Inductor on any graph: whatever it raises is a note in the table
            notes[name] = f"{type(failure).__name__}: {str(failure)[:200]}"
            continue
        sides[name] = lambda compiled=compiled: compiled(list(region.inputs))  # type: ignore[misc]
    roofline = backend.roofline(one.workload, binding, 1)
    about = {"binding": binding, "roofline_us": 1e6 * roofline.seconds, "bound": roofline.bound, "notes": notes}
    stopwatch = device.stopwatch()
    if stopwatch is None:
        for call in sides.values():
            call()
        return {"ok": True, "detail": "ran once, not timed: there is no device", "sides": list(sides), **about}
    generator = random.Random(7)
    before = device.state()
    with torch.no_grad():
        taken = device_timing.interleaved(sides, stopwatch, budget_s=float(request["budget_s"]), generator=generator)
    return {
        "ok": True,
        "detail": "",
        **device_timing.report(taken, "ours", generator),
        **about,
        "state": [before, device.state()],
    }


def scaled(binding: Mapping[str, int], scale: int) -> dict[str, int]:
    """The binding with every size that is more than one multiplied: stored workloads are small, a device wants large ones.

    >>> scaled({"s0": 2, "s1": 20, "s2": 1}, 8)
    {'s0': 16, 's1': 160, 's2': 1}
    """
    return {name: size * scale if size > 1 else size for name, size in binding.items()}


def _inputs(one: DeviceWorkload, binding: Mapping[str, int]) -> Sequence[torch.Tensor]:
    from accelopt_compile.evaluate.inputs import make_inputs
    from accelopt_compile.evaluate.roles import roles

    inputs: Sequence[torch.Tensor] = make_inputs(one.workload, dict(binding), "normal", 3, roles(one.workload, dict(binding)))
    return inputs


def _inductor(region: Region, *, autotune: bool) -> Callable[[list[torch.Tensor]], object]:
    """Inductor's function for the region, without Dynamo's and AOTAutograd's wrappers."""
    import torch._inductor.config as config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._subclasses import FakeTensorMode

    mode = FakeTensorMode()
    fakes = [mode.from_tensor(x) for x in region.inputs]
    patches: dict[str, Any] = {"size_asserts": False, "alignment_asserts": False, "max_autotune": autotune}
    with torch.no_grad(), config.patch(patches):
        compiled: Any = compile_fx_inner(region.eager_module(), fakes)
    function: Callable[[list[torch.Tensor]], object] = compiled.current_callable
    return function


# ---------------------------------------------------------------- models


def model(request: Mapping[str, Any], backend: Backend, device: TorchDevice) -> Answer:
    """A model of plain torch under each compiler, against eager's values; timed on a device, called once in a simulation."""
    from benchmarks.device_models import Moe

    simulated = device.where == "cpu"
    sizes = {"hidden": 64, "heads": 2, "vocab": 256} if simulated else {"hidden": 1024, "heads": 16, "vocab": 32000}
    torch.manual_seed(0)
    dtype = torch.float32 if simulated else torch.bfloat16
    made = Moe(**sizes)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    made = made.to(device.where, dtype).eval()
    ids = torch.randint(sizes["vocab"], (1, 16) if simulated else (4, 512), device=device.where)
    ours = {"backend": "accelopt", "options": {"mode": "apply" if simulated else "tune", "budget_s": 0 if simulated else 60}}
    variants: dict[str, dict[str, Any] | None] = {
        "eager": None,
        "inductor": {},
        "max-autotune": {"mode": "max-autotune-no-cudagraphs"},
    }
    if simulated:
        variants = {"eager": None}
    variants["accelopt"] = ours
    with torch.no_grad():
        reference, calls, errors, notes = made(ids), {}, {}, {}
        for name, arguments in variants.items():
            torch._dynamo.reset()
            call: Any = made if arguments is None else torch.compile(made, **arguments)
            try:
                errors[name] = float((call(ids) - reference).abs().max() / reference.abs().max())
            except Exception as failure:  # one compiler must not cost the others their row
                notes[name] = f"{type(failure).__name__}: {str(failure)[:300]}"
                continue
            calls[name] = lambda call=call: call(ids)  # type: ignore[misc]
        stopwatch = device.stopwatch()
        about = {"errors": errors, "notes": notes, "sizes": sizes}
        if stopwatch is None:
            return {"ok": not notes, "detail": "ran once, not timed: there is no device", **about}
        generator = random.Random(7)
        taken = device_timing.interleaved(calls, stopwatch, budget_s=float(request["budget_s"]), generator=generator)
        return {"ok": not notes, "detail": "", **device_timing.report(taken, "accelopt", generator), **about}


OPERATIONS: Mapping[str, Callable[[Mapping[str, Any], Backend, TorchDevice], Answer]] = {
    "correct": correct,
    "time": timed,
    "model": model,
}


def answered(request: Mapping[str, Any], backend: Backend, device: TorchDevice) -> Answer:
    """The answer of one request; what went wrong is an answer too."""
    begin = time.monotonic()
    try:
        found = OPERATIONS[request["op"]](request, backend, device)
    except Exception as failure:  # a case: whatever it raises is its result
        fault = device.where != "cpu" and any(mark in str(failure) for mark in FAULTS)
        found = {"ok": False, "detail": f"{type(failure).__name__}: {str(failure)[:600]}", "fault": fault}
    return {**found, "seconds": round(time.monotonic() - begin, 2)}


def main() -> int:
    device = present()
    backend = backend_named("triton")
    ready = backend.probe()
    hello = (
        {"missing": f"{ready.why}; {ready.how}"} if isinstance(ready, Missing) else {"target": ready.target, "rung": ready.rung}
    )
    print(json.dumps({"device": device.name, "where": device.where, **hello}), flush=True)
    for line in sys.stdin:
        found = answered(json.loads(line), backend, device)
        print(json.dumps(found), flush=True)
        if found.get("fault"):
            return FAULTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
