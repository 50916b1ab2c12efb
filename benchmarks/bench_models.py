"""Whole models: eager, Inductor and accelopt, interleaved, with their numerics beside.

Per workload two fresh processes: one compiles with `mode="tune"` and fills the store, one compiles with
`mode="apply"`, checks every variant's first step against eager and times all three in shuffled rounds. A third one
profiles (not with --quick). Time and errors thus never come from a process that was searching.

    python -m benchmarks.bench_models --quick
    python -m benchmarks.bench_models --only llama_prefill,llama_train --budget-s 300    the day's other results stay
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from typing import Any

from benchmarks import harness
from benchmarks.workloads import NAMES


def tune(workload: str, *, small: bool, budget_s: float) -> dict[str, Any]:
    """Child: compile in tune mode, so that the store holds what the search finds within `budget_s`."""
    from benchmarks.steps import make_step

    arguments = {"backend": "accelopt", "options": {"mode": "tune", "budget_s": budget_s}}
    step = make_step(workload, arguments, small=small)
    started = time.perf_counter()
    step.call()
    return {"tune_s": time.perf_counter() - started, "regions": region_outcomes()}


def region_outcomes() -> dict[str, int]:
    """How many regions of this process came out how: {"HIT": 12, "BASELINE": 3, ...}."""
    from collections import Counter

    from accelopt_compile import api

    return dict(Counter(region["outcome"] for graph in api.explain(structured=True) for region in graph["regions"]))


def measure(workload: str, *, small: bool, rounds: int, limit_s: float) -> dict[str, Any]:
    """Child: first steps and their errors against eager, graphs, and interleaved times of every variant."""
    from torch._dynamo.utils import counters

    from benchmarks.steps import VARIANTS, make_step, worst_error

    steps, found = {}, {}
    reference: list[Any] = []
    for name, arguments in VARIANTS.items():
        counters.clear()
        steps[name] = make_step(workload, arguments, small=small)
        started = time.perf_counter()
        first = [t.clone() for t in steps[name].call()]
        compile_s = time.perf_counter() - started
        steps[name].call()
        reference = reference or first
        found[name] = {
            "first_call_s": compile_s,
            "worst_error": worst_error(first, reference),
            "graphs": counters["stats"]["unique_graphs"],
            "graph_breaks": sum(counters["graph_break"].values()),
        }
    samples = harness.interleave({name: step.call for name, step in steps.items()}, rounds=rounds, limit_s=limit_s)
    for name, taken in samples.items():
        found[name] |= taken.to_json()
    ours = samples["accelopt"]
    ratios = {f"over_{name}": harness.speedup(samples[name], ours) for name in ("eager", "inductor")}
    return {"variants": found, **ratios, "regions": region_outcomes()}


def profile(workload: str, *, small: bool) -> dict[str, Any]:
    """Child: the ten most expensive entries of each variant's profile, as shares of its total."""
    from torch._inductor import config
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    from benchmarks.steps import VARIANTS, make_step

    config.cpp.enable_kernel_profile = True
    shares = {}
    for name, arguments in VARIANTS.items():
        step = make_step(workload, arguments, small=small)
        for _ in range(3):
            step.call()
        with torch_profile(activities=[ProfilerActivity.CPU]) as taken:
            for _ in range(3):
                step.call()
        entries = sorted(taken.key_averages(), key=lambda e: -e.self_cpu_time_total)
        total = sum(e.self_cpu_time_total for e in entries) or 1
        shares[name] = {e.key[:120]: round(e.self_cpu_time_total / total, 4) for e in entries[:10]}
    return shares


def child(arguments: argparse.Namespace) -> None:
    small, workload = arguments.quick, arguments.workload
    match arguments.child:
        case "tune":
            found = tune(workload, small=small, budget_s=arguments.budget_s)
        case "measure":
            found = measure(workload, small=small, rounds=arguments.rounds, limit_s=arguments.limit_s)
        case _:
            found = profile(workload, small=small)
    harness.finish(f"models.{workload}", found)


