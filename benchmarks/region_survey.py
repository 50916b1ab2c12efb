"""Which regions each case of the suite gives, whether the backend takes them, and what its seed is worth, without tuning.

One line per region: case, what the region computes, "seed 1.62x" (one quick evaluation) or the stage and reason of its
rejection, or why the backend does not support it; below it the nodes that no region holds, with the partitioner's reason.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from accelopt_backends.base import Backend
from accelopt_compile.capture import capture
from accelopt_compile.errors import AccelOptError
from accelopt_compile.evaluate.evaluate import open_evaluator
from accelopt_compile.graph_pass import choice, signature_of
from accelopt_compile.partition import partition
from accelopt_compile.records import Accepted, Binding, Workload
from accelopt_compile.regions import Region, nested
from accelopt_compile.wording import operators
from benchmarks.region_cases import Case


@dataclass(frozen=True, kw_only=True)
class Found:
    """A distinct region of a case; `workload` is None where it has no signature, for the reason in `why`. `part` says
    that it is one of the regions a larger one was merged of."""

    role: str
    name: str
    count: int
    workload: Workload | None
    binding: Binding
    why: str = ""
    part: bool = False


@dataclass(frozen=True, kw_only=True)
class Regions:
    """What capture and partition made of a case. `refused` are (operator, role, reason) of nodes outside every region."""

    found: tuple[Found, ...]
    refused: tuple[tuple[str, str, str], ...]


def regions_of(case: Case) -> Regions:
    """Capture the case as torch.compile would, cut it into regions and sign them. Nothing is compiled."""
    problem = case.make()
    found: dict[Any, Found] = {}
    refused: list[tuple[str, str, str]] = []

    def collect(gm: GraphModule, inputs: Any) -> Any:
        for captured in capture(gm, inputs):
            cut = partition(captured.graph)
            nodes = {node.name: str(node.target) for node in captured.graph.nodes if node.op == "call_function"}
            refused.extend((nodes.get(name, name), captured.role, why) for name, why in cut.refused.items())
            for region in cut.regions:
                for key, one in _signed(region, captured.role, part=False):
                    before = found.get(key)
                    found[key] = one if before is None else dataclasses.replace(before, count=before.count + 1)
        return gm.forward

    torch.compiler.reset()
    inputs = [x.detach().requires_grad_(k in problem.wrt) for k, x in enumerate(problem.inputs)]
    with torch.set_grad_enabled(case.mode != "inference"):
        torch.compile(problem.function, backend=collect, dynamic=False)(*inputs)
    return Regions(found=tuple(found.values()), refused=tuple(refused))


def _signed(region: Region, role: str, *, part: bool) -> Iterator[tuple[Any, Found]]:
    signed = signature_of(region)
    if isinstance(signed, str):
        yield region.name, Found(role=role, name=region.name, count=1, workload=None, binding={}, why=signed, part=part)
    else:
        key = choice(signed.workload.digest, signed.binding)
        yield key, Found(role=role, name=region.name, count=1, workload=signed.workload, binding=dict(signed.binding), part=part)
    for smaller in nested(region):
        yield from _signed(smaller, role, part=True)


def seed_verdict(found: Found, backend: Backend, threads: int) -> dict[str, Any]:
    """Plain JSON: "unsupported", "rejected" (stage, reason, diagnosis), "failed" (ours), or "speedup" with its timing."""
    if found.workload is None:
        return {"unsupported": found.why}
    why = backend.supports(found.workload)
    if why:
        return {"unsupported": why}
    try:
        seed = backend.seed(found.workload)
        roofline_us = 1e6 * backend.roofline(found.workload, found.binding, threads).seconds
        with (
            tempfile.TemporaryDirectory(prefix="accelopt-survey-") as workdir,
            open_evaluator(found.workload, found.binding, backend=backend, threads=threads, seed=0, workdir=workdir) as evaluator,
        ):
            verdict = evaluator.evaluate(seed, seed.defaults(), effort="quick")
    except (AccelOptError, ValueError, LookupError, AssertionError) as failure:
        return {"failed": f"{type(failure).__name__}: {failure}"[:500]}
    if not isinstance(verdict, Accepted):
        return {"rejected": f"{verdict.stage.value}: {verdict.reason}", "diagnosis": verdict.diagnosis[-500:]}
    timing = verdict.timing
    return {
        "speedup": round(timing.speedup, 3),
        "low": round(timing.low, 3),
        "kernel_us": round(timing.kernel_us, 2),
        "baselines_us": {name: round(us, 2) for name, us in timing.baselines_us.items()},
        "roofline_us": round(roofline_us, 2),
        "error_share": round(verdict.errors.worst_share, 3),
    }


def survey(case: Case, backend: Backend, threads: int) -> dict[str, Any]:
    """Plain JSON of one case: its regions with their seeds' verdicts, and the refused nodes."""
    cut = regions_of(case)
    rows = [
        {
            "role": found.role,
            "region": found.name,
            "operators": operators(found.workload) if found.workload else "?",
            "digest": found.workload.digest if found.workload else "",
            "binding": dict(found.binding),
            "count": found.count,
            "part": found.part,
            **seed_verdict(found, backend, threads),
        }
        for found in cut.found
    ]
    return {"case": case.key, "family": case.family, "regions": rows, "refused": [list(r) for r in cut.refused]}


def verdict_line(row: dict[str, Any]) -> str:
    if "unsupported" in row:
        return f"unsupported: {row['unsupported']}"
    if "failed" in row:
        return f"FAILED {row['failed']}"
    if "rejected" in row:
        return f"REJECTED {row['rejected']} | {row['diagnosis'].strip()}"
    times = " ".join(f"{name} {us:.0f}" for name, us in row["baselines_us"].items())
    return f"seed {row['speedup']:.2f}x  {row['kernel_us']:.0f} us ({times}; roofline {row['roofline_us']:.0f})"


def lines(surveyed: dict[str, Any]) -> Iterator[str]:
    """The table's lines for one case."""
    if "died" in surveyed:
        yield f"{surveyed['case']:34} DIED: {surveyed['died']}"
        return
    if not surveyed["regions"]:
        yield f"{surveyed['case']:34} no region"
    for row in surveyed["regions"]:
        what = f"{'  part: ' if row['part'] else ''}{row['operators']}" + (f" x{row['count']}" if row["count"] > 1 else "")
        role = "" if row["role"] == "inference" else f"{row['role']}: "
        yield f"{surveyed['case']:34} {role}{what} | {verdict_line(row)}"
    seen = {(op, role, why) for op, role, why in surveyed["refused"] if "view or constant" not in why}
    for op, role, why in sorted(seen):
        yield f"{'':34}   refused ({role}): {op}: {why}"
