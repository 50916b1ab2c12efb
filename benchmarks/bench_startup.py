"""From `torch.compile` to the first result: Inductor and accelopt, cold and warm, each in a fresh process.

cold         Inductor's cache is empty                       warm   it holds this very model
search       the store is empty too: compile, search, compile  hit    the store holds a verdict for every region

    python -m benchmarks.bench_startup --quick
    python -m benchmarks.bench_startup --workload llama_prefill --repeats 5
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

from benchmarks import harness
from benchmarks.workloads import NAMES

BACKENDS: dict[str, dict[str, Any]] = {
    "inductor": {"backend": "inductor"},
    "search": {"backend": "accelopt", "options": {"mode": "tune"}},
    "hit": {"backend": "accelopt", "options": {"mode": "apply"}},
}


def child(arguments: argparse.Namespace) -> None:
    """Time the imports, the first call (which compiles) and a later one."""
    started = time.perf_counter()
    from benchmarks.steps import make_step

    imported = time.perf_counter()
    chosen = BACKENDS[arguments.child]
    if arguments.child == "search":
        chosen = {**chosen, "options": {"mode": "tune", "budget_s": arguments.budget_s}}
    step = make_step(arguments.workload, chosen, small=arguments.quick)
    built = time.perf_counter()
    step.call()
    compiled = time.perf_counter()
    step.call()
    found = {"import_s": imported - started, "first_call_s": compiled - built, "second_call_s": time.perf_counter() - compiled}
    harness.finish("startup.child", found)


def one_round(arguments: argparse.Namespace, scratch: str, number: int, store: str) -> dict[str, float]:
    """Seconds of the first call: Inductor cold and warm, then accelopt with hits, cold and warm; one Inductor cache each."""
    found = {}
    for role in ("inductor", "hit"):
        for state in ("cold", "warm"):
            caches = os.path.join(scratch, f"inductor-{role}-{number}")
            found[f"{role}_{state}"] = first_call(arguments, role, caches, store)
    return found


def first_call(arguments: argparse.Namespace, role: str, inductor: str, store: str) -> float:
    environment = {"TORCHINDUCTOR_CACHE_DIR": inductor, "ACCELOPT_CACHE_DIR": store}
    options = ["--child", role, "--workload", arguments.workload, "--budget-s", str(arguments.budget_s)]
    options += ["--quick"] if arguments.quick else []
    answer = harness.run_fresh("benchmarks.bench_startup", *options, env=environment)
    return float(answer["first_call_s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small model, two repeats")
    parser.add_argument("--workload", choices=NAMES, default="llama_prefill")
    parser.add_argument("--repeats", type=int, default=None, help="[default: 2 quick, else 5]")
    parser.add_argument("--budget-s", type=float, default=None, help="seconds of search [default: 20 quick, else 120]")
    parser.add_argument("--child", choices=tuple(BACKENDS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.budget_s = arguments.budget_s or (20.0 if arguments.quick else 120.0)
    if arguments.child:
        child(arguments)
        return
    with tempfile.TemporaryDirectory(prefix="accelopt-startup-") as scratch:
        store = os.path.join(scratch, "store")
        search_s = first_call(arguments, "search", os.path.join(scratch, "inductor-search"), store)
        repeats = arguments.repeats or (2 if arguments.quick else 5)
        rounds = [one_round(arguments, scratch, number, store) for number in range(repeats)]
    samples = {name: harness.Samples(seconds=tuple(r[name] for r in rounds)) for name in rounds[0]}
    measured = {name: taken.to_json() for name, taken in samples.items()}
    path = harness.write_result(
        "startup", {"workload": arguments.workload, "search_s": search_s, "first_call": measured}, quick=arguments.quick
    )
    medians = {name: taken.median_s for name, taken in samples.items()}
    for name, seconds in medians.items():
        print(f"{name:16} {seconds:7.2f} s")
    harness.finish("startup", {**medians, "search_s": search_s, "results": str(path)})


if __name__ == "__main__":
    main()
