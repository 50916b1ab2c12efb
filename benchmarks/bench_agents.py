"""Which part of the agents pays? The same budget of candidates, spent in different ways, over a fixed set of workloads.

    python -m benchmarks.bench_agents                                   a scripted model in the simulated world
    python -m benchmarks.bench_agents --model NAME --base-url URL       a live one on C++ kernels (OPENAI_API_KEY)

Arms: `beam` (AccelOpt's agents as they are by default), `sampling` (as many plans and kernels, all from the seed),
`no_memory`, `no_fixer`, `builtin` (no model), `both` (the built-in proposer fills the time). A row is one arm on one workload
and seed: best speedup, share of accepted kernels, candidates to 95 % of the best of all arms, tokens and dollars.

Promises: every arm of a workload sees one landscape of timings where it is simulated, and the same number of evaluations
everywhere. Does not promise that the scripted model's numbers say anything about a real one: they show that the arms differ
in what they claim to, and that the script works.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from accelopt_backends.base import Missing
from accelopt_compile.events import MemoryLog
from accelopt_compile.llm.client import ROLES, Client
from accelopt_compile.llm.prices import load_prices
from accelopt_compile.llm.scripted import ScriptedClient
from accelopt_compile.llm.spending import MeteredClient, Spending
from accelopt_compile.search import Budget, Memory, SearchSettings, SearchTask, search
from accelopt_compile.search.agents import AgentProposer
from accelopt_compile.search.builtin import BuiltinProposer
from accelopt_compile.search.proposer import Proposer
from accelopt_compile.search.selection import speed
from accelopt_compile.search.simulated import Landscape, SimulatedEvaluator, simulated_task
from accelopt_compile.search.simulated_model import SimulatedModel
from accelopt_compile.search.task import SearchResult
from accelopt_compile.search.trials import Evaluator
from benchmarks.harness import finish, write_result

SHARE = 0.95
CANDIDATES = 48
BASE = SearchSettings(rounds=16, patience=0, hopeless_after=0, stop_at_roofline=None, use_prior=False, warm_starts=0)

ARMS: Mapping[str, SearchSettings] = {
    "beam": BASE,
    # One round with every plan on the seed: what is left of the loop is repeated sampling.
    "sampling": replace(
        BASE, rounds=1, beam_width=1, plans_per_candidate=CANDIDATES, tuning_trials=0, polish_trials=0, lessons_per_round=0
    ),
    "no_memory": replace(BASE, lessons_per_round=0, memory_capacity=0),
    "no_fixer": replace(BASE, fix_attempts=0),
    "builtin": BASE,
    "both": BASE,
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One workload, and how its evaluator is opened."""

    name: str
    task: SearchTask
    opened: Callable[[], Any]


def run(case: Case, arm: str, seed: int, client: Client, model: str, candidates: int) -> dict[str, Any]:
    """One arm on one workload: a row."""
    spending = Spending(prices=load_prices())
    agents = AgentProposer(MeteredClient(client, spending), models={role: [model] for role in ROLES})
    proposer: Proposer = BuiltinProposer() if arm == "builtin" else agents
    began = time.monotonic()
    with case.opened() as evaluator:
        result = search(
            replace(case.task, settings=ARMS[arm]),
            proposer=proposer,
            companion=BuiltinProposer() if arm == "both" else None,
            evaluator=evaluator,
            memory=Memory(),
            budget=Budget(candidates=candidates, clock=time.monotonic),
            rng=random.Random(f"{seed} {case.name}"),
            clock=time.monotonic,
            log=MemoryLog(),
        )
    total = spending.to_json()["total"]
    return {
        "workload": case.name,
        "arm": arm,
        "seed": seed,
        "speeds": [round(s, 4) for s in best_so_far(result)],
        "best": round(max(map(speed, result.candidates), default=0.0), 4),
        "evaluated": result.evaluated,
        "accepted": len(result.candidates),
        "rejected": dict(result.rejected),
        "reason": result.reason,
        "tokens": total["prompt"] + total["completion"],
        "usd": total["usd"],
        "seconds": round(time.monotonic() - began, 2),
    }


