"""Does experience make the next search shorter? Candidates to 95 % of the final speed, with and without a memory.

`python -m benchmarks.bench_memory [--quick] [--only 'norm|decode'] [--effort quick] [--seeds 5] [--table FILE] [--simulated]`

The workloads are the regions of the region suite's cases, those of few enough elements. For every seed each workload is
searched with an empty memory, and then again with the experiences of ten others (drawn by the seed). What is compared is
the number of candidates until a kernel reaches 95 % of the speed that the search with the empty memory ended at. Where the
seed kernel is there already nothing can be saved; such searches are counted, and left out of the shares under "to_learn".

Promises: a kernel is timed three times when it is first asked for and its median stands for every later search, so that
all searches of a workload see one landscape and luck in a single timing decides nothing. Of many medians the highest is the
luckiest: kernels near the best are timed nine times, unless three agree, and the searches done again on what that gives,
until nothing near the best is new. Does not promise that a full evaluation would rank near ties the same way.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from accelopt_backends.base import Backend, Missing
from accelopt_compile.events import MemoryLog
from accelopt_compile.records import Experience, Workload
from accelopt_compile.search import Budget, Memory, SearchResult, SearchSettings, SearchTask, search
from accelopt_compile.search.builtin import BuiltinProposer
from accelopt_compile.search.simulated import Landscape, SimulatedEvaluator, simulated_task
from accelopt_compile.search.trials import Evaluator, trial_key
from benchmarks.harness import finish, write_result
from benchmarks.measured import Case, Measured, Table

SHARE = 0.95
TEACHERS = 10
"""Other workloads whose experiences a search with memory has."""
MOST = 48
"""Candidates a search at most; searches end by themselves long before."""
LARGEST = 4 << 20
"""Elements of all inputs of a case at most: larger ones are timed for too long to be searched ten times."""


def run(case: Case, landscape: Measured, prior: Sequence[Experience], *, seed: int) -> SearchResult:
    """One search of `case`, repeated while it meets kernels near the best that were not timed often enough. No candidate is
    evaluated in full: only the way to the best one is looked at. Candidates are given in the order of their evaluation."""
    while True:
        log = MemoryLog()
        found = search(
            replace(case.task, settings=replace(case.task.settings, finalists=0)),
            proposer=BuiltinProposer(),
            evaluator=landscape,
            memory=Memory(prior=prior),
            budget=Budget(candidates=MOST, clock=time.monotonic),
            rng=random.Random(seed),
            clock=time.monotonic,
            log=log,
        )
        if landscape.settle(random.Random(seed)):
            order = [event["key"] for event in log.events() if event["kind"] == "verdict"]
            candidates = sorted(found.candidates, key=lambda c: order.index(trial_key(c.source, c.tunables)))
            return replace(found, candidates=tuple(candidates))


def speeds(result: SearchResult) -> tuple[float, ...]:
    return tuple(c.verdict.timing.speedup for c in result.candidates)


def reaches(result: SearchResult, speed: float) -> int:
    """Candidates until `speed`; one more than all of them where it is not reached."""
    found = speeds(result)
    return next((i + 1 for i, s in enumerate(found) if s >= speed), len(found) + 1)


def compare(cases: Sequence[Case], seeds: Sequence[int], table: Table) -> list[dict[str, Any]]:
    """Every workload and seed without memory, then with ten others' experiences; a row each."""
    landscapes = {case.name: Measured(case, table) for case in cases}
    cold: dict[tuple[str, int], SearchResult] = {}
    for case in cases:
        for seed in seeds:
            cold[case.name, seed] = run(case, landscapes[case.name], (), seed=seed)
        landscapes[case.name].close()
        ways = [" ".join(f"{s:.2f}" for s in speeds(cold[case.name, seed])) for seed in seeds[:1]]
        print(f"empty memory: {case.name}: {ways[0]}", flush=True)
    rows = []
    for case in cases:
        for seed in seeds:
            if not cold[case.name, seed].candidates:
                continue
            others = [other.name for other in cases if other.name != case.name]
            teachers = random.Random(seed).sample(others, min(TEACHERS, len(others)))
            prior = [experience for name in teachers for experience in cold[name, seed].experiences]
            warm = run(case, landscapes[case.name], prior, seed=seed)
            rows.append({"seed": seed, "experiences": len(prior)} | row(case, cold[case.name, seed], warm))
        landscapes[case.name].close()
        print(f"{case.name}: {[(r['cold']['candidates'], r['warm']['candidates']) for r in rows if r['workload'] == case.name]}")
    return rows


def row(case: Case, cold: SearchResult, warm: SearchResult) -> dict[str, Any]:
    """The two searches of one workload side by side. One with memory that never gets there counts as many candidates as the one
    without took to its end, at least: to give up early saves nothing."""
    goal = SHARE * max(speeds(cold))
    with_memory = _side(warm, goal)
    if not with_memory["reached"]:
        with_memory["candidates"] = max(with_memory["candidates"], len(cold.candidates))
    return {"workload": case.name, "family": case.task.family, "cold": _side(cold, goal), "warm": with_memory}


