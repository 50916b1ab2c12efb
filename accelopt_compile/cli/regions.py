"""The table of regions that `demo` and `prewarm` show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accelopt_compile.cli.output import Output, binding_text, human_us
from accelopt_compile.wording import shortened, times_text


def show_regions(out: Output, regions: Sequence[Mapping[str, Any]]) -> None:
    """One row a region, those with a kernel first; then how many came out how."""
    order = {"TUNED": 0, "HIT": 0, "CANDIDATE": 1, "BASELINE": 2, "MISS": 3}
    rows = []
    for region in sorted(regions, key=lambda r: (order[r["outcome"]], -r["speedup"])):
        basis = region.get("basis", "measured")  # a report of a process that knew no estimates has none
        times = f"{human_us(region['baseline_us'])} -> {human_us(region['kernel_us'])}" if region["kernel_us"] else ""
        times = f"estimated {times}" if times and basis == "estimated" else times
        gain = times_text(region["speedup"], basis) if region["speedup"] else ""
        names = shortened(region["operators"], 60)
        rows.append([region["outcome"], gain, times, region["count"], binding_text(region["binding"]), names, region["reason"]])
    if rows:
        out.table(["outcome", "speedup", "baseline -> kernel", "places", "sizes", "operators", "why not"], rows, title="regions")
    counts = {name: sum(r["outcome"] == name for r in regions) for name in order}
    out.line(", ".join(f"{n} {name}" for name, n in counts.items() if n) or "no region was found", level=0)
