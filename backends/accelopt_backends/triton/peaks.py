"""What devices can do in a second: measured once on a device that is here, published figures for one that is not.

Published figures only ever make estimates. Dense products, no sparsity; bytes a second of device memory.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from accelopt_backends.triton.targets import Target
from accelopt_compile.records import sha256_text

FORMAT = 1
CACHE_OVER_MEMORY = 2.5
"""The last level cache's bandwidth over memory's where nothing was measured: 2 to 3 in published microbenchmarks."""


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """`memory` and `cache` bytes a second; `products` flops a second of matrix products by our dtype name, "tf32" beside
    them; `plain` float32 flops a second without matrix units; `clock` cycles a second; `launch_s` seconds between two small
    kernels; `source` where the figures are from."""

    memory: float
    cache: float
    products: Mapping[str, float]
    plain: float
    clock: float
    launch_s: float
    source: str

    def of_products(self, dtype: str, precision: str) -> float:
        """Flops a second at most for products of `dtype`; float32 at "highest" `precision` does without TF32."""
        kind = "tf32" if dtype == "f32" and precision != "highest" else dtype
        return self.products.get(kind, self.plain)


PUBLISHED: Mapping[str, Peaks] = {
    # Data sheet of the 80 GB SXM module: 2,039 GB/s; 19.5 float32, 156 TF32, 312 16-bit, 624 int8 and 19.5 float64 (matrix
    # units) Tflop/s; 1.41 GHz boost.
    "sm_80": Peaks(
        memory=2.039e12,
        cache=CACHE_OVER_MEMORY * 2.039e12,
        products={"f32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "f16": 312e12, "f64": 19.5e12, "i8": 624e12},
        plain=19.5e12,
        clock=1.41e9,
        launch_s=2e-6,  # between kernels of one graph: 1.5 to 2.5 us in published measurements
        source="published figures of the 80 GB SXM module",
    ),
    # Data sheet of the SXM module: 3.35 TB/s; 67 float32, 494.7 TF32, 989.4 16-bit, 1,978.9 int8 and 67 float64 (matrix
    # units) Tflop/s; 1.83 GHz boost under load.
    "sm_90": Peaks(
        memory=3.35e12,
        cache=CACHE_OVER_MEMORY * 3.35e12,
        products={"f32": 67e12, "tf32": 494.7e12, "bf16": 989.4e12, "f16": 989.4e12, "f64": 67e12, "i8": 1978.9e12},
        plain=67e12,
        clock=1.83e9,
        launch_s=2e-6,
        source="published figures of the 80 GB SXM module",
    ),
    # Data sheet of the eight-device board, an eighth of it: 8 TB/s; 80 float32, 1,100 TF32, 2,250 16-bit, 4,500 int8 and 40
    # float64 Tflop/s, dense; 1.92 GHz boost.
    "sm_100": Peaks(
        memory=8e12,
        cache=CACHE_OVER_MEMORY * 8e12,
        products={"f32": 80e12, "tf32": 1100e12, "bf16": 2250e12, "f16": 2250e12, "f64": 40e12, "i8": 4500e12},
        plain=80e12,
        clock=1.92e9,
        launch_s=2e-6,
        source="published figures of one device of an eight-device board",
    ),
    # Data sheet of the OAM module with 304 compute units: 5.3 TB/s; 163.4 float32 (vector and matrix), 653.7 TF32, 1,307.4
    # 16-bit, 2,614.9 int8 and 163.4 float64 (matrix) Tflop/s; 2.1 GHz. This toolchain has no TF32 products for it.
    "gfx942": Peaks(
        memory=5.3e12,
        cache=CACHE_OVER_MEMORY * 5.3e12,
        products={"f32": 163.4e12, "tf32": 163.4e12, "bf16": 1307.4e12, "f16": 1307.4e12, "f64": 163.4e12, "i8": 2614.9e12},
        plain=163.4e12,
        clock=2.1e9,
        launch_s=4e-6,  # published measurements of graph replay on this arch: 3 to 5 us
        source="published figures of the module with 304 compute units",
    ),
}


def peaks(target: Target) -> Peaks:
    """Measured ones where the device is here, else the published ones of the arch, or of the nearest older arch."""
    from accelopt_backends.triton import device

    if device.present() is not None:
        return measured()
    return published(target)


def published(target: Target) -> Peaks:
    """The figures of the arch; of the nearest one below it in the table where it has none."""
    if target.arch in PUBLISHED:
        return PUBLISHED[target.arch]
    older = [arch for arch in ("sm_80", "sm_90", "sm_100") if target.kind == "cuda" and _number(arch) <= _number(target.arch)]
    return PUBLISHED[older[-1] if older else "sm_80" if target.kind == "cuda" else "gfx942"]


def _number(arch: str) -> int:
    return int("".join(c for c in arch if c.isdigit()) or 0)


# ---------------------------------------------------------------- measuring, on a device alone


@lru_cache(maxsize=1)
def measured() -> Peaks:
    """What the device of this process does: read from the file of its name and versions, or measured now (about 2 s) and
    written there."""
    path = stored_at(device_name())
    kept = read(path)
    if kept is None:
        kept = _measure()
        write(path, kept)
    return kept


def device_name() -> str:
    """The device with what its figures depend on: driver's name, memory, runtime."""
    import torch

    about = torch.cuda.get_device_properties(torch.cuda.current_device())
    return f"{about.name} {about.total_memory} {torch.version.cuda or torch.version.hip} {torch.__version__}"


