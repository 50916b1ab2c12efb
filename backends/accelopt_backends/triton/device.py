"""A device that is here: what it is, and kernels launched on it.

A call walks the program and launches on the current stream of the current device; it never waits for the device, and
memory comes from the caching allocator, so that graphs can capture it once every specialisation that it needs was made by a
call outside the capture. Not covered: a process behind the sandbox's walls, which may open no device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from accelopt_backends.base import Kernel
from accelopt_backends.triton.binding import Bound, known_at_build
from accelopt_backends.triton.source import INTERPRETED, POINTERS, Assign, Launch, Leave, Program, Scratch, evaluate, parse
from accelopt_backends.triton.targets import Target, nearest
from accelopt_compile.records import ITEM_BYTES, Artifact

ALIGNED = 16
"""Bytes, and what integers are divided by: what the compiler makes wide loads from."""


@lru_cache(maxsize=1)
def present() -> Target | None:
    """The target of this process's device, None where there is none."""
    import torch

    if not torch.cuda.is_available():
        return None
    about = torch.cuda.get_device_properties(torch.cuda.current_device())
    kind = "hip" if torch.version.hip else "cuda"
    arch = about.gcnArchName.split(":")[0] if kind == "hip" else f"sm_{about.major}{about.minor}"
    shared = int(getattr(about, "shared_memory_per_block_optin", 0))
    figures = {"multiprocessors": int(about.multi_processor_count)} | ({"shared_bytes": shared} if shared else {})
    return nearest(kind, arch, figures)


def environment() -> dict[str, str]:
    """What a record keeps of the device."""
    import torch

    about = torch.cuda.get_device_properties(torch.cuda.current_device())
    runtime = torch.version.hip or torch.version.cuda or ""
    return {"device": about.name, "multiprocessors": str(about.multi_processor_count), "device_runtime": str(runtime)}


Specialised = tuple[bool, ...]
"""For each parameter of a device function, whether this launch's value is divisible by 16 (False for constants)."""


def specialised(values: Sequence[int], types: Sequence[str]) -> Specialised:
    """What the compiler may assume of these values: addresses and integers alike."""
    return tuple(kind != "constexpr" and value % ALIGNED == 0 for value, kind in zip(values, types, strict=True))


def load(artifact: Artifact) -> Kernel:
    """The kernel at `artifact.path` over device addresses. Raises OSError where it cannot be read, ToolchainFailed where it
    cannot be built."""
    from accelopt_backends.triton import toolchain
    from accelopt_backends.triton.imported import functions_of, module_of

    program = parse(Path(artifact.path).read_text())
    functions = functions_of(module_of(artifact.path, interpreted=False))
    chosen = {name: values[0] for name, values in program.tunables.items()} | dict(artifact.tunables)
    launches = {
        id(s): _Launchable(s, functions[s.function], toolchain.bound_to(s, functions[s.function], program), program, chosen)
        for s in program.steps
        if isinstance(s, Launch)
    }

    def call(pointers: Sequence[int], sizes: Sequence[int], threads: int) -> int:
        names = dict(chosen) | dict(zip(program.symbols, sizes, strict=True)) | {INTERPRETED: 0}
        addresses = {name: int(p) for (name, _), p in zip(program.tensors, pointers, strict=True)}
        return _walk(program, launches, names, addresses)

    return call


def _walk(program: Program, launches: Mapping[int, _Launchable], names: dict[str, int], addresses: dict[str, int]) -> int:
    import torch

    device = torch.cuda.current_device()
    stream = torch.cuda.current_stream(device).cuda_stream
    kept = []  # scratch that the stream still reads when this returns goes back to its own allocator: same stream, same order
    for step in program.steps:
        match step:
            case Assign():
                names[step.name] = evaluate(step.value, names)
            case Scratch():
                size = max(1, evaluate(step.elements, names)) * ITEM_BYTES[POINTERS[step.dtype]]
                make = torch.zeros if step.zeroed else torch.empty
                kept.append(make(size, dtype=torch.uint8, device=f"cuda:{device}"))
                addresses[step.name] = kept[-1].data_ptr()
            case Leave():
                if evaluate(step.condition, names):
                    return step.status
            case Launch():
                grid = [evaluate(axis, names) for axis in step.grid]
                if min(grid) > 0:
                    launches[id(step)].run(device, stream, (*grid, 1, 1)[:3], names, addresses)
    return 0


class _Launchable:
    """A launch with its compiled kernels, one for each device and specialisation that was met."""

    def __init__(self, launch: Launch, function: Any, bound: Bound, program: Program, tunables: Mapping[str, int]) -> None:
        self.launch, self.function, self.bound = launch, function, bound
        self.known = known_at_build(program, tunables)
        self.compiled: dict[tuple[int, Specialised], Any] = {}

    def run(
        self, device: int, stream: int, grid: tuple[int, ...], names: Mapping[str, int], addresses: Mapping[str, int]
    ) -> None:
        """Put the launch on the stream. The first of a specialisation compiles, which takes a second."""
        values = [
            evaluate(value, names) if kind in ("i64", "constexpr") else addresses[value.id]  # type: ignore[attr-defined]
            for value, kind in zip(self.bound.values, self.bound.types, strict=True)
        ]
        key = (device, specialised(values, self.bound.types))
        kernel = self.compiled.get(key)
        if kernel is None:
            kernel = self.compiled[key] = self._compile(key[1])
        kernel[grid](*values, stream=stream)

    def _compile(self, divisible: Specialised) -> Any:
        from accelopt_backends.triton import toolchain

        target = present()
        assert target is not None, "kernels are loaded for a device where there is one"
        options = toolchain.options_of(self.launch, self.known, target)
        return toolchain.compiled(self.launch, self.function, self.bound, self.known, options, target, divisible)
