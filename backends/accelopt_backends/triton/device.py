"""A device that is here: what it is, and kernels launched on it."""

from __future__ import annotations

from functools import lru_cache

from accelopt_backends.base import Kernel
from accelopt_backends.triton.targets import Target, nearest
from accelopt_compile.records import Artifact


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
    driver = torch.version.hip or torch.version.cuda or ""
    return {"device": about.name, "multiprocessors": str(about.multi_processor_count), "device_runtime": str(driver)}


def load(artifact: Artifact) -> Kernel:
    raise OSError("not written yet")
