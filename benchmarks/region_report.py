"""From measured cases to what is claimed: per family the geomean against its floor, the worst case, the doubtful ones.

Reads plain JSON of result files and imports no torch, so that README's tables can be made anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.harness import geomean

RECHECK_FLOOR = 0.97
"""An adopted kernel whose ratio in a fresh process is below this is listed."""

Case = Mapping[str, Any]


def timed(cases: Mapping[str, Case]) -> dict[str, Case]:
    """The cases that have a ratio."""
    return {key: case for key, case in cases.items() if "ratio" in case}


def summary(cases: Mapping[str, Case], families: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """`families` are name -> {"floor": {dtype: ratio}, "goal": {dtype: ratio}}. Plain JSON."""
    good = timed(cases)
    rows = [
        _row(family, dtype, [c for c in good.values() if c["family"] == family and c["dtype"] == dtype], bounds)
        for family, bounds in families.items()
        for dtype in bounds["floor"]
    ]
    rows = [row for row in rows if row["cases"]]
    worst = min(good, key=lambda key: good[key]["ratio"], default=None)
    rechecked = {key: case["recheck"]["ratio"] for key, case in good.items() if "ratio" in case.get("recheck", {})}
    return {
        "families": rows,
        "cases": len(good),
        "failed": sorted(key for key, case in cases.items() if key not in good),
        "adopted": sum(bool(case["adopted"]) for case in good.values()),
        "geomean": _rounded(geomean([case["ratio"] for case in good.values()])),
        "geomean_adopted": _rounded(geomean([case["ratio"] for case in good.values() if case["adopted"]])),
        "worst": None if worst is None else {"case": worst, "ratio": good[worst]["ratio"]},
        "slower": {key: case["ratio"] for key, case in good.items() if case["high"] < 1},
        "floors_met": sum(row["met"] for row in rows),
        "floors": len(rows),
        "rechecked": len(rechecked),
        "recheck_worst": min(rechecked.values(), default=None),
        "recheck_below": {key: ratio for key, ratio in rechecked.items() if ratio < RECHECK_FLOOR},
    }


def _row(family: str, dtype: str, cases: Sequence[Case], bounds: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    ratios = [case["ratio"] for case in cases]
    floor = bounds["floor"][dtype]
    mean = _rounded(geomean(ratios))
    return {
        "family": family,
        "dtype": dtype,
        "cases": len(cases),
        "adopted": sum(bool(case["adopted"]) for case in cases),
        "geomean": mean,
        "worst": min(ratios, default=None),
        "best": max(ratios, default=None),
        "floor": floor,
        "goal": bounds["goal"][dtype],
        # What falls back to Inductor is measured at 1.0 give or take the noise, and that meets a floor of "never slower".
        "met": mean is not None and mean >= (floor if floor > 1 else RECHECK_FLOOR),
        "below_floor": sum(ratio < (floor if floor > 1 else RECHECK_FLOOR) for ratio in ratios),
    }


def _rounded(value: float) -> float | None:
    """JSON has no NaN."""
    return round(value, 3) if value == value else None


def reason(case: Case) -> str:
    """Why nothing was adopted, or "" where something was; the first line of each reason."""
    if case["adopted"]:
        return ""
    if case["problems"]:
        return str(case["problems"][0]).split("\n")[0]
    reasons = dict.fromkeys((region["reason"] or region["outcome"]).split("\n")[0] for region in case["regions"])
    return "; ".join(reasons) or "no region: " + "; ".join(case["refused"])


def case_line(key: str, case: Case) -> str:
    """One case in the terminal."""
    if "ratio" not in case:
        return f"{key:36} {case.get('failed') or case.get('died')}"
    times = " ".join(f"{name} {v['median_us']:.0f}" for name, v in case["variants"].items())
    share = f"{case['roofline_share']:.0%} of roofline" if case["roofline_share"] else "no roofline"
    adopted = f"adopted {case['adopted']}" if case["adopted"] else f"Inductor ({reason(case)})"
    ratio = f"{case['ratio']:.2f}x [{case['low']:.2f}, {case['high']:.2f}] over {case['baseline']}"
    noise = case["noise"]
    return f"{key:36} {ratio}; {times} us; {share}; A/A [{noise['low']:.2f}, {noise['high']:.2f}]; {adopted}"


def lines(summed: Mapping[str, Any]) -> Iterator[str]:
    """The families in the terminal, and what needs attention."""
    for row in summed["families"]:
        verdict = "met" if row["met"] else "MISSED"
        yield (
            f"{row['family']:18} {row['dtype']:4} {row['geomean']:6.2f}x  worst {row['worst']:.2f}x  "
            f"floor {row['floor']:.1f}x {verdict}, goal {row['goal']:.1f}x, {row['adopted']} of {row['cases']} adopted"
        )
    if summed["cases"]:
        worst = summed["worst"]
        yield f"{summed['cases']} cases, geomean {summed['geomean']:.3f}x, worst {worst['case']} {worst['ratio']:.2f}x"
    for key, ratio in summed["slower"].items():
        yield f"slower than its baseline: {key} {ratio:.2f}x"
    for key, ratio in summed["recheck_below"].items():
        yield f"in a fresh process: {key} {ratio:.2f}x"
    for key in summed["failed"]:
        yield f"not measured: {key}"


def false_wins(trials: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """How often one kernel "beat" itself, by the bound that the interval's low end has to pass."""
    lows = [trial["low"] for trial in trials]
    return {
        "trials": len(lows),
        **{f"over_{bound:.2f}": sum(low > bound for low in lows) for bound in (1.0, 1.03, 1.05)},
        "worst_ratio": max((abs(trial["ratio"] - 1) for trial in trials), default=None),
    }
