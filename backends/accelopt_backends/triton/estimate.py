"""An estimate of what a built kernel takes on a device that is not here. It ranks candidates; it is never a timing.

For each launch: the bytes that its text touches, what of the device its grid and its occupancy keep busy, its products, and
the instructions that must be issued at least. What it does not see: trip counts of loops, caches beyond a second reading of the
same data, conflicts, clocks. Known to be off by a factor of two, either way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelopt_backends.loops.work import factor_of, looked_up, product_flops
from accelopt_backends.triton.binding import launches
from accelopt_backends.triton.peaks import Peaks, published
from accelopt_backends.triton.roofline import product_seconds
from accelopt_backends.triton.source import Launch, Program, Scratch, parse
from accelopt_backends.triton.targets import Target
from accelopt_backends.triton.traffic import readings
from accelopt_backends.triton.walking import Grid, chosen, known, walk
from accelopt_compile.records import ITEM_BYTES, Artifact, Binding, Workload, bytes_of, evaluate_dim

LATENCY_S = 6e-7
"""From asking for device memory to having it: 500 to 800 ns in published microbenchmarks of these devices."""

PRODUCT_SHARE = 0.75
"""Of the peak of products that good kernels reach on large ones; published results lie between 0.6 and 0.85."""

UNGROUPED_SHARE = 0.6
"""Of that, what matrix instructions of single warps reach where the arch has some for groups of warps (published: 0.63)."""

ISSUES = 4
"""Instructions that a multiprocessor starts in a cycle, at most."""


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """Programs and warps that a multiprocessor holds at once, and what limits them: "registers", "shared memory", "threads"
    or "programs"."""

    programs: int
    warps: int
    share: float
    limit: str


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Seconds, what binds most of them, and why, in lines."""

    seconds: float
    bound: str
    notes: tuple[str, ...]


