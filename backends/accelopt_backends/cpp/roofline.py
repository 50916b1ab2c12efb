"""The least time a workload could take here: bytes moved once over measured bandwidth, flops over measured peak.

Measured by small kernels in vectors of the processor's own width, once per process (about 0.4 s): wider ones spill, and an
AVX2 machine then seemed to read its L1 cache at a fifth of what it does. Bandwidth depends on what holds the data: it is taken on
several sizes, and a workload gets that of the largest which is no larger than all it touches. It also depends on what is done: a
core of a Zen 4 reads 18 GB/s from memory, and moves 29 where a third of it is written past the caches. Of reading alone, and of
reading two streams while one is written either way, the highest counts: the bound is optimistic, never too strict.
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
#if defined(__AVX512F__)
enum { W = 16 };
#elif defined(__AVX__)
enum { W = 8 };
#else
enum { W = 4 };
#endif
typedef float v __attribute__((vector_size(4 * W), aligned(4), may_alias));
extern "C" long width() { return W; }
extern "C" float read_all(const float* p, long n, long again) {
  v a[8] = {};
  for (long k = 0; k < again; ++k)
    for (long i = 0; i + 8 * W <= n; i += 8 * W) for (int u = 0; u < 8; ++u) a[u] += *(const v*)(p + i + W * u);
  float s = 0; for (int u = 0; u < 8; ++u) for (int k = 0; k < W; ++k) s += a[u][k];
  return s;
}
static inline void put_past(float* p, v x) {
#if defined(__AVX512F__) && !defined(__clang__)
  __builtin_ia32_movntps512(p, x);
#elif defined(__AVX__) && !defined(__clang__)
  __builtin_ia32_movntps256(p, x);
#else
  *(v*)p = x;
#endif
}
static inline void put(float* p, v x) { *(v*)p = x; }
#define BOTH_WAYS(NAME, PUT) \
  extern "C" float NAME(float* p, long n, long again) { \
    const long third = n / 3 / (8 * W) * (8 * W); \
    const float *a = p, *b = p + third; float* c = p + 2 * third; \
    for (long k = 0; k < again; ++k) \
      for (long i = 0; i < third; i += 4 * W) \
        for (int u = 0; u < 4; ++u) PUT(c + i + W * u, *(const v*)(a + i + W * u) + *(const v*)(b + i + W * u)); \
    return c[0]; \
  }
BOTH_WAYS(write_beside, put)
BOTH_WAYS(write_past, put_past)
extern "C" float multiply_add(const float* p, long n, long again) {
  v a[12]; for (int u = 0; u < 12; ++u) a[u] = *(const v*)p;
  v x = *(const v*)(p + W), y = *(const v*)(p + 2 * W);
  for (long i = 0; i < n; ++i) for (int u = 0; u < 12; ++u) a[u] = a[u] * x + y;
  float s = 0; for (int u = 0; u < 12; ++u) s += a[u][0];
  return s;
}
"""
SIZES = tuple(kib << 10 for kib in (16, 256, 4096, 32768, 131072))
"""Bytes on which bandwidth is measured: about what L1, L2, and shares of the last level hold, and more than most hold."""


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """Of one thread: bytes a second by the bytes that are gone through again and again, ascending; float32 flops a second."""

    bandwidths: tuple[tuple[int, float], ...]
    flops: float

    def bandwidth(self, touched: float) -> float:
        """Bytes a second at most for a workload that touches so many bytes."""
        return [rate for size, rate in self.bandwidths if size <= max(touched, self.bandwidths[0][0])][-1]

    @property
    def memory(self) -> float:
        """Bytes a second from and to memory."""
        return self.bandwidths[-1][1]


_FALLBACK = Peaks(bandwidths=((SIZES[0], 100e9), (SIZES[-1], 20e9)), flops=100e9)


_LINE = 64

_seen: list[Peaks] = []
"""The best figures of this process, once there are any."""


def peaks(*, fresh: bool = False) -> Peaks:
    """What this machine does: the best that was measured in this process so far. `fresh` measures again first, since figures
    taken beside other work are too low, and an honest kernel would then seem to be faster than the machine."""
    if fresh or not _seen:
        _seen[:] = [better(*_seen, _measured())]
    return _seen[0]


def better(*measured: Peaks) -> Peaks:
    """The highest of each figure; of the same sizes."""
    rates = zip(*(one.bandwidths for one in measured), strict=True)
    return Peaks(bandwidths=tuple(map(max, rates)), flops=max(one.flops for one in measured))


def _measured() -> Peaks:
    """The best of three short runs each."""
    library = _library()
    if library is None:
        return _FALLBACK
    memory = _aligned(SIZES[-1])
    turns = 1_000_000
    rates = []
    for size in SIZES:
        again = max(1, (8 << 20) // size)
        ways = (library.read_all, library.write_beside, library.write_past)
        taken = min(_timed(way, memory, size // 4, again) for way in ways for _ in range(4))
        rates.append((size, size * again / taken))
    adding = min(_timed(library.multiply_add, memory, turns, 1) for _ in range(3))
    return Peaks(bandwidths=tuple(rates), flops=2 * 12 * library.width() * turns / adding)


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    """The probes, built and loaded; None where there is no compiler that does it."""
    try:
        with tempfile.TemporaryDirectory(prefix="accelopt-peaks-") as folder:
            path, _ = compile_shared(_PROBE, tunables={}, workdir=folder, name="peaks", link=("-lm",))
            return ctypes.CDLL(str(path))
    except (ToolchainFailed, ToolchainMissing, OSError):
        return None


def _aligned(size: int) -> ctypes.Array[ctypes.c_float]:
    """Memory that begins with a cache line, as stores past the caches need it."""
    whole = (ctypes.c_char * (size + _LINE))()
    return (ctypes.c_float * (size // 4)).from_buffer(whole, -ctypes.addressof(whole) % _LINE)


def _timed(function: ctypes._NamedFuncPointer, memory: ctypes.Array[ctypes.c_float], n: int, again: int) -> float:
    function.restype = ctypes.c_float
    start = time.perf_counter()
    function(memory, ctypes.c_long(n), ctypes.c_long(again))
    return time.perf_counter() - start


def roofline(workload: Workload, binding: Binding, threads: int, *, fresh: bool = False) -> Roofline:
    """Seconds that neither memory nor arithmetic can beat, and which of them binds."""
    peak = peaks(fresh=fresh)
    touched = bytes_touched(workload, binding)
    memory = touched / (peak.bandwidth(touched) * threads)
    compute = product_flops(workload, binding).total() / (peak.flops * threads)
    return Roofline(seconds=max(memory, compute), bound="memory" if memory >= compute else "compute")
