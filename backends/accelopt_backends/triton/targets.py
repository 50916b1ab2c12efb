"""The devices that kernels are built for: their names, and the limits that their toolchains and schedulers hold a kernel to.

What a device does in a second is in roofline.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT = "triton-cuda-sm_90"
MOST_THREADS = 1024
"""Threads of one program, on every target."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """`shared_bytes` is what one program may take, `shared_total` and `registers` (of 4 bytes) what a multiprocessor has;
    `register_step` is the granule in which a thread's registers are given out; `most_registers` a thread's limit."""

    name: str
    kind: str
    arch: str
    warp: int
    multiprocessors: int
    shared_bytes: int
    shared_total: int
    shared_reserved: int
    registers: int
    register_step: int
    most_registers: int
    most_threads: int
    most_programs: int
    clusters: bool

    @property
    def capability(self) -> int | str:
        """What the compiler calls the arch: 90, or "gfx942"."""
        return int(self.arch.removeprefix("sm_")) if self.kind == "cuda" else self.arch


def _cuda(arch: str, multiprocessors: int, shared_kib: int, *, clusters: bool) -> Target:
    # Programming guide, "technical specifications per compute capability": 64 Ki registers, 2048 threads and 32 blocks a
    # multiprocessor; a block may have 1 KiB of shared memory less than the multiprocessor, which it needs itself.
    return Target(
        name=f"triton-cuda-{arch}",
        kind="cuda",
        arch=arch,
        warp=32,
        multiprocessors=multiprocessors,
        shared_bytes=(shared_kib - 1) << 10,
        shared_total=shared_kib << 10,
        shared_reserved=1 << 10,
        registers=1 << 16,
        register_step=8,
        most_registers=255,
        most_threads=2048,
        most_programs=32,
        clusters=clusters,
    )


TARGETS = {
    t.name: t
    for t in (
        _cuda("sm_80", 108, 164, clusters=False),
        _cuda("sm_90", 132, 228, clusters=True),
        _cuda("sm_100", 148, 228, clusters=True),
        # CDNA 3 instruction set manual and white paper: 64 KiB of local data share and 4 x 128 KiB of vector registers a
        # compute unit, 512 a lane at most, given out in eights; 8 waves a SIMD.
        Target(
            name="triton-hip-gfx942",
            kind="hip",
            arch="gfx942",
            warp=64,
            multiprocessors=304,
            shared_bytes=64 << 10,
            shared_total=64 << 10,
            shared_reserved=0,
            registers=1 << 17,
            register_step=8,
            most_registers=512,
            most_threads=2048,
            most_programs=32,
            clusters=False,
        ),
    )
}


_SMALLER = {"sm_86": 100, "sm_89": 100, "sm_120": 100}
"""KiB of shared memory of a multiprocessor where it is less than the older arch of the table has; same source."""


def target_named(name: str) -> Target:
    """The target of this name, or of its arch alone ("sm_90"). Raises ValueError."""
    for target in TARGETS.values():
        if name in (target.name, target.arch, f"{target.kind}-{target.arch}"):
            return target
    named = re.fullmatch(r"triton-cuda-(sm_\d+)", name)
    if named is not None and _number(named[1]) >= 80:
        return nearest("cuda", named[1], {})
    raise ValueError(f"no target {name!r}; there are {', '.join(TARGETS)}")


def nearest(kind: str, arch: str, properties: dict[str, int]) -> Target:
    """The target of a device that is here: `kind` and `arch` as its driver says, e.g. ("cuda", "sm_89"). An arch that is not
    in the table gets the limits that the driver tells: `multiprocessors` and `shared_bytes`."""
    named = TARGETS.get(f"triton-{kind}-{arch}")
    base = named or TARGETS["triton-hip-gfx942" if kind == "hip" else "triton-cuda-sm_80"]
    held = (_SMALLER[arch] - 1) << 10 if arch in _SMALLER else base.shared_bytes
    shared = properties.get("shared_bytes", held)
    return Target(
        **{
            **vars(base),
            "name": f"triton-{kind}-{arch}",
            "arch": arch,
            "multiprocessors": properties.get("multiprocessors", base.multiprocessors),
            "shared_bytes": shared,
            "shared_total": base.shared_total if named else shared + base.shared_reserved,
            "clusters": base.clusters or (kind == "cuda" and _number(arch) >= 90),
        }
    )


def _number(arch: str) -> int:
    found = re.search(r"\d+", arch)
    return int(found[0]) if found else 0