def occupancy(features: Mapping[str, Any], target: Target) -> Occupancy:
    """Of a launch whose `features` tell its threads, registers a thread, and shared bytes."""
    threads = max(1, int(features.get("threads", 128)))
    step = target.register_step
    registers = -(-max(1, int(features.get("registers", 32))) // step) * step
    shared = int(features.get("shared_bytes", 0)) + target.shared_reserved
    fits = {
        "threads": target.most_threads // threads,
        "registers": target.registers // (registers * threads),
        "shared memory": target.shared_total // shared if shared else target.most_programs,
        "programs": target.most_programs,
    }
    limit = min(fits, key=lambda what: fits[what])
    programs = max(1, fits[limit])  # it was built, so one fits
    warps = programs * threads // target.warp
    return Occupancy(programs=programs, warps=warps, share=min(1.0, programs * threads / target.most_threads), limit=limit)


def estimate(artifact: Artifact, workload: Workload, binding: Binding, target: Target) -> Estimate:
    """Of a built kernel at a binding, for its target. Raises OSError and SourceError where the artifact cannot be read."""
    text = Path(artifact.path).read_text()
    program = parse(text)
    built = dict(
        zip(map(id, launches(program, chosen(program, artifact.tunables))), artifact.features.get("launches", ()), strict=False)
    )
    moved = _tensor_bytes(program, workload, binding)
    peak = published(target)
    shares = _product_shares(program, built)
    if any(about.get("tensor") for about in built.values()):
        products = product_seconds(workload, binding, peak)
    else:
        products = product_flops(workload, binding).total() / peak.plain
    parts: list[Estimate] = []

    def allocate(step: Scratch, size: int) -> None:
        moved[step.name] = size

    def launch(step: Launch, grid: Grid) -> None:
        about, programs, share = built.get(id(step), {}), math.prod(grid), shares.get(id(step), 0.0)
        tiles = share * tile_bytes(workload, binding, programs)
        parts.append(_one(step, programs, about, readings(text, step, moved), tiles, products * share, peak, target))

    sizes = [binding[name] for name in workload.symbols]
    walk(program, known(program, artifact.tunables, sizes), allocate=allocate, launch=launch)
    total = sum(p.seconds for p in parts) + peak.launch_s * len(parts)
    longest = max(parts, key=lambda p: p.seconds, default=None)
    bound = "launch" if longest is None or peak.launch_s * len(parts) > total / 2 else longest.bound
    notes = (f"estimate from {peak.source}", *(note for p in parts for note in p.notes))
    return Estimate(seconds=max(total, 1e-7), bound=bound, notes=notes)


def _tensor_bytes(program: Program, workload: Workload, binding: Binding) -> dict[str, int]:
    """Bytes by the program's names; of a table that is only looked up, no more than comes out."""
    specs = [*workload.inputs, *workload.output_specs]
    out = sum(bytes_of(spec, binding) for spec in workload.output_specs)
    tables = looked_up(workload)
    return {
        name: min(bytes_of(spec, binding), out) if k in tables else bytes_of(spec, binding)
        for k, ((name, _), spec) in enumerate(zip(program.tensors, specs, strict=False))
    }


def _product_shares(program: Program, built: Mapping[int, Mapping[str, Any]]) -> dict[int, float]:
    """Which launch does the products: those with matrix instructions, else those that call `dot` in whatever way: all."""
    weights = {key: int(about.get("tensor", 0)) for key, about in built.items()}
    if not any(weights.values()):
        weights = {id(s): 1 for s in program.steps if isinstance(s, Launch)}
    return {key: weight / sum(weights.values()) for key, weight in weights.items()}


def tile_bytes(workload: Workload, binding: Binding, programs: int) -> float:
    """Bytes that the products' factors are read with by all programs, each making a square share of the result."""
    total = 0.0
    for node in workload.nodes:
        factor = factor_of(workload, node)
        if factor is not None:
            made = math.prod(evaluate_dim(d, binding) for d in node.outputs[0].shape)
            depth = evaluate_dim(factor.shape[-1], binding) * ITEM_BYTES[factor.dtype]
            total += 2 * depth * math.sqrt(made * programs)
    return total


# ---------------------------------------------------------------- one launch


def _one(
    launch: Launch,
    programs: int,
    about: Mapping[str, Any],
    traffic: Sequence[tuple[str, int, int]],
    tiles: float,
    products_s: float,
    peak: Peaks,
    target: Target,
) -> Estimate:
    held = occupancy(about, target)
    busy = min(1.0, programs / target.multiprocessors)
    flying = _in_flight(about, held, target)
    # One multiprocessor takes at most about twice its even share of the bandwidth, so a small grid leaves some unused.
    rate = peak.memory * min(1.0, 2 * busy, max(0.05, flying * target.multiprocessors * busy / (peak.memory * LATENCY_S)))
    first = sum(size for _, size, _ in traffic)
    again = sum(size * (times - 1) for _, size, times in traffic) + max(0.0, tiles - first)
    spilled = 2 * int(about.get("spill_bytes", 0)) * int(about.get("threads", 128)) * programs
    issued = int(about.get("instructions", 0)) * programs * int(about.get("num_warps", 4))
    waves = math.ceil(programs / (target.multiprocessors * held.programs))
    tail = waves * target.multiprocessors * held.programs / programs if programs > target.multiprocessors else 1.0
    ungrouped = target.clusters and about.get("tensor") and not about.get("grouped")
    reached_share = PRODUCT_SHARE * (UNGROUPED_SHARE if ungrouped else 1.0)
    parts = {
        "memory": first / rate + (again + spilled) / peak.cache,
        "compute": products_s / (reached_share * busy) * min(tail, 2.0),
        "issue": issued / (ISSUES * peak.clock * target.multiprocessors * busy),
        "latency": waves * LATENCY_S,
    }
    bound = max(parts, key=lambda what: parts[what])
    notes = [
        f"{launch.function}: {programs} programs, {held.programs} a multiprocessor (limited by {held.limit}, "
        f"{held.share:.0%} of its threads), {waves} waves; {first / 1e6:.2f} MB once, {again / 1e6:.2f} MB again; {bound} bound"
    ]
    if spilled:
        notes.append(f"{launch.function}: spills {about['spill_bytes']} bytes a thread")
    if busy < 1.0:
        notes.append(f"{launch.function}: {programs} programs leave {1 - busy:.0%} of the multiprocessors idle")
    return Estimate(seconds=parts[bound], bound=bound, notes=tuple(notes))


def _in_flight(about: Mapping[str, Any], held: Occupancy, target: Target) -> float:
    """Bytes that a multiprocessor has asked for at one time, at most: each thread's loads, 16 bytes where they are wide."""
    loads, wide = int(about.get("global_loads", 1)), int(about.get("vector_loads", 0))
    copies = int(about.get("async_copies", 0))
    each = 16 * min(4, wide + copies) + 4 * min(4, max(0, loads - wide))
    return held.warps * target.warp * max(4, each)


def described(found: Estimate) -> str:
    """One estimate in lines."""
    return "\n".join((f"estimate {1e6 * found.seconds:.1f} us, {found.bound} bound", *found.notes))
