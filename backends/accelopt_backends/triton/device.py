"""A device that is here: what it is, and kernels launched on it.

A call walks the program and launches on the current stream of the current device; it never waits for the device, and
memory comes from the caching allocator, so that graphs can capture it once every specialisation that it needs was made by a
call outside the capture. Behind walls a process opens the device before they rise (`attached`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from accelopt_backends.base import Attached, Kernel
from accelopt_backends.triton.arithmetic import evaluate
from accelopt_backends.triton.binding import Bound, known_at_build
from accelopt_backends.triton.source import Launch, Scratch, parse
from accelopt_backends.triton.targets import Target, nearest
from accelopt_backends.triton.walking import Grid, chosen, known, walk
from accelopt_compile.records import Artifact

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


_OPENS = (
    "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", "/dev/nvidia-caps", "/dev/kfd",
    "/dev/dri",
)  # fmt: skip
_READS = (
    "/proc/driver/nvidia", "/proc/devices", "/proc/modules", "/sys/module", "/sys/bus/pci", "/sys/devices", "/sys/class/kfd",
    "/sys/class/drm", "/run/nvidia-persistenced", "/etc/nvidia",
)  # fmt: skip
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_HOME",
    "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "TRITON_PTXAS_PATH", "TRITON_LIBCUDA_PATH",
)  # fmt: skip


def attached() -> Attached:
    """What a process behind walls needs of the driver's files. A launch of a new specialisation compiles (`_Launchable`)."""
    numbered = sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*"))
    return Attached(driver="cuda", opens=(*numbered, *_OPENS), reads=_READS, variables=_VARIABLES, compiles=True)


Specialised = tuple[bool, ...]
"""For each parameter of a device function, whether this launch's value is divisible by 16 (False for constants)."""


def specialised(values: Sequence[int], types: Sequence[str]) -> Specialised:
    """What the compiler may assume of these values: addresses and integers alike."""
    return tuple(kind != "constexpr" and value % ALIGNED == 0 for value, kind in zip(values, types, strict=True))


def load(artifact: Artifact) -> Kernel:
    """The kernel at `artifact.path` over device addresses. Raises OSError where it cannot be read, ToolchainFailed where it
    cannot be built."""
    import torch

    from accelopt_backends.triton import toolchain
    from accelopt_backends.triton.imported import functions_of, module_of

    program = parse(Path(artifact.path).read_text())
    functions = functions_of(module_of(artifact.path, interpreted=False))
    launches = {
        id(s): _Launchable(
            s, functions[s.function], toolchain.bound_to(s, functions[s.function], program), known_at_build(program, settled)
        )
        for settled in [chosen(program, artifact.tunables)]
        for s in program.steps
        if isinstance(s, Launch)
    }

    def call(pointers: Sequence[int], sizes: Sequence[int], threads: int) -> int:
        names = known(program, artifact.tunables, sizes)
        addresses = {name: int(p) for (name, _), p in zip(program.tensors, pointers, strict=True)}
        device = torch.cuda.current_device()
        stream = torch.cuda.current_stream(device).cuda_stream
        kept = []  # what the stream still reads when this returns goes back to the allocator of the same stream, in order

        def allocate(step: Scratch, size: int) -> None:
            make = torch.zeros if step.zeroed else torch.empty
            kept.append(make(max(1, size), dtype=torch.uint8, device=f"cuda:{device}"))
            addresses[step.name] = kept[-1].data_ptr()

        def launch(step: Launch, grid: Grid) -> None:
            launches[id(step)].run(device, stream, grid, names, addresses)

        return walk(program, names, allocate=allocate, launch=launch)

    return call


class _Launchable:
    """A launch with its compiled kernels, one for each device and specialisation that was met."""

    def __init__(self, launch: Launch, function: Any, bound: Bound, settled: Mapping[str, int]) -> None:
        self.launch, self.function, self.bound, self.settled = launch, function, bound, settled
        self.compiled: dict[tuple[int, Specialised], Any] = {}

    def run(self, device: int, stream: int, grid: Grid, names: Mapping[str, int], addresses: Mapping[str, int]) -> None:
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
        options = toolchain.options_of(self.launch, self.settled, target)
        return toolchain.compiled(self.launch, self.function, self.bound, self.settled, options, target, divisible)
