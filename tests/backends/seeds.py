"""Seeds of captured regions, built and tried by the evaluator's own checks (in this process: they are not hostile)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from accelopt_backends.base import Backend, Kernel, Products
from accelopt_backends.cpp import CppBackend
from accelopt_compile.evaluate import Limits, referee
from accelopt_compile.evaluate.answers import Case
from accelopt_compile.evaluate.buffers import arena_bytes, mapped
from accelopt_compile.evaluate.cases import trials
from accelopt_compile.evaluate.sandbox.arena import Arena
from accelopt_compile.evaluate.verifying import verify
from accelopt_compile.partition import partition
from accelopt_compile.records import KernelSource, Rejected, Workload
from accelopt_compile.signature import sign
from tests.regions.models import graph_of

BACKEND = CppBackend()


def regions_of(function: Callable[..., Any], *args: torch.Tensor) -> list[tuple[Workload, dict[str, int]]]:
    """The workloads of a function's regions, each with its binding."""
    signed = [sign(r) for r in partition(graph_of(function, *args), products=Products(most=1, rows=1)).regions]
    return [(s.workload, dict(s.binding)) for s in signed]


def fault(
    source: KernelSource,
    workload: Workload,
    binding: Mapping[str, int],
    folder: Path,
    *,
    tunables: Mapping[str, int] | None = None,
    threads: int = 2,
    backend: Backend = BACKEND,
    families: Sequence[str] = (),
) -> str:
    """Why the screen or the evaluator's quick verification rejects the kernel, these families of inputs besides; empty when it
    passes."""
    if refusals := backend.screen(source):
        return f"line {refusals[0].line}: {refusals[0].reason}"
    kernel = backend.load(backend.build(source, tunables or source.defaults(), str(folder)))
    tried = trials(workload, binding, "quick", [11, 12], threads)
    tried += [replace(tried[0], case=Case(tried[0].case.binding, family, 13)) for family in families]
    before = torch.get_num_threads()
    arena = Arena(arena_bytes(workload, [dict(t.case.binding) for t in tried]))
    try:
        found = verify(Judge(workload, arena), Caller(kernel, arena), tried)
    finally:
        arena.close()
        torch.set_num_threads(before)
    return f"{found.stage.value} | {found.reason} | {found.diagnosis}" if isinstance(found, Rejected) else ""


class Judge:
    """The referee, in this process."""

    def __init__(self, workload: Workload, arena: Arena) -> None:
        self.limits = Limits()
        self._referee = referee.Referee(workload, arena.descriptor)

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        return referee.answer(self._referee, message)


class Caller:
    """The kernel, in this process."""

    def __init__(self, kernel: Kernel, arena: Arena) -> None:
        self._kernel, self._memory = kernel, mapped(arena.descriptor)

    def request(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        pointers = [self._memory.data_ptr() + offset for offset in message["offsets"]]
        return {"status": self._kernel(pointers, message["sizes"], message["threads"])}
