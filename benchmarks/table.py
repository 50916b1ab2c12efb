"""The result tables, generated from benchmarks/results so that no number is typed by hand: what README.md shows between its
markers, and all of it in benchmarks/RESULTS.md.

python -m benchmarks.table            rewrite both
python -m benchmarks.table --check    exit code 1 when one of them shows something else
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import shape_report
from benchmarks.harness import RESULTS, ROOT
from benchmarks.overview import overview
from benchmarks.shown import level, markdown

BEGIN, END = "<!-- results: begin (python -m benchmarks.table) -->", "<!-- results: end -->"

DETAILS = "benchmarks/RESULTS.md"

HEAD = """# Results

Generated from `results/` by `python -m benchmarks.table`; [README.md](README.md) says how they were measured."""


def newest(name: str, directory: Path = RESULTS) -> dict[str, Any] | None:
    """The last full (not quick) result of a benchmark, or None."""
    found = sorted(directory.glob(f"{name}-[0-9]*.json"))
    loaded: dict[str, Any] | None = json.loads(found[-1].read_text()) if found else None
    return loaded


def of_each_device(name: str, directory: Path = RESULTS) -> list[dict[str, Any]]:
    """The last full result of a benchmark on each device."""
    stems = {path.stem[: -len("-2026-01-01")] for path in directory.glob(f"{name}-[a-z]*.json")}
    found = (newest(stem, directory) for stem in sorted(stems) if not stem.startswith(f"{name}-quick"))
    return [result for result in found if result is not None]


def where(result: Mapping[str, Any]) -> str:
    """One line: what a result was measured on."""
    e = result["environment"]
    versions = ", ".join(
        f"{name} {version}" for name, version in sorted(e["versions"].items()) if name in ("torch", "transformers")
    )
    return f"{e['device']}, {e['threads']} threads, {versions}, {e['compiler']}; commit {e['commit']}, {e['date'][:10]}"


def models(result: Mapping[str, Any]) -> str:
    """Whole models: milliseconds of each variant, ratios, and the errors against eager."""
    rows = []
    for name, found in result["workloads"].items():
        if "failed" in found:
            rows.append([name, "failed", *[""] * 6])
            continue
        measured = found["measure"]
        v = measured["variants"]
        times = [f"{v[kind]['median_s'] * 1e3:.2f}" for kind in ("eager", "inductor", "accelopt")]
        ratios = [f"{measured['over_inductor']:.2f}x", f"{measured['over_eager']:.2f}x"]
        errors = f"{v['inductor']['worst_error']:.0e} / {v['accelopt']['worst_error']:.0e}"
        rows.append([name, *times, *ratios, errors, found.get("commit", result["environment"]["commit"])])
    columns = [
        "model",
        "eager, ms",
        "Inductor, ms",
        "accelopt, ms",
        "over Inductor",
        "over eager",
        "error vs eager: Inductor / accelopt",
        "commit",
    ]
    return f"Whole models ({where(result)}):\n\n{markdown(columns, rows)}"


def regions(result: Mapping[str, Any], *, by_family: bool = True) -> str:
    """The region suite at one thread count: a row per family, geomeans over the better of eager and Inductor."""
    summed = result["summary"]
    threads = result["environment"]["threads"]
    lowered = "" if level(result) == "native" else f" with no more than {level(result).upper()} on all sides"
    title = (
        f"{summed['cases']} functions at {threads} thread{'s' if threads > 1 else ''}{lowered}, times over the better of eager "
        f"and Inductor (with and without max-autotune): geomean {summed['geomean']:.2f}x, worst {summed['worst']['ratio']:.2f}x "
        f"({summed['worst']['case']}), {summed['floors_met']} of {summed['floors']} floors met ({where(result)})"
    )
    return f"{title}:\n\n{_families(summed)}" if by_family else f"{title}."


def _families(summed: Mapping[str, Any]) -> str:
    """A row per family."""
    families: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in summed["families"]:
        families.setdefault(row["family"], {})[row["dtype"]] = row
    rows = []
    for family, by_dtype in families.items():
        cells = [cell for dtype in ("f32", "bf16") for cell in _family_cells(by_dtype.get(dtype))]
        of = sum(row["cases"] for row in by_dtype.values())
        rows.append([family, *cells, f"{sum(row['adopted'] for row in by_dtype.values())} of {of}"])
    columns = ["family", "f32", "worst", "floor", "bf16", "worst", "floor", "adopted"]
    return markdown(columns, rows)


def _family_cells(row: Mapping[str, Any] | None) -> list[str]:
    """Geomean, worst case, floor; a floor that is missed says so."""
    if row is None:
        return ["", "", ""]
    return [f"{row['geomean']:.2f}x", f"{row['worst']:.2f}x", f"{row['floor']:.1f}x{'' if row['met'] else ' missed'}"]


def region_tables(directory: Path) -> list[str]:
    """The region suite on all devices; family by family the newest for each thread count and level."""
    results = region_results(directory)
    of_each = {_kind(result): result for result in sorted(results, key=lambda result: str(result["environment"]["date"]))}
    return [regions(result, by_family=of_each[_kind(result)] is result) for result in results]


def _kind(result: Mapping[str, Any]) -> tuple[int, str]:
    return int(result["environment"]["threads"]), level(result)


def region_results(directory: Path) -> list[dict[str, Any]]:
    """The region suite's full results, fewest threads first; they are one file per device, thread count and level."""
    found = [json.loads(path.read_text()) for path in sorted(directory.glob("regions-[0-9]*t*.json"))]
    measured = [result for result in found if result.get("summary", {}).get("cases")]
    return sorted(measured, key=lambda result: (level(result) != "native", _order(result)))


