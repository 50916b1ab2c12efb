"""The results at a glance, for README.md: a row per run of the region suite, a row per model with a column per processor, a
sentence about right values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.shape_report import sentence
from benchmarks.shown import level, markdown

Results = Sequence[Mapping[str, Any]]


def overview(regions: Results, models: Results, shapes: Results, *, details: str) -> str:
    """Markdown. The results are as the benchmarks wrote them, `details` is where all of them stand."""
    parts = [_regions(regions)] if regions else []
    parts += [_models(models)] if models else []
    parts += [sentence(shapes)] if shapes else []
    return "\n\n".join([*parts, f"Family by family and model by model, with versions and commits: [{details}]({details})."])


def _regions(results: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for result in results:
        around, summed = result["environment"], result["summary"]
        rows.append(
            [
                around["device"],
                f"{around['threads']}{'' if level(result) == 'native' else f', {level(result).upper()} only'}",
                str(summed["cases"]),
                *(of_dtype(summed["families"], dtype) for dtype in ("f32", "bf16")),
                f"{summed['floors_met']} of {summed['floors']}",
                f"{summed['worst']['ratio']:.2f}x, {slowest_adopted(result['cases'].values())}",
                f"{around['commit'][:7]}, {around['date'][:10]}",
            ]
        )
    columns = ["processor", "threads", "functions", "float32", "bfloat16", "floors met", "slowest", "commit"]
    return (
        "The region suite: geomean over the better of eager and Inductor (with and without max-autotune). Commits differ, and "
        "older ones had older kernels. Slowest: of all functions (Inductor's own code where no kernel was adopted), and of those "
        f"with an adopted kernel.\n\n{markdown(columns, rows)}"
    )


def slowest_adopted(cases: Iterable[Mapping[str, Any]]) -> str:
    """The least ratio of the functions that have a kernel of ours.

    >>> slowest_adopted([{"ratio": 0.7, "adopted": 0}, {"ratio": 1.25, "adopted": 1}, {"failed": "why"}])
    '1.25x'
    """
    least = min((case["ratio"] for case in cases if case.get("adopted")), default=None)
    return "" if least is None else f"{least:.2f}x"


def of_dtype(families: Sequence[Mapping[str, Any]], dtype: str) -> str:
    """The geomean over all functions of a dtype, from the families' geomeans and their numbers of functions.

    >>> of_dtype([{"dtype": "f32", "geomean": 4.0, "cases": 1}, {"dtype": "f32", "geomean": 1.0, "cases": 1}], "f32")
    '2.00x'
    >>> of_dtype([], "bf16")
    ''
    """
    rows = [row for row in families if row["dtype"] == dtype]
    if not rows:
        return ""
    logs = sum(row["cases"] * math.log(row["geomean"]) for row in rows)
    return f"{math.exp(logs / sum(row['cases'] for row in rows)):.2f}x"


def _models(results: Sequence[Mapping[str, Any]]) -> str:
    names = sorted({name for result in results for name in result["workloads"]})
    rows = [[name, *(_over_inductor(result["workloads"].get(name)) for result in results)] for name in names]
    columns = ["model", *(result["environment"]["device"] for result in results)]
    return f"Whole models over Inductor, 2 threads:\n\n{markdown(columns, rows)}"


def _over_inductor(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    return "failed" if "failed" in found else f"{found['measure']['over_inductor']:.2f}x"
