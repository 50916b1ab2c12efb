"""What the C++ backend takes for the machine's peaks: the best figures that were measured, in vectors that it has."""

from __future__ import annotations

import ctypes

from accelopt_backends.cpp import roofline
from accelopt_backends.cpp.roofline import SIZES, Peaks, better, peaks


def figures(*rates: float, flops: float) -> Peaks:
    return Peaks(bandwidths=tuple(zip(SIZES, rates, strict=True)), flops=flops)


def test_of_two_measurements_the_higher_figures_stand() -> None:
    """Other work only ever makes a machine seem slower."""
    first, second = figures(5, 4, 3, 2, 1, flops=7), figures(4, 5, 2, 3, 1, flops=8)
    assert figures(5, 5, 3, 3, 1, flops=8) == better(first, second)


def test_a_fresh_measurement_never_lowers_what_was_seen() -> None:
    """The figures of a process only rise."""
    before = peaks()
    after = peaks(fresh=True)
    assert before.flops <= after.flops
    assert [size for size, _ in after.bandwidths] == list(SIZES)
    assert all(old <= new for (_, old), (_, new) in zip(before.bandwidths, after.bandwidths, strict=True))


def test_the_probes_keep_their_sums_in_registers() -> None:
    """Vectors wider than the processor's would be spilled, and the peaks be a fraction of what kernels reach."""
    library = roofline._library()
    assert library is not None
    with open("/proc/cpuinfo") as about:
        flags = next((line.split() for line in about if line.startswith("flags")), [])
    assert library.width() == (16 if "avx512f" in flags else 8 if "avx" in flags else 4)


def test_the_probes_write_the_sum_of_what_they_read() -> None:
    """Two thirds of the memory are read, the last is written, to its end."""
    library = roofline._library()
    assert library is not None
    n = 3 * 1024
    assert 0 == ctypes.addressof(roofline._aligned(SIZES[-1])) % 64
    for way in (library.write_beside, library.write_past):
        memory = roofline._aligned(4 * n)
        memory[:] = [float(i % 1024) for i in range(n)]
        roofline._timed(way, memory, n, 1)
        assert [2.0 * i for i in range(1024)] == list(memory[2 * 1024 :])
