"""Did the agents write better kernels than the built-in proposer finds? The recorded runs' winners against its best, today.

    python -m benchmarks.bench_transcripts [--budget-s 60] [--times 5] [FOLDER...]

Each transcript is replayed for its winner; the built-in proposer then searches the same workload for `--budget-s` seconds,
with an empty memory; then both kernels are evaluated in full, in turns, by one evaluator. A ratio is the median of the turns'
ratios of speedups over the better of eager and Inductor, and all turns are in the file.

Promises: both kernels meet the same judge, clock and baseline, on fresh seeds. Does not promise that the recorded speedups hold:
they were measured on the day of the recording.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelopt_backends.base import Missing
from accelopt_backends.cpp import CppBackend
from accelopt_compile.evaluate.evaluate import open_evaluator
from accelopt_compile.events import MemoryLog
from accelopt_compile.family import kind_of
from accelopt_compile.records import Accepted, KernelSource, Workload
from accelopt_compile.search import Budget, Memory, SearchSettings, SearchTask, search
from accelopt_compile.search.builtin import BuiltinProposer
from benchmarks.harness import finish, write_result
from benchmarks.transcript import winner_of

FOLDER = Path(__file__).parent / "transcripts"
Kernel = tuple[KernelSource, Mapping[str, int]]


def compared(folder: Path, backend: CppBackend, target: str, budget_s: float, times: int) -> dict[str, Any]:
    """The row of one transcript."""
    about, frozen = (json.loads((folder / name).read_text()) for name in ("run.json", "frozen.json"))
    workload, binding, threads = Workload.from_json(frozen["workload"]), about["binding"], int(about["threads"])
    agents = winner_of(folder)
    with (
        tempfile.TemporaryDirectory() as place,
        open_evaluator(workload, binding, backend=backend, threads=threads, seed=1, workdir=place) as evaluator,
    ):
        task = SearchTask(
            workload=workload,
            binding=binding,
            target=target,
            backend=backend,
            family=kind_of(workload),
            settings=SearchSettings.preset("default"),
            threads=threads,
        )
        found = search(
            task,
            proposer=BuiltinProposer(),
            evaluator=evaluator,
            memory=Memory(),
            budget=Budget(seconds=budget_s, clock=time.monotonic),
            rng=random.Random(0),
            clock=time.monotonic,
            log=MemoryLog(),
        )
        best = max(found.candidates, key=lambda c: c.verdict.timing.speedup)
        sides: dict[str, Kernel] = {"agents": agents, "builtin": (best.source, best.tunables)}
        turns = [{side: _speedup(evaluator, *kernel) for side, kernel in sides.items()} for _ in range(times)]
    good = [t for t in turns if all(isinstance(v, float) for v in t.values())]
    ratios = [t["agents"] / t["builtin"] for t in good]  # type: ignore[operator]
    return {
        "workload": folder.name,
        "family": about["family"],
        "name": about["name"],
        "binding": binding,
        "threads": threads,
        "builtin_evaluated": found.evaluated,
        "turns": turns,
        "agents": _median([t["agents"] for t in good]),
        "builtin": _median([t["builtin"] for t in good]),
        "agents_over_builtin": _median(ratios),
        "spread": [round(min(ratios), 3), round(max(ratios), 3)] if ratios else [],
    }


def _speedup(evaluator: Any, source: KernelSource, tunables: Mapping[str, int]) -> float | str:
    verdict = evaluator.evaluate(source, tunables, effort="full")
    return verdict.timing.speedup if isinstance(verdict, Accepted) else f"{verdict.stage.value}: {verdict.reason}"


def _median(values: Sequence[Any]) -> float | None:
    return round(statistics.median(values), 3) if values else None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--quick", action="store_true", help="one transcript, short")
    parser.add_argument("--budget-s", type=float, default=60.0, help="seconds of the built-in search")
    parser.add_argument("--times", type=int, default=5, help="full evaluations of either kernel")
    given = parser.parse_args(arguments)
    backend = CppBackend()
    ready = backend.probe()
    if isinstance(ready, Missing):
        raise SystemExit(f"no C++ compiler: {ready.why}; {ready.how}")
    folders = given.folders or sorted(path.parent for path in FOLDER.glob("*/frozen.json"))
    folders, budget_s, times = (folders[:1], 8.0, 2) if given.quick else (folders, given.budget_s, given.times)
    rows = []
    for folder in folders:
        rows.append(compared(folder, backend, ready.target, budget_s, times))
        print({k: v for k, v in rows[-1].items() if k != "turns"}, flush=True)
    path = write_result("transcripts", {"rows": rows}, quick=given.quick)
    told = {row["workload"]: row["agents_over_builtin"] for row in rows}
    finish("transcripts", {"agents_over_builtin": told, "results": str(path)})


if __name__ == "__main__":
    main()
