"""What a GPU check does in which order and for how long, and its table. Pure functions of workloads and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.device_workloads import DeviceWorkload, work


@dataclass(frozen=True, kw_only=True)
class Step:
    """A part of the check, and its share of the time. What a step leaves over goes to those after it."""

    name: str
    share: float
    title: str


STEPS = (
    Step(name="correct", share=0.45, title="seed kernels compute right values"),
    Step(name="sanitizer", share=0.10, title="no invalid memory access in a sample"),
    Step(name="time", share=0.30, title="regions: ours, eager, Inductor, max-autotune, roofline"),
    Step(name="model", share=0.15, title="a model under each compiler"),
)


def deadline_s(step: str, now_s: float, total_s: float) -> float:
    """When a step that begins at `now_s` has to end, in seconds since the start: its share of what is left.

    >>> deadline_s("correct", 0.0, 480.0), deadline_s("model", 470.0, 480.0)
    (216.0, 480.0)
    """
    names = [s.name for s in STEPS]
    rest = STEPS[names.index(step) :]
    return now_s + (total_s - now_s) * rest[0].share / sum(s.share for s in rest)


def smallest_first(found: Sequence[DeviceWorkload]) -> list[DeviceWorkload]:
    """The smallest workload of each family first; then of each dtype of it; then of each kind of model; then the others."""
    by_work = sorted(found, key=lambda one: (work(one), one.name))
    ranks: dict[str, int] = {}
    met: set[tuple[str, ...]] = set()
    for one in by_work:
        keys = [(one.family,), (one.family, one.dtype), (one.kind, one.family, one.dtype)]
        ranks[one.name] = next((rank for rank, key in enumerate(keys) if key not in met), len(keys))
        met.update(keys)
    return sorted(by_work, key=lambda one: ranks[one.name])  # stable: by work within a rank


def table(results: Mapping[str, Any]) -> str:
    """The state of a results file as text."""
    lines = []
    if not results.get("on_device"):
        lines += ["THERE WAS NO GPU: kernels ran in a simulation on small sizes. Nothing was timed.", ""]
    for step in STEPS:
        cases = [case for case in results["cases"] if case["step"] == step.name]
        bad = [case for case in cases if not case["ok"]]
        state = results["steps"].get(step.name, "not reached")
        lines.append(f"{step.name:10} {len(cases) - len(bad):4} ok {len(bad):3} failed   {state:22} {step.title}")
        lines += [f"  FAILED {case['name']} {case.get('structure') or ''}: {case['detail'][:200]}" for case in bad]
    timed = [case for case in results["cases"] if case.get("sides") and isinstance(case["sides"], dict)]
    if timed:
        names = ("ours", "eager", "inductor", "max-autotune")
        lines += [
            "",
            f"{'region (microseconds, medians)':52}" + "".join(f"{n:>13}" for n in names) + f"{'roofline':>10}{'over best':>11}",
        ]
    for case in timed:
        cells = [
            case["sides"].get(name, {}).get("median_us")
            for name in (names if case["step"] == "time" else ("accelopt", *names[1:]))
        ]
        others = [c for c in cells[1:] if c]
        over = f"{min(others) / cells[0]:.2f}x" if cells[0] and others else ""
        roofline = f"{case['roofline_us']:10.1f}" if "roofline_us" in case else f"{'':10}"
        lines.append(
            f"{case['name'][:51]:52}" + "".join(f"{c:13.1f}" if c else f"{'-':>13}" for c in cells) + roofline + f"{over:>11}"
        )
    return "\n".join(lines)
