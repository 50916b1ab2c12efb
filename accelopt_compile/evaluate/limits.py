"""What one candidate may use up before it is rejected."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

LEAST_MEMORY = 8 << 30


def memory_limit() -> int:
    """Half of the machine's memory, at least 8 GiB: a golden answer over a table of 32,000 tokens takes a quarter of that."""
    return max(LEAST_MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


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
