"""Workloads around matrix products, cut by our own partitioner; the evaluator's verdict on kernels in the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from accelopt_backends.triton import TritonBackend, interpreter, matmul
from accelopt_compile.evaluate.buffers import arena_bytes
from accelopt_compile.evaluate.cases import Trial, trials
from accelopt_compile.evaluate.sandbox.arena import Arena
from accelopt_compile.evaluate.verifying import verify
from accelopt_compile.partition import partition
from accelopt_compile.records import Artifact, KernelSource, Rejected, Workload
from accelopt_compile.signature import sign
from tests.backends.seeds import Caller, Judge
from tests.regions.models import graph_of


def workload_of(function: Callable[..., Any], *args: torch.Tensor, dynamic: bool = False) -> tuple[Workload, dict[str, int]]:
    """The workload of the one region of `function` that holds a product, and its binding."""
    cut = partition(graph_of(function, *args, dynamic=dynamic), products=TritonBackend.products)
    signed = [sign(region) for region in cut.regions]
    (found,) = [s for s in signed if any("mm." in node.op for node in s.workload.nodes)]
    return found.workload, dict(found.binding)


def fault(
    source: KernelSource, workload: Workload, binding: Mapping[str, int], folder: Path, tried: list[Trial] | None = None
) -> str:
    """Why the evaluator's quick verification rejects the kernel in the interpreter; empty when it passes."""
    path = folder / "kernel.py"
    path.write_text(source.text)
    tried = trials(workload, binding, "quick", [11, 12], 1) if tried is None else tried
    kernel = interpreter.load(Artifact(path=str(path), source_digest=source.digest, tunables=source.defaults()))
    arena = Arena(arena_bytes(workload, [dict(t.case.binding) for t in tried]))
    before = torch.get_num_threads()
    try:
        found = verify(Judge(workload, arena), Caller(kernel, arena), tried)
    finally:
        arena.close()
        torch.set_num_threads(before)
    return f"{found.stage.value} | {found.reason} | {found.diagnosis}" if isinstance(found, Rejected) else ""


def verdict(function: Callable[..., Any], *args: torch.Tensor, folder: Path, **structure: str) -> str:
    """`fault` of the seed of the region that holds a product, with a structure."""
    workload, binding = workload_of(function, *args)
    assert matmul.matches(workload) is True, matmul.matches(workload)
    return fault(matmul.render(workload, structure), workload, binding, folder)


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """As Llama's layers spell it."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(F.linear(x, gate)) * F.linear(x, up)


def gated_in_one(x: torch.Tensor, both: torch.Tensor) -> torch.Tensor:
    gate, up = F.linear(x, both).chunk(2, -1)
    return F.silu(gate) * up


def int8_channels(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return F.linear(x, weight.to(x.dtype)) * scale


def int8_groups(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """weight [N, K] in int8, scale [N, K / group]."""
    groups = weight.view(*scale.shape, -1).to(x.dtype) * scale[:, :, None]
    return F.linear(x, groups.view(weight.shape))


def int4_groups(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """packed [N, K / 2]: two weights a byte, the low half first; scale and zero [N, K / group]."""
    weight = torch.stack((packed & 15, packed >> 4), -1).view(packed.shape[0], -1)
    groups = (weight.view(*scale.shape, -1).to(x.dtype) - zero[:, :, None]) * scale[:, :, None]
    return F.linear(x, groups.view(weight.shape))
