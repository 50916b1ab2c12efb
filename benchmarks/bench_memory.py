"""Does experience make the next search shorter? Candidates and seconds to 95 % of the final speed, memory on and off.

`python -m benchmarks.bench_memory [--quick] [--effort quick] [--budget-s 30] [--simulated]`

Small modules are captured as torch.compile would, and every distinct region of theirs that the C++ backend takes is a
workload. The first part of them is searched in turn, each with the experiences of those before it; the rest is
searched twice, without memory and with those experiences. What is compared is the number of candidates, and of
seconds, until a kernel reaches 95 % of the speed that the search without memory ended at.

Promises: both searches of a workload see the same baseline, seeds and budget, one right after the other. Does not
promise that the speed of a candidate, timed quickly, is what a full evaluation would give.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from accelopt_backends.base import Backend, Missing
from accelopt_compile.events import MemoryLog
from accelopt_compile.records import Experience, Workload
from accelopt_compile.search import Budget, Memory, SearchResult, SearchSettings, SearchTask, search
from accelopt_compile.search.builtin import BuiltinProposer
from accelopt_compile.search.simulated import Landscape, SimulatedEvaluator, simulated_task
from accelopt_compile.search.trials import Evaluator
from benchmarks.harness import finish, write_result

Opened = Callable[[], AbstractContextManager[Evaluator]]
SHARE = 0.95


@dataclass(frozen=True, kw_only=True)
class Case:
    """One workload to search, and how to open an evaluator for it."""

    name: str
    task: SearchTask
    opened: Opened


@dataclass(frozen=True, kw_only=True)
class Way:
    """What one search did: the best speed after each accepted candidate, and when (seconds since its start)."""

    result: SearchResult
    at_s: tuple[float, ...]

    @property
    def speeds(self) -> tuple[float, ...]:
        return tuple(c.verdict.timing.speedup for c in self.result.candidates)

    def reaches(self, speed: float) -> tuple[int, float]:
        """Candidates and seconds until `speed`; one more than all of them, and all the time, where it is not reached."""
        for i, found in enumerate(self.speeds):
            if found >= speed:
                return i + 1, self.at_s[i]
        return len(self.speeds) + 1, self.result.seconds


class _Stamped(MemoryLog):
    """A log that notes when verdicts that were accepted came in."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.at_s = time.monotonic(), []  # type: tuple[float, list[float]]

    def append(self, kind: str, /, **data: Any) -> None:
        super().append(kind, **data)
        if kind == "verdict" and data["effort"] == "quick" and "timing" in data["verdict"]:
            self.at_s.append(time.monotonic() - self.started)


def run(case: Case, prior: Sequence[Experience], *, budget_s: float, seed: int) -> Way:
    """One search of `case`."""
    log = _Stamped()
    with case.opened() as evaluator:
        result = search(
            case.task,
            proposer=BuiltinProposer(),
            evaluator=evaluator,
            memory=Memory(prior=prior),
            budget=Budget(seconds=budget_s, clock=time.monotonic),
            rng=random.Random(seed),
            clock=time.monotonic,
            log=log,
        )
    return Way(result=result, at_s=tuple(log.at_s))


def compare(cases: Sequence[Case], *, learn: int, budget_s: float, seed: int = 0) -> list[dict[str, Any]]:
    """Search the first `learn` cases in turn, then each other one without and with what they taught; a row each."""
    prior: tuple[Experience, ...] = ()
    for case in cases[:learn]:
        way = run(case, prior, budget_s=budget_s, seed=seed)
        prior += way.result.experiences
        print(
            f"learn {case.name}: {way.result.evaluated} evaluated, best {max(way.speeds, default=0.0):.2f}x, {way.result.reason}"
        )
    rows = []
    for case in cases[learn:]:
        cold, warm = (run(case, memory, budget_s=budget_s, seed=seed) for memory in ((), prior))
        if not cold.speeds:
            continue
        rows.append(row(case, cold, warm))
        print(f"{case.name}: {rows[-1]}")
    return rows


def row(case: Case, cold: Way, warm: Way) -> dict[str, Any]:
    """The two searches of one workload side by side."""
    goal = SHARE * max(cold.speeds)
    return {"workload": case.name, "family": case.task.family, "cold": _side(cold, goal), "warm": _side(warm, goal)}


