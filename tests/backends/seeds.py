"""Seeds of captured regions, built and tried by the evaluator's own checks (in this process: they are not hostile)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from accelopt_backends.cpp import CppBackend
from accelopt_compile.evaluate.session import Session
from accelopt_compile.partition import partition
from accelopt_compile.records import KernelSource, Workload
from accelopt_compile.signature import sign
from tests.regions.models import graph_of

BACKEND = CppBackend()


def regions_of(function: Callable[..., Any], *args: torch.Tensor) -> list[tuple[Workload, dict[str, int]]]:
    """The workloads of a function's regions, each with its binding."""
    signed = [sign(r) for r in partition(graph_of(function, *args)).regions]
    return [(s.workload, dict(s.binding)) for s in signed]


def fault(
    source: KernelSource,
    workload: Workload,
    binding: Mapping[str, int],
    folder: Path,
    *,
    tunables: Mapping[str, int] | None = None,
    threads: int = 2,
) -> str:
    """Why the screen or the evaluator's quick verification rejects the kernel; empty when it passes."""
    if refusals := BACKEND.screen(source):
        return f"line {refusals[0].line}: {refusals[0].reason}"
    artifact = BACKEND.build(source, tunables or source.defaults(), str(folder))
    function: Any = ctypes.CDLL(artifact.path).accelopt_kernel

    def kernel(pointers: Any, sizes: Any, count: int) -> int:
        tensors = (ctypes.c_void_p * len(pointers))(*pointers)
        symbols = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
        return int(function(tensors, symbols, ctypes.c_int64(count)))

    before = torch.get_num_threads()
    session = Session(workload, binding, threads=threads, seed=1, call_s=30.0, progress=lambda message: None)
    try:
        found = session.verify(kernel, "quick", [11, 12])
    finally:
        torch.set_num_threads(before)
    return "" if "rejected" not in found else " | ".join(str(part) for part in found["rejected"])