def _side(result: SearchResult, goal: float) -> dict[str, Any]:
    best = max(speeds(result), default=0.0)
    return {"best": best, "reached": best >= goal, "candidates": reaches(result, goal), "evaluated": result.evaluated}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Shares of the candidates that memory leaves: over all searches, and over those that needed more than the seed."""
    to_learn = [r for r in rows if r["cold"]["candidates"] > 1]
    return {"all": shares(rows), "to_learn": shares(to_learn), "workloads": len({r["workload"] for r in rows})}


def shares(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Candidates with memory over those without: the sums, per seed with their range, and the median of the searches."""
    if not rows:
        return {"searches": 0}
    by_seed = [_share([r for r in rows if r["seed"] == seed]) for seed in sorted({r["seed"] for r in rows})]
    single = sorted(r["warm"]["candidates"] / r["cold"]["candidates"] for r in rows)
    return {
        "searches": len(rows),
        "unreached": sum(not r["warm"]["reached"] for r in rows),
        "cold_candidates": sum(r["cold"]["candidates"] for r in rows),
        "warm_candidates": sum(r["warm"]["candidates"] for r in rows),
        "share": round(_share(rows), 3),
        "share_by_seed": [round(share, 3) for share in by_seed],
        "share_median": round(statistics.median(single), 3),
        "share_quartiles": [round(q, 3) for q in statistics.quantiles(single, n=4)] if len(single) > 1 else [],
        "final_speed_ratio": round(statistics.geometric_mean(r["warm"]["best"] / r["cold"]["best"] for r in rows), 3),
    }


def _share(rows: Sequence[Mapping[str, Any]]) -> float:
    return float(sum(r["warm"]["candidates"] for r in rows) / sum(r["cold"]["candidates"] for r in rows))


# ---------------------------------------------------------------- cases


def simulated_cases(count: int, settings: SearchSettings) -> list[Case]:
    """Workloads of the simulated world, for trying this script without a compiler."""
    return [
        Case(
            name=f"simulated-{number}",
            task=simulated_task(number, settings=settings),
            opened=lambda number=number: nullcontext(  # type: ignore[misc]
                SimulatedEvaluator(landscape=Landscape(family="norm", workload=number), seed=number)
            ),
        )
        for number in range(count)
    ]


@contextmanager
def evaluating(workload: Workload, binding: Mapping[str, int], backend: Backend, threads: int) -> Iterator[Evaluator]:
    """An evaluator with a folder of its own."""
    from accelopt_compile.evaluate.evaluate import open_evaluator

    with (
        tempfile.TemporaryDirectory(prefix="accelopt-bench-") as workdir,
        open_evaluator(workload, binding, backend=backend, threads=threads, seed=0, workdir=workdir) as evaluator,
    ):
        yield evaluator


def cpp_cases(settings: SearchSettings, threads: int, only: str) -> list[Case]:
    """The distinct regions of the region suite's cases that the C++ backend takes and whose tensors are small enough to be
    searched many times, each named after the first case that has it."""
    from accelopt_backends.cpp import CppBackend
    from accelopt_compile.family import kind_of
    from benchmarks.region_cases import cases
    from benchmarks.region_survey import regions_of

    backend: Backend = CppBackend()
    ready = backend.probe()
    if isinstance(ready, Missing):
        raise SystemExit(f"{ready.why}; {ready.how}")
    found: dict[str, Case] = {}
    for suited in cases():
        if not re.search(only, suited.key) or sum(tensor.numel() for tensor in suited.make().inputs) > LARGEST:
            continue
        for region in regions_of(suited).found:
            workload, binding = region.workload, region.binding
            if region.part or workload is None or workload.digest in found or backend.supports(workload) is not None:
                continue

            task = SearchTask(
                workload=workload,
                binding=binding,
                target=ready.target,
                backend=backend,
                family=kind_of(workload),
                settings=settings,
                threads=threads,
            )
            opened = partial(evaluating, workload, binding, backend, threads)
            found[workload.digest] = Case(name=f"{suited.key}/{region.name}", task=task, opened=opened)
    return list(found.values())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="six workloads, two seeds")
    parser.add_argument("--only", default="", help="cases of the suite whose name matches this regular expression")
    parser.add_argument("--effort", default="quick", help="preset of the search")
    parser.add_argument("--seeds", type=int, default=5, help="searches of a workload on either side")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", type=Path, help="file of measured kernels to read, and to add new ones to")
    parser.add_argument("--simulated", action="store_true", help="the simulated world instead of the C++ backend")
    given = parser.parse_args(arguments)
    settings = SearchSettings.preset(given.effort)
    cases = simulated_cases(16, settings) if given.simulated else cpp_cases(settings, given.threads, given.only)
    cases = cases[:6] if given.quick else cases
    rows = compare(cases, range(2 if given.quick else given.seeds), Table(given.table))
    told = summary(rows)
    if not given.simulated:
        write_result("memory", {"rows": rows, "summary": told, "effort": given.effort}, quick=given.quick)
    finish("memory", told)


if __name__ == "__main__":
    main()
