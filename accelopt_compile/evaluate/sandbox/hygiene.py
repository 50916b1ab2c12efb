"""What a runner does around each call so that what a kernel should not touch or leave behind shows.

Through libc, where it has what is needed; elsewhere a step is left out. The right result never depends on these.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Sequence

_LIBC = ctypes.CDLL(None, use_errno=True)
_PERTURB = -6
_NONE, _READ, _WRITE = 0, 1, 2


def rubbish_in_memory(on: bool) -> None:
    """Whether freed blocks are overwritten and new ones hold rubbish. Not all the time: a kernel that keeps something in
    a freed block must also find it there, and be wrong for it."""
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_PERTURB, 0xA5 if on else 0)


def threads() -> int:
    """Threads of this process; 0 where the system does not list them."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


class Pages:
    """Access to the pages of the arena at `base`."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._closed: list[tuple[int, int]] = []

    def close(self, fences: Sequence[Sequence[int]], readonly: Sequence[Sequence[int]]) -> None:
        """No access to `fences`, none but reading to `readonly` (each offset, bytes), all access to the rest."""
        for offset, count in self._closed:
            self._protect(offset, count, _READ | _WRITE)
        self._closed = [(int(offset), int(count)) for offset, count in (*readonly, *fences)]
        for offset, count in readonly:
            self._protect(offset, count, _READ)
        for offset, count in fences:
            self._protect(offset, count, _NONE)

    def _protect(self, offset: int, count: int, access: int) -> None:
        _LIBC.mprotect(ctypes.c_void_p(self._base + offset), ctypes.c_size_t(count), access)


def float_mode() -> str:
    """What the floating-point mode does wrong: "" when it rounds to nearest and keeps subnormal numbers."""
    one, half_ulp, smallest = math.ldexp(1.0, 0), math.ldexp(1.0, -53), math.ldexp(1.0, -1022)  # folded, if written out
    if smallest / math.ldexp(1.0, 1) == 0.0:
        return "subnormal results are flushed to zero"
    if math.ldexp(1.0, -1074) * math.ldexp(1.0, 600) == 0.0:
        return "subnormal operands are taken for zero"
    if one + half_ulp != one or -one - half_ulp != -one or (one + 2 * half_ulp) + half_ulp == one + 2 * half_ulp:
        return "rounding is not to nearest"
    return ""