def best_so_far(result: SearchResult) -> Iterator[float]:
    """The best speedup after each accepted kernel."""
    best = 0.0
    for candidate in result.candidates:
        best = max(best, speed(candidate))
        yield best


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A line an arm: geometric mean of the best speedups with its spread over seeds, and what they cost."""
    goals: dict[tuple[str, int], float] = {}
    for row in rows:
        key = (row["workload"], row["seed"])
        goals[key] = max(goals.get(key, 0.0), row["best"])
    return {arm: _arm([r for r in rows if r["arm"] == arm], goals) for arm in ARMS if any(r["arm"] == arm for r in rows)}


def _arm(rows: Sequence[Mapping[str, Any]], goals: Mapping[tuple[str, int], float]) -> dict[str, Any]:
    by_seed = {s: [r["best"] for r in rows if r["seed"] == s] for s in sorted({r["seed"] for r in rows})}
    means = [math.exp(statistics.fmean(math.log(max(b, 1e-6)) for b in bests)) for bests in by_seed.values()]
    reached = [_reached(r["speeds"], SHARE * goals[r["workload"], r["seed"]]) for r in rows]
    return {
        "geomean": round(statistics.fmean(means), 3),
        "of_seeds": [round(m, 3) for m in means],
        "reached_goal": round(sum(r is not None for r in reached) / len(rows), 3),
        "accepted_to_goal": statistics.median([r if r is not None else CANDIDATES for r in reached]),
        "accepted_share": round(sum(r["accepted"] for r in rows) / max(1, sum(r["evaluated"] for r in rows)), 3),
        "tokens": sum(r["tokens"] for r in rows),
        "usd": None if any(r["usd"] is None for r in rows) else round(sum(r["usd"] for r in rows), 4),
    }


def _reached(speeds: Sequence[float], goal: float) -> int | None:
    return next((i + 1 for i, s in enumerate(speeds) if s >= goal), None)


# ---------------------------------------------------------------- workloads


def simulated_cases(count: int) -> list[Case]:
    """Landscapes of one family, each another workload."""

    def opened(number: int) -> Callable[[], Any]:
        @contextmanager
        def make() -> Iterator[Evaluator]:
            yield SimulatedEvaluator(landscape=Landscape(family="norm", workload=number), seed=number)

        return make

    return [Case(name=f"simulated-{n}", task=simulated_task(n, settings=BASE), opened=opened(n)) for n in range(count)]


def cpp_cases(threads: int) -> list[Case]:
    """The agents' fixed set, on the C++ backend. Ends the script with a word where there is no compiler."""
    from accelopt_backends.cpp import CppBackend
    from accelopt_compile.evaluate.evaluate import open_evaluator
    from accelopt_compile.family import kind_of
    from benchmarks import agent_cases

    backend = CppBackend()
    ready = backend.probe()
    if isinstance(ready, Missing):
        raise SystemExit(f"no C++ compiler: {ready.why}; {ready.how}")

    def opened(workload: Any, binding: Mapping[str, int]) -> Callable[[], Any]:
        @contextmanager
        def make() -> Iterator[Evaluator]:
            with (
                tempfile.TemporaryDirectory() as folder,
                open_evaluator(workload, binding, backend=backend, threads=threads, seed=0, workdir=folder) as evaluator,
            ):
                yield evaluator

        return make

    found = []
    for name in agent_cases.CASES:
        module, inputs = getattr(agent_cases, name)()
        workload, binding = captured(module, inputs)[0]
        task = SearchTask(
            workload=workload, binding=binding, target=ready.target, backend=backend, family=kind_of(workload), threads=threads
        )
        found.append(Case(name=name, task=task, opened=opened(workload, binding)))
    return found


def captured(function: Callable[..., Any], inputs: Sequence[Any]) -> list[tuple[Any, Mapping[str, int]]]:
    """The regions of a function as torch.compile gives them, hottest first, each with its sizes."""
    import torch

    from accelopt_compile.sites import sites_of

    found: list[tuple[Any, Mapping[str, int]]] = []

    def collect(gm: Any, example_inputs: Any) -> Any:
        found.extend((site.workload, dict(site.binding)) for site in sites_of(gm, example_inputs)[0])
        return gm.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, backend=collect)(*inputs)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two workloads, one seed, 16 candidates")
    parser.add_argument("--model", help="a live model on C++ kernels; none: a scripted one in the simulated world")
    parser.add_argument("--base-url", default="https://api.openai.com/v1")
    parser.add_argument("--arms", nargs="*", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--candidates", type=int, default=CANDIDATES, help="evaluations of each search")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    seeds, candidates = (1, 16) if given.quick else (given.seeds, given.candidates)
    if given.model is None:
        cases, model = simulated_cases(2 if given.quick else 12), "gpt-oss-120b"
        client: Client = ScriptedClient(SimulatedModel(faults=0.15))
    else:
        cases, model, client = cpp_cases(given.threads)[: 2 if given.quick else None], given.model, _live(given.base_url)
    rows = []
    for case in cases:
        for seed in range(seeds):
            rows += [run(case, arm, seed, client, model, candidates) for arm in given.arms]
        told = ", ".join(f"{r['arm']} {r['best']:.2f}x" for r in rows[-len(given.arms) :])
        print(f"{case.name}: {told}", flush=True)
    kind = "simulated" if given.model is None else "live"
    path = write_result(f"agents-{kind}", {"rows": rows, "summary": summary(rows), "model": model}, quick=given.quick)
    finish(f"agents-{kind}", {"arms": summary(rows), "workloads": len(cases), "seeds": seeds, "results": str(path)})


def _live(base_url: str) -> Client:
    import os

    from accelopt_compile.llm.openai_client import OpenAIClient, key_from_environment

    return OpenAIClient(base_url, key_from_environment(os.environ))


if __name__ == "__main__":
    main()
