"""What one candidate may use up before it is rejected."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

LEAST_MEMORY = 8 << 30


def memory_limit(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Half of the machine's memory, at least 8 GiB (a golden answer over a table of 32,000 tokens takes a quarter of that), and
    no more than three quarters of what the control group may have: where that ends, a system may kill all that is in it."""
    machine = max(LEAST_MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    return min([machine, *(limit * 3 // 4 for limit, _ in _groups(proc / "self" / "cgroup", groups))])


def free_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> float:
    """Bytes that processes may still take, by the machine and by the control group that this one is in; infinite where nobody
    says. Files in the page cache count as free."""
    left = (limit - used for limit, used in _groups(proc / "self" / "cgroup", groups))
    return min([_meminfo(proc / "meminfo"), *left])


def _meminfo(file: Path) -> float:
    with contextlib.suppress(OSError, ValueError, LookupError):
        fields = dict(line.split(":", 1) for line in file.read_text().splitlines())
        return float(fields["MemAvailable"].split()[0]) * 1024
    return math.inf


_GROUP_FILES = {
    "": ("memory.max", "memory.current", ""),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}
"""Limit, use, and how the names begin of what of that can be dropped; by the folder of version 2 and of version 1."""


def _groups(membership: Path, root: Path) -> Iterator[tuple[int, int]]:
    """Bytes that a group may have and those that cannot be dropped of what it has, from this process's group up to the outermost
    that is seen; none for groups without a limit."""
    with contextlib.suppress(OSError, ValueError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            folder = "memory" if controllers else ""
            limit, use, start = _GROUP_FILES[folder]
            inner = PurePosixPath(folder, path.lstrip("/"))
            for part in (inner, *inner.parents):
                with contextlib.suppress(OSError, ValueError, KeyError):
                    group = root / part
                    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                    droppable = sum(int(stat[f"{start}{age}_file"]) for age in ("inactive", "active"))
                    used = int((group / use).read_text()) - droppable
                    yield int((group / limit).read_text()), used


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds of wall clock per stage, bytes per resource. `call_s` is for one call of the kernel, on top of what eager
    took for all of a case's, times 20; `turn_s` for another process to be done with the device; `cpu_s` is
    processor time of a whole process."""

    start_s: float = 60.0
    build_s: float = 60.0
    call_s: float = 5.0
    verify_s: float = 120.0
    timing_s: float = 60.0
    baseline_s: float = 120.0
    turn_s: float = 120.0
    cpu_s: int = 1200
    memory_bytes: int = field(default_factory=memory_limit)
    file_bytes: int = 1 << 30
    open_files: int = 256
    output_bytes: int = 64 << 10
    flood_bytes: int = 64 << 20


def attached_limits() -> Limits:
    """For a device whose kernels may be compiled for their arguments when they are first called, a second or two a launch."""
    return Limits(call_s=60.0, timing_s=180.0)