def _side(way: Way, goal: float) -> dict[str, Any]:
    candidates, seconds = way.reaches(goal)
    best = max(way.speeds, default=0.0)
    return {"best": best, "candidates": candidates, "seconds": seconds, "evaluated": way.result.evaluated}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians over the workloads: the share of candidates and seconds that memory leaves, and the final speed it gives."""
    if not rows:
        return {"workloads": 0}
    return {
        "workloads": len(rows),
        "candidates_share": round(statistics.median(r["warm"]["candidates"] / r["cold"]["candidates"] for r in rows), 3),
        "seconds_share": round(statistics.median(r["warm"]["seconds"] / max(r["cold"]["seconds"], 1e-9) for r in rows), 3),
        "final_speed_ratio": round(statistics.geometric_mean(r["warm"]["best"] / r["cold"]["best"] for r in rows), 3),
    }


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


def cpp_cases(settings: SearchSettings, threads: int) -> list[Case]:
    """The distinct regions of small modules that the C++ backend takes."""
    from accelopt_backends.cpp import CppBackend
    from accelopt_compile.evaluate.evaluate import open_evaluator
    from accelopt_compile.signature import family_of

    backend: Backend = CppBackend()
    ready = backend.probe()
    if isinstance(ready, Missing):
        raise SystemExit(f"{ready.why}; {ready.how}")
    cases = []
    for name, workload, binding in small_regions():
        if backend.supports(workload) is not None:
            continue

        def opened(workload: Workload = workload, binding: Mapping[str, int] = binding) -> AbstractContextManager[Evaluator]:
            workdir = tempfile.mkdtemp(prefix="accelopt-bench-")
            return open_evaluator(workload, binding, backend=backend, threads=threads, seed=0, workdir=workdir)

        task = SearchTask(
            workload=workload,
            binding=binding,
            target=ready.target,
            backend=backend,
            family=family_of(workload),
            settings=settings,
            threads=threads,
        )
        cases.append(Case(name=name, task=task, opened=opened))
    return cases


def small_regions() -> list[tuple[str, Workload, Mapping[str, int]]]:
    """(name, workload, binding) of the distinct regions of a dozen small modules, in an order mixed by a fixed seed."""
    import torch
    from torch import nn

    from accelopt_compile.sites import sites_of

    modules: dict[str, tuple[nn.Module, tuple[int, ...]]] = {}
    for width in (256, 768, 1024, 4096):
        modules[f"layer_norm_{width}"] = (nn.LayerNorm(width), (512, width))
        modules[f"rms_norm_{width}"] = (nn.RMSNorm(width), (512, width))
        modules[f"softmax_{width}"] = (nn.Softmax(-1), (512, width))
        modules[f"gelu_norm_{width}"] = (nn.Sequential(nn.GELU(), nn.LayerNorm(width)), (512, width))
    found: dict[str, tuple[str, Workload, Mapping[str, int]]] = {}
    for name, (module, shape) in modules.items():

        def collect(gm: Any, example_inputs: Any, name: str = name) -> Any:
            for site in sites_of(gm, example_inputs)[0]:
                found.setdefault(site.workload.digest, (name, site.workload, dict(site.binding)))
            return gm.forward

        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(module, backend=collect)(torch.randn(shape))
    mixed = list(found.values())
    random.Random(0).shuffle(mixed)
    return mixed


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="six workloads, 10 s each")
    parser.add_argument("--effort", default="quick", help="preset of the search")
    parser.add_argument("--budget-s", type=float, default=30.0, help="seconds a search")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--simulated", action="store_true", help="the simulated world instead of the C++ backend")
    given = parser.parse_args(arguments)
    settings = SearchSettings.preset(given.effort)
    cases = simulated_cases(16, settings) if given.simulated else cpp_cases(settings, given.threads)
    cases = cases[:6] if given.quick else cases
    rows = compare(cases, learn=len(cases) * 5 // 8, budget_s=10.0 if given.quick else given.budget_s)
    told = summary(rows)
    if not given.simulated:
        write_result("memory", {"rows": rows, "summary": told}, quick=given.quick)
    finish("memory", told)


if __name__ == "__main__":
    main()
