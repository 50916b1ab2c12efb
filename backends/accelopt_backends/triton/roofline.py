"""The least time that a workload could take on a device: bytes moved once over its bandwidth, products over its peak.

Optimistic on purpose: a kernel that is faster is suspected of cheating. Where the device is not here the peaks are published
figures, and the bound ranks estimates, no measurements.
"""

from __future__ import annotations

from accelopt_backends.base import Roofline
from accelopt_backends.loops.work import bytes_touched, product_flops
from accelopt_backends.triton.peaks import Peaks, peaks
from accelopt_backends.triton.targets import Target
from accelopt_compile.records import Binding, Workload


def roofline(workload: Workload, binding: Binding, target: Target) -> Roofline:
    """Seconds that neither memory nor products can beat, and which of them binds."""
    return bound_by(workload, binding, peaks(target))


def bound_by(workload: Workload, binding: Binding, peak: Peaks) -> Roofline:
    """`roofline` for these peaks."""
    memory = bytes_touched(workload, binding) / peak.memory
    compute = product_seconds(workload, binding, peak)
    bound = "memory" if memory >= compute else "compute"
    return Roofline(seconds=max(memory, compute, 1e-7), bound=bound, launch_s=peak.launch_s)


def product_seconds(workload: Workload, binding: Binding, peak: Peaks) -> float:
    """Seconds of all products at the peak of their type, as the workload's precision allows."""
    precision = dict(workload.numerics).get("float32_matmul_precision", "highest")
    return sum(flops / peak.of_products(dtype, precision) for dtype, flops in product_flops(workload, binding).items())


def described(target: Target) -> tuple[str, ...]:
    """The device in lines for an author: what it holds and what it does."""
    peak = peaks(target)
    rates = ", ".join(f"{kind} {rate / 1e12:.0f}" for kind, rate in peak.products.items())
    return (
        f"{target.multiprocessors} multiprocessors of {target.registers >> 10} Ki registers and "
        f"{target.shared_total >> 10} KiB of shared memory; a program has at most {target.shared_bytes >> 10} KiB, a thread "
        f"{target.most_registers} registers; warps of {target.warp} threads, {target.most_threads} threads a multiprocessor",
        f"memory {peak.memory / 1e9:.0f} GB/s; products in Tflop/s: {rates} ({peak.source})",
    )
