"""The process in which cases run: `bench_regions` starts one per thread count, and another one where a case kills it.

Reads one JSON job from its argument, prints one JSON line per case as it is done.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from accelopt_backends.base import Backend
from accelopt_compile import outcomes
from accelopt_compile.config import settings_from
from accelopt_compile.evaluate.bench import keep_freed_memory
from accelopt_compile.evaluate.timing import clock_for
from accelopt_compile.launch import kernels
from accelopt_compile.pipeline import bench_for
from benchmarks.harness import speedup
from benchmarks.region_calls import INDUCTOR, Variant, compiled, eagers, fresh_inputs
from benchmarks.region_cases import Case, Problem, cases
from benchmarks.region_survey import regions_of, survey
from benchmarks.region_timing import Calls, Measured, Plan, measure
from benchmarks.steps import worst_error

Job = Mapping[str, Any]
AGAIN = "inductor_again"
"""A second instance of Inductor's call: its ratio to the first is the noise."""


def variants(case: Case, problem: Problem, job: Job) -> tuple[list[Variant], dict[str, Any]]:
    """Eager, Inductor and ours, compiled; and what is to be said of ours."""
    found = eagers(case, problem)
    for name, options in INDUCTOR.items():
        found.append(compiled(name, case, problem, backend="inductor", options=dict(options)))
    outcomes.reports.clear()
    launched = _launches()
    options = {"mode": job["mode"], "budget_s": job["budget_s"], "cache_dir": job["cache_dir"], "log": job["log"]}
    ours = compiled("accelopt", case, problem, backend="accelopt", options=options)
    reference = found[0].first
    said = {
        "regions": [_region(r) for report in outcomes.reports.all() for r in report.regions],
        "refused": {why: n for report in outcomes.reports.all() for why, n in report.refused.items()},
        "problems": [report.problem for report in outcomes.reports.all() if report.problem],
        "launches": _launches() - launched,
        "compile_s": round(ours.compile_s, 2),
        "errors": {v.name: worst_error(list(v.first), list(reference)) for v in (*found, ours)},
    }
    return [Variant(name=v.name, make=v.make) for v in (*found, ours)], said


def _launches() -> int:
    return sum(one["calls"] for one in kernels.statistics().values())


def _region(report: outcomes.RegionReport) -> dict[str, Any]:
    kept = ("workload", "operators", "count", "outcome", "reason")
    numbers = {"speedup": round(report.speedup, 3), "seconds": round(report.seconds, 2)}
    return {name: getattr(report, name) for name in kept} | {"binding": dict(report.binding)} | numbers


def measured(case: Case, job: Job) -> dict[str, Any]:
    """One case: compiled, tuned where the job says so, timed. Plain JSON."""
    problem, generator = case.make(), random.Random(case.key)
    made, said = variants(case, problem, job)

    def make() -> Calls:
        fresh = fresh_inputs(problem, generator)
        calls = {v.name: v.make(fresh) for v in made}
        calls[AGAIN] = next(v for v in made if v.name == "inductor").make(fresh)
        return calls

    with torch.no_grad():
        taken = measure(make, Plan(limit_s=job["limit_s"]), clock=clock_for(job["threads"]), generator=generator)
    rivals = [v.name for v in made if v.name != "accelopt"]
    ratios = {name: taken.ratio(name, "accelopt") for name in rivals}
    baseline = min(ratios, key=lambda name: ratios[name].ratio)
    roofline_us = _roofline_us(case, bench_for(settings_from({"cache_dir": job["cache_dir"]})).backend, job["threads"])
    ours_us = 1e6 * taken.samples("accelopt").median_s
    return {
        "variants": {name: _samples(taken, name) for name in (*rivals, "accelopt")},
        "baseline": baseline,
        **ratios[baseline].to_json(),
        "over": {name: ratio.to_json() for name, ratio in ratios.items()},
        "noise": taken.ratio("inductor", AGAIN).to_json(),
        "blocks": len(taken.blocks),
        "budget_s": job["budget_s"],
        "adopted": timed_adopted(case, said["regions"]),
        "roofline_us": roofline_us and round(roofline_us, 2),
        "roofline_share": roofline_us and round(roofline_us / ours_us, 3),
        **said,
    }


def _samples(taken: Measured, name: str) -> dict[str, Any]:
    samples = taken.samples(name)
    return {
        "median_us": round(1e6 * samples.median_s, 3),
        "spread": round(samples.spread, 4),
        "samples_us": [round(1e6 * s, 2) for s in samples.seconds],
    }


def timed_adopted(case: Case, regions: Sequence[Mapping[str, Any]]) -> int:
    """How many regions of what is timed got a kernel; a forward pass that only makes ready is not timed."""
    counted = {r["workload"] for r in regions}
    if case.mode == "backward":
        counted = {f.workload.digest for f in regions_of(case).found if f.role.startswith("backward") and f.workload}
    return sum(r["outcome"] in ("HIT", "TUNED") and r["workload"] in counted for r in regions)


def _roofline_us(case: Case, backend: Backend, threads: int) -> float | None:
    """What the device needs for all regions of what is timed; None where a region has no workload or there is none."""
    role = "backward" if case.mode == "backward" else ""
    found = [f for f in regions_of(case).found if not f.part and f.role.startswith(role)]
    if not found or any(f.workload is None for f in found):
        return None
    return 1e6 * sum(f.count * backend.roofline(f.workload, f.binding, threads).seconds for f in found if f.workload)


def same_twice(case: Case, job: Job) -> dict[str, Any]:
    """Trials of the timing rule with one kernel on both sides: ratio and interval of each."""
    problem, generator = case.make(), random.Random(f"{case.key} {time.time_ns()}")
    kernel = compiled("inductor", case, problem, backend="inductor")

    def make() -> Calls:
        fresh = fresh_inputs(problem, generator)
        return {"a": kernel.make(fresh), "b": kernel.make(fresh)}

    trials = []
    with torch.no_grad():
        for _ in range(job["trials"]):
            taken = measure(make, Plan(limit_s=job["limit_s"]), clock=clock_for(job["threads"]), generator=generator)
            trials.append(taken.ratio("a", "b").to_json() | {"of_medians": speedup(taken.samples("a"), taken.samples("b"))})
    return {"trials": trials}


def surveyed(case: Case, job: Job) -> dict[str, Any]:
    return survey(case, bench_for(settings_from({"cache_dir": job["cache_dir"]})).backend, job["threads"])


TASKS = {"measure": measured, "aa": same_twice, "survey": surveyed}


def main() -> None:
    keep_freed_memory()
    job: Job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    known = {case.key: case for case in cases()}
    for key in job["keys"]:
        case, started = known[key], time.monotonic()
        about = {"case": key, "family": case.family, "name": case.name, "dtype": case.dtype, "mode": case.mode}
        try:
            result = TASKS[job["task"]](case, job)
        except Exception as failure:  # one case that fails must not take the others with it; the result says so
            result = {"failed": f"{type(failure).__name__}: {failure}"[:1000]}
        around = {"load_1min": round(os.getloadavg()[0], 2), "took_s": round(time.monotonic() - started, 1)}
        print(json.dumps({**about, **result, **around}), flush=True)


if __name__ == "__main__":
    main()