def _order(result: Mapping[str, Any]) -> tuple[int, str]:
    return int(result["environment"]["threads"]), str(result["environment"]["device"])


def shape_results(directory: Path) -> list[dict[str, Any]]:
    """What `check_shapes` found, a file a device."""
    named = sorted(path for path in directory.glob("shapes-*.json") if not path.stem.startswith("shapes-quick"))
    return [json.loads(path.read_text()) for path in named]


def shapes(result: Mapping[str, Any]) -> str:
    """Values at random shapes, variant by variant."""
    whose = "unproven seeds in every region" if result["benchmark"] == "shapes-seeds" else "searched kernels"
    title = f"Outputs, losses and gradients at random shapes by {whose}, against float64: relative L2 error of the worst tensor"
    return f"{title} ({where(result)}):\n\n{shape_report.table(result)}"


def agents(result: Mapping[str, Any]) -> str:
    """The kernels of recorded runs of the agents beside the built-in proposer's best."""
    rows = [
        [
            row["workload"],
            f"{row['builtin']:.2f}x",
            f"{row['agents']:.2f}x",
            f"{row['agents_over_builtin']:.2f}x ({row['spread'][0]:.2f} to {row['spread'][1]:.2f})",
        ]
        for row in result["rows"]
        if row["agents_over_builtin"] is not None
    ]
    title = (
        "Kernels that agents wrote (runs in `benchmarks/transcripts/`) and the built-in proposer's best, over the better baseline"
    )
    return f"{title} ({where(result)}):\n\n{markdown(['workload', 'built-in', 'agents', 'agents over built-in'], rows)}"


def startup(result: Mapping[str, Any]) -> str:
    """Seconds from torch.compile to the first result."""
    measured = result["first_call"]
    rows = [
        [shown, f"{measured[f'{role}_cold']['median_s']:.1f}", f"{measured[f'{role}_warm']['median_s']:.1f}"]
        for role, shown in (("inductor", "Inductor"), ("hit", "accelopt, kernels in the store"))
    ]
    title = f"First call of {result['workload']} in a fresh process, seconds; the search took {result['search_s']:.0f} s, once"
    return f"{title} ({where(result)}):\n\n{markdown(['', 'Inductor cache cold', 'warm'], rows)}"


def device_kernels(result: Mapping[str, Any]) -> str:
    """What was built for devices that are not here, and verified in a simulation."""
    found, targets = result["summary"], result["targets"]
    rows = []
    for family, stages in found["families"].items():
        cells = [stages.get(stage, {}) for stage in (*targets, "verify")]
        told = [f"{c.get('ok', 0)}" + (f", {c['failed']} failed" if c.get("failed") else "") for c in cells]
        rows.append([family, *told, str(stages.get("supports", {}).get("refused", 0) or "")])
    part = "" if result["complete"] else f", {result['of']} were to be tried: the run was cut off"
    title = (
        f"Kernels for GPUs, without one: {found['workloads']} workloads of models and problems{part}; {found['builds']} builds "
        "at default and random tunables, verified in a simulation; structures that passed, by target"
    )
    columns = ["family", *(target.partition("-")[2] for target in targets), "right", "left to Inductor"]
    return f"{title} ({where(result)}):\n\n{markdown(columns, rows)}"


def render(directory: Path = RESULTS) -> str:
    """All tables for which there are results, in full."""
    parts = [
        show(result)
        for name, show in (("transcripts", agents), ("startup", startup), ("device-kernels", device_kernels))
        if (result := newest(name, directory)) is not None
    ]
    parts[0:0] = [shapes(result) for result in shape_results(directory)]
    parts[0:0] = region_tables(directory)
    parts[0:0] = [models(result) for result in of_each_device("models", directory)]
    return "\n\n".join(parts) or "No results have been recorded yet."


def replaced(text: str, tables: str) -> str:
    """`text` with the part between the markers replaced. Raises ValueError where a marker lacks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{tables}\n{END}{after}"


def pages(directory: Path = RESULTS, root: Path = ROOT) -> dict[Path, str]:
    """What README.md and the page of all tables have to say."""
    readme = root / "README.md"
    measured = region_results(directory), of_each_device("models", directory), shape_results(directory)
    glance = overview(*measured, details=DETAILS)
    return {
        readme: replaced(readme.read_text(), glance),
        root / DETAILS: f"{HEAD}\n\n{render(directory)}\n",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    wanted = pages()
    if arguments.check:
        stale = [str(path.relative_to(ROOT)) for path, text in wanted.items() if not path.exists() or path.read_text() != text]
        sys.exit(f"differs from benchmarks/results: {', '.join(stale)}; run `python -m benchmarks.table`" if stale else 0)
    for path, text in wanted.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