def one_workload(workload: str, arguments: argparse.Namespace, *, store: str, inductor: str) -> dict[str, Any]:
    """All processes of one workload; a failed one is a result too."""
    environment = {"ACCELOPT_CACHE_DIR": store, "TORCHINDUCTOR_CACHE_DIR": inductor}
    shared = ["--workload", workload, "--rounds", str(arguments.rounds), "--limit-s", str(arguments.limit_s)]
    shared += ["--budget-s", str(arguments.budget_s), *(["--quick"] if arguments.quick else [])]
    found: dict[str, Any] = {}
    for stage in ("tune", "measure") if arguments.quick else ("tune", "measure", "profile"):
        try:
            answer = harness.run_fresh("benchmarks.bench_models", "--child", stage, *shared, env=environment)
        except RuntimeError as failure:
            print(f"{workload}: {failure}", file=sys.stderr)
            return found | {"failed": stage, "output": str(failure)[-2000:]}
        answer.pop("benchmark")
        found[stage] = answer
    return found


def show(workload: str, found: dict[str, Any]) -> None:
    if "failed" in found:
        print(f"{workload:14} failed in {found['failed']}", flush=True)
        return
    measured = found["measure"]
    variants = [(name, measured["variants"][name]) for name in ("eager", "inductor", "accelopt")]
    times = "  ".join(f"{name} {v['median_s'] * 1e3:9.2f} ms (error {v['worst_error']:.1e})" for name, v in variants)
    print(
        f"{workload:14} {times}  over Inductor {measured['over_inductor']:.3f}x  over eager {measured['over_eager']:.3f}x",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small models, few rounds, no profile")
    parser.add_argument("--only", default=",".join(NAMES), help="comma-separated workloads")
    parser.add_argument("--budget-s", type=float, default=None, help="seconds of search a workload [default: 20 quick, else 240]")
    parser.add_argument("--rounds", type=int, default=None, help="timed rounds [default: 10 quick, else 40]")
    parser.add_argument("--limit-s", type=float, default=60.0, help="seconds after which no further round is started")
    parser.add_argument("--store", help="store directory [default: a fresh one]")
    parser.add_argument("--child", choices=("tune", "measure", "profile"), help=argparse.SUPPRESS)
    parser.add_argument("--workload", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.budget_s = arguments.budget_s or (20.0 if arguments.quick else 240.0)
    arguments.rounds = arguments.rounds or (10 if arguments.quick else 40)
    if arguments.child:
        child(arguments)
        return
    unknown = set(arguments.only.split(",")) - set(NAMES)
    if unknown:
        parser.error(f"no such workload: {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
    found: dict[str, Any] = {}
    around, name = harness.environment(), f"models-{harness.device_name()}"
    before = harness.of_today(name, quick=arguments.quick)
    alike = harness.alike(around, before.get("environment", {}))
    kept = {model: row for model, row in before.get("workloads", {}).items() if alike and model not in arguments.only.split(",")}
    with tempfile.TemporaryDirectory(prefix="accelopt-models-") as scratch:
        store = arguments.store or os.path.join(scratch, "store")
        for workload in arguments.only.split(","):
            answer = one_workload(workload, arguments, store=store, inductor=os.path.join(scratch, "inductor"))
            found[workload] = answer | {"commit": around["commit"]}
            show(workload, found[workload])
            # An interrupted run keeps these.
            path = harness.write_result(name, {"workloads": kept | found}, quick=arguments.quick)
    ratios = [w["measure"]["over_inductor"] for w in found.values() if "failed" not in w]
    summary = {"over_inductor_geomean": harness.geomean(ratios), "over_inductor_worst": min(ratios, default=None)}
    harness.finish("models", {**summary, "failed": [n for n, w in found.items() if "failed" in w], "results": str(path)})


if __name__ == "__main__":
    main()
