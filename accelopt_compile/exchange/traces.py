"""What a record measured, as a Trace: only for kernels that ran on their device, and only numbers that were measured."""

from __future__ import annotations

import json
import uuid
from typing import Any

from accelopt_compile.exchange.links import Known, solved
from accelopt_compile.exchange.schema import Instance
from accelopt_compile.exchange.solutions import Exported

_NAMESPACE = uuid.UUID("5f0a3a52-5d3c-4d8a-9d1e-2f3f6b1c7a90")


def instance_of(exported: Exported, known: Known | None) -> Instance | None:
    """The workload that the record was measured on: one that was imported, else one with random inputs; None where the sizes
    of a definition do not follow from those of the kernel."""
    definition, link, binding = exported.definition, exported.link, dict(exported.record.binding)
    for instance in known.instances if known is not None else ():
        if instance.scalars() == dict(link.scalars) and link.binding(definition, instance.axes) == binding:
            return instance
    axes = solved(definition, link, binding) if known is not None else _of_inputs(exported)
    if axes is None:
        return None
    inputs: dict[str, dict[str, Any]] = {name: {"type": "random"} for name in definition.inputs}
    inputs |= {name: {"type": "scalar", "value": value} for name, value in link.scalars.items()}
    named = json.dumps([definition.name, axes, inputs], sort_keys=True)
    return Instance(axes=axes, inputs=inputs, uuid=str(uuid.uuid5(_NAMESPACE, named)))


def _of_inputs(exported: Exported) -> dict[str, int]:
    """The axes of a definition that was made from the workload: read off its inputs' shapes."""
    axes: dict[str, int] = {}
    workload = exported.link.workload
    for tensor, spec in zip(exported.definition.inputs.values(), workload.inputs, strict=True):
        axes |= dict(zip(tensor.shape or (), workload.bound_shape(spec, exported.record.binding), strict=True))
    return {name: axes[name] for name in exported.definition.varying}


def workload_trace(exported: Exported, instance: Instance) -> dict[str, Any]:
    """A Trace that only says that there is such a workload."""
    return {"definition": exported.definition.name, "workload": instance.to_json()}


def trace(exported: Exported, instance: Instance) -> dict[str, Any] | None:
    """The Trace of a winner; None for a candidate, which has no time on its device.

    The largest errors that the schema asks for were not measured that way (NaN, as it allows): what was is in `extra`, the
    worst error against float64 as a share of what is allowed. The reference is eager, as there; Inductor's time is in `log`.
    """
    record = exported.record
    timing, errors = record.timing, record.errors
    if exported.candidate or timing is None:
        return None
    eager = timing.baselines_us.get("eager", 0.0)
    rivals = ", ".join(f"{name} {us:.3f} us" for name, us in sorted(timing.baselines_us.items()))
    measured = f"{timing.speedup:.3f}x the better of {rivals}; 95 % from {timing.low:.3f} to {timing.high:.3f}"
    extra = {} if errors is None else {"worst_share_of_allowed_error": errors.worst_share, "cases": errors.cases}
    return {
        **workload_trace(exported, instance),
        "solution": exported.name,
        "evaluation": {
            "status": "PASSED",
            "environment": {"hardware": record.environment.get("device") or record.target, "libs": dict(record.environment)},
            "timestamp": record.created or "unknown",
            "log": f"AccelOpt Compile: {measured}",
            "correctness": {"max_relative_error": "NaN", "max_absolute_error": "NaN", "extra": extra},
            "performance": {
                "latency_ms": timing.kernel_us / 1e3,
                "reference_latency_ms": eager / 1e3,
                "speedup_factor": eager / timing.kernel_us if timing.kernel_us > 0 else 0.0,
            },
        },
    }