def stored_at(name: str) -> Path:
    """The file of a device's peaks, below the cache's root."""
    root = os.environ.get("ACCELOPT_CACHE_DIR") or os.path.expanduser("~/.cache/accelopt")
    return Path(root) / "devices" / f"{sha256_text(name)[:24]}.json"


def read(path: Path) -> Peaks | None:
    """The peaks in a file; None where there is none, or one that is damaged or of another format."""
    try:
        data = json.loads(path.read_text())
        if data.pop("format") != FORMAT:
            return None
        found = Peaks(**data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    rates = (found.memory, found.cache, found.plain, found.clock, found.launch_s, *found.products.values())
    return found if all(isinstance(r, int | float) and r > 0 for r in rates) else None


def write(path: Path, found: Peaks) -> None:
    """Written beside and renamed, so that a reader sees all of it or none. A folder that cannot be written costs the next
    process another measurement."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
            json.dump({"format": FORMAT, **asdict(found)}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, path)
    except OSError:
        return


def _measure() -> Peaks:
    import torch

    about = torch.cuda.get_device_properties(torch.cuda.current_device())
    # One at a time, so that they fit: a buffer far beyond every cache, then one that the last level cache holds.
    memory = _copied(min(1 << 30, int(about.total_memory) // 8))
    cache = _copied(min(16 << 20, max(4 << 20, int(getattr(about, "L2_cache_size", 32 << 20)) // 3)))
    before = torch.get_float32_matmul_precision()
    products = {}
    try:
        torch.set_float32_matmul_precision("highest")
        for kind, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16), ("f32", torch.float32), ("f64", torch.float64)):
            products[kind] = _multiplied(dtype, 8192 if kind in ("bf16", "f16") else 4096)
        torch.set_float32_matmul_precision("high")
        products["tf32"] = _multiplied(torch.float32, 8192)
    finally:
        torch.set_float32_matmul_precision(before)
    clock = 1e3 * float(getattr(about, "clock_rate", 1_500_000))  # kHz
    return Peaks(
        memory=memory,
        cache=max(cache, memory),
        products=products,
        plain=products["f32"],
        clock=clock,
        launch_s=_between_launches(),
        source=f"measured on {about.name}",
    )


def _best_s(call: Callable[[], Any], times: int) -> float:
    """Seconds of one of `times` calls in a row, the best of five rows, by the device's own clock."""
    import torch

    for _ in range(3):
        call()
    best = float("inf")
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) * 1e-3 / times)
    return best


def _copied(size: int) -> float:
    import torch

    here, there = (torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    return 2 * size / _best_s(lambda: there.copy_(here), 10)


def _multiplied(dtype: Any, n: int) -> float:
    import torch

    a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
    return 2 * float(n) ** 3 / _best_s(lambda: a @ b, 3)


def _between_launches() -> float:
    """Of a captured graph of small kernels: what one more of them costs."""
    import torch

    x = torch.zeros(32, device="cuda")
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        x.add_(1.0)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        for _ in range(100):
            x.add_(1.0)
    return _best_s(graph.replay, 5) / 100
