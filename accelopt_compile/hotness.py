"""Which regions are worth a search: how much time each could save at most, from bytes, flops and the machine's speed."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from accelopt_compile.family import PRODUCTS
from accelopt_compile.records import Binding, Ref, Workload, bytes_of, refs_of
from accelopt_compile.signature import Signed

_FREE = ("aten.reshape.", "aten.permute.", "aten.expand.", "aten.slice.", "aten.select.", "aten.full.", "prims.iota.")
_COSTLY = ("exp", "log", "tanh", "erf", "sin", "cos", "pow", "sigmoid", "rsqrt", "sqrt", "div")
_FLOPS_OF_A_COSTLY_OP = 10
_PICKERS = ("aten.embedding.", "aten.gather.", "aten.index.", "aten.index_select.")
"""Calls that read as much of their first operand as they return."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the machine does with all threads of torch: bytes and float32 operations per second."""

    bandwidth_bytes_s: float
    peak_flops_s: float


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Static cost of one region, `count` times over. `seconds_estimate` is the time of its calls one after another;
    `gain_bound_s` what remains of it above the roofline of one fused kernel: the most that a kernel could save."""

    signed: Signed
    count: int
    bytes_moved: int
    unfused_bytes: int
    flops: int
    seconds_estimate: float
    gain_bound_s: float


def rank(regions: Iterable[tuple[Signed, int]], machine: Machine | None = None) -> list[Cost]:
    """The regions with their counts, the largest gain bound first. Measures the machine when it is not given."""
    machine = machine or measure()
    costs = [_cost(signed, count, machine) for signed, count in regions]
    return sorted(costs, key=lambda c: (-c.gain_bound_s, c.signed.workload.digest))


def measure() -> Machine:
    """Bandwidth of an add of tensors beyond the caches, peak of a matrix product; about 0.2 s. The caller stores it. A fork of
    the process measures on one thread: an OpenMP pool does not survive the fork, and the first to ask for it hangs."""
    import torch

    threads = torch.get_num_threads()
    if threads == 1 or not _forked():
        return _measured()
    torch.set_num_threads(1)
    try:
        return _measured()
    finally:
        torch.set_num_threads(threads)


_IMPORTED_BY = os.getpid()
_FORK_WITHOUT_EXEC = 0x40
"""Linux's PF_FORKNOEXEC, in the flags of /proc/self/stat: also where this module was imported after the fork."""


def _forked() -> bool:
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return bool(int(fields[6]) & _FORK_WITHOUT_EXEC)
    return os.getpid() != _IMPORTED_BY


def _measured() -> Machine:
    import torch

    a = torch.ones(8 << 20)
    out = torch.empty_like(a)
    seconds = _best(lambda: torch.add(a, 1.0, out=out), 3)
    m = torch.ones(768, 768)
    product = torch.empty_like(m)
    flops = 2 * 768**3 / _best(lambda: torch.mm(m, m, out=product), 5)
    return Machine(bandwidth_bytes_s=2 * a.numel() * 4 / seconds, peak_flops_s=flops)


def _best(call: object, times: int) -> float:
    assert callable(call)
    call()
    best = math.inf
    for _ in range(times):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def _cost(signed: Signed, count: int, machine: Machine) -> Cost:
    w, binding = signed.workload, signed.binding
    moved = _io_bytes(w, binding)
    unfused = sum(_node_bytes(w, i, binding) for i in range(len(w.nodes)))
    unfused = max(unfused, moved)
    flops = sum(_node_flops(w, i, binding) for i in range(len(w.nodes)))
    now = max(unfused / machine.bandwidth_bytes_s, flops / machine.peak_flops_s)
    best = max(moved / machine.bandwidth_bytes_s, flops / machine.peak_flops_s)
    return Cost(
        signed=signed,
        count=count,
        bytes_moved=count * moved,
        unfused_bytes=count * unfused,
        flops=count * flops,
        seconds_estimate=count * now,
        gain_bound_s=count * (now - best),
    )


def _io_bytes(w: Workload, binding: Binding) -> int:
    """Each input once (of a table, the rows that are read), each output once."""
    rows: dict[int, int] = {}
    for node in w.nodes:
        if node.op.startswith(_PICKERS) and isinstance(node.args[0], Ref) and node.args[0].kind == "i":
            rows[node.args[0].index] = rows.get(node.args[0].index, 0) + bytes_of(node.outputs[0], binding)
    inputs = sum(min(bytes_of(spec, binding), rows.get(i, 1 << 62)) for i, spec in enumerate(w.inputs))
    return inputs + sum(bytes_of(spec, binding) for spec in w.output_specs)


def _node_bytes(w: Workload, index: int, binding: Mapping[str, int]) -> int:
    node = w.nodes[index]
    if node.op.startswith(_FREE):
        return 0
    outputs = sum(bytes_of(spec, binding) for spec in node.outputs)
    refs = list(dict.fromkeys(refs_of((*node.args, *(v for _, v in node.kwargs)))))
    if node.op.startswith(_PICKERS):
        return 2 * outputs + sum(bytes_of(w.spec_of(r), binding) for r in refs[1:])
    return outputs + sum(bytes_of(w.spec_of(r), binding) for r in refs)


def _node_flops(w: Workload, index: int, binding: Mapping[str, int]) -> int:
    node = w.nodes[index]
    if node.op.startswith((*_FREE, *_PICKERS)):
        return 0
    name = node.op.split(".")[1]
    if name.startswith("_scaled_dot_product"):
        first, products = (1, 5) if name.endswith("_backward") else (0, 2)
        q, k = (w.bound_shape(w.spec_of(r), binding) for r in refs_of(node.args)[first : first + 2])
        return 2 * products * math.prod(q) * k[2]
    refs = refs_of(node.args)
    if name in PRODUCTS:
        return 2 * math.prod(w.bound_shape(node.outputs[0], binding)) * w.bound_shape(w.spec_of(refs[-1]), binding)[-2]
    elements = max((math.prod(w.bound_shape(s, binding)) for s in (*node.outputs, *(w.spec_of(r) for r in refs))), default=0)
    return elements * (_FLOPS_OF_A_COSTLY_OP if name in _COSTLY else 1)
