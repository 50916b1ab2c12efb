"""The least time a workload could take here: bytes moved once over measured bandwidth, flops over measured peak.

Measured by two small kernels, once per process (about 0.2 s). Bandwidth depends on what holds the data: it is taken on
several sizes, and a workload gets that of the largest which is no larger than all it touches. The bound is then optimistic,
never too strict: stores cost more than the loads that are measured.
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache

from accelopt_backends.base import Roofline
from accelopt_backends.cpp.toolchain import compile_shared
from accelopt_backends.loops.work import bytes_touched, product_flops
from accelopt_compile.errors import ToolchainFailed, ToolchainMissing
from accelopt_compile.records import Binding, Workload

_PROBE = """
typedef float v __attribute__((vector_size(64), aligned(4), may_alias));
extern "C" float read_all(const float* p, long n, long again) {
  v a[8] = {};
  for (long k = 0; k < again; ++k)
    for (long i = 0; i + 128 <= n; i += 128) for (int u = 0; u < 8; ++u) a[u] += *(const v*)(p + i + 16 * u);
  float s = 0; for (int u = 0; u < 8; ++u) for (int k = 0; k < 16; ++k) s += a[u][k];
  return s;
}
extern "C" float multiply_add(const float* p, long n, long again) {
  v a[12]; for (int u = 0; u < 12; ++u) a[u] = *(const v*)p;
  v x = *(const v*)(p + 16), y = *(const v*)(p + 32);
  for (long i = 0; i < n; ++i) for (int u = 0; u < 12; ++u) a[u] = a[u] * x + y;
  float s = 0; for (int u = 0; u < 12; ++u) s += a[u][0];
  return s;
}
"""
SIZES = tuple(kib << 10 for kib in (16, 256, 4096, 32768, 131072))
"""Bytes on which bandwidth is measured: about what L1, L2, and shares of the last level hold, and more than most hold."""


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """Of one thread: bytes a second by the bytes that are read again and again, ascending; float32 flops a second."""

    bandwidths: tuple[tuple[int, float], ...]
    flops: float

    def bandwidth(self, touched: float) -> float:
        """Bytes a second at most for a workload that touches so many bytes."""
        return [rate for size, rate in self.bandwidths if size <= max(touched, self.bandwidths[0][0])][-1]

    @property
    def memory(self) -> float:
        """Bytes a second from memory."""
        return self.bandwidths[-1][1]


_FALLBACK = Peaks(bandwidths=((SIZES[0], 100e9), (SIZES[-1], 20e9)), flops=100e9)


@lru_cache(maxsize=1)
def peaks() -> Peaks:
    """What this machine does: the best of three short runs each."""
    try:
        with tempfile.TemporaryDirectory(prefix="accelopt-peaks-") as folder:
            path, _ = compile_shared(_PROBE, tunables={}, workdir=folder, name="peaks", link=("-lm",))
            library = ctypes.CDLL(str(path))
    except (ToolchainFailed, ToolchainMissing, OSError):
        return _FALLBACK
    memory = (ctypes.c_float * (SIZES[-1] // 4))()
    turns = 1_000_000
    rates = []
    for size in SIZES:
        again = max(1, (8 << 20) // size)
        taken = min(_timed(library.read_all, memory, size // 4, again) for _ in range(4))
        rates.append((size, size * again / taken))
    adding = min(_timed(library.multiply_add, memory, turns, 1) for _ in range(3))
    return Peaks(bandwidths=tuple(rates), flops=2 * 12 * 16 * turns / adding)


def _timed(function: ctypes._NamedFuncPointer, memory: ctypes.Array[ctypes.c_float], n: int, again: int) -> float:
    function.restype = ctypes.c_float
    start = time.perf_counter()
    function(memory, ctypes.c_long(n), ctypes.c_long(again))
    return time.perf_counter() - start


def roofline(workload: Workload, binding: Binding, threads: int) -> Roofline:
    """Seconds that neither memory nor arithmetic can beat, and which of them binds."""
    peak = peaks()
    touched = bytes_touched(workload, binding)
    memory = touched / (peak.bandwidth(touched) * threads)
    compute = product_flops(workload, binding).total() / (peak.flops * threads)
    return Roofline(seconds=max(memory, compute), bound="memory" if memory >= compute else "compute")
