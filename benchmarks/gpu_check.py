"""Ten minutes on a bare machine with a GPU: is every kind of kernel right there, and how fast is it?

    python benchmarks/gpu_check.py --minutes 8         # on the machine with the GPU; only torch and triton need to be there
    python benchmarks/gpu_check.py --dry-run           # anywhere: the same steps in a simulation, nothing timed

Steps: what the machine is; values of every seed family on the device; compute-sanitizer on a sample, where it is present; regions
timed (ours, eager, Inductor, max-autotune, roofline); a model under each compiler. Smallest first, and the results file is
written after each case, so that a run that is cut off says what it knew. Cases run in worker processes: a device fault costs one
case. Needs no transformers: workloads are stored. Exit code 0 where nothing failed, 1 where something did, 2 where a needed
package is missing, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [str(ROOT), str(ROOT / "backends"), str(ROOT / "cache")]
sys.path[:0] = [path for path in SOURCES if path not in sys.path]

from benchmarks import gpu_machine, harness  # noqa: E402  # the package need not be installed
from benchmarks.device_workloads import DeviceWorkload, workloads  # noqa: E402
from benchmarks.gpu_plan import STEPS, deadline_s, smallest_first, table  # noqa: E402
from benchmarks.gpu_process import Worker, worker_command  # noqa: E402
from benchmarks.kernel_checks import spelled, structures  # noqa: E402

CASE_S = 120.0
DRY_MINUTES = 4.5
MOST_DRY = {"correct": 8, "sanitizer": 1, "time": 2, "model": 1}
SANITIZED = 3
SCALE = 16
"""By how much a stored workload's free sizes are multiplied to be timed: 48 rows become 768 at each of two free sizes."""


class Check:
    """One run: its results, and the file that they are in after each case."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.begin = given, time.monotonic()
        self.total_s = 60 * (min(given.minutes, DRY_MINUTES) if given.dry_run else given.minutes)
        self.results: dict[str, Any] = {"cases": [], "steps": {}, "on_device": False, "dry_run": given.dry_run}
        self.path = Path(given.results)
        self.lock = threading.Lock()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.begin

    def write(self) -> None:
        data = {
            "format": harness.FORMAT,
            "benchmark": "gpu-check",
            "environment": self.environment,
            **self.results,
            "seconds": round(self.now_s),
        }
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
        part.replace(self.path)

    def note(self, step: str, name: str, found: Mapping[str, Any], **more: Any) -> None:
        with self.lock:
            self.results["cases"].append({"step": step, "name": name, **more, **found})
            self.write()
            mark = "ok" if found["ok"] else f"FAILED {found['detail'][:160]}"
            print(f"[{self.now_s:4.0f} s] {step} {name} {more.get('structure') or ''} {mark}", flush=True)

    # ------------------------------------------------------------ steps

    def doctor(self) -> bool:
        """What the machine is. False where a device was asked for and is not there."""
        self.environment = harness.environment() | {
            "packages": gpu_machine.installed(),
            "device_state": gpu_machine.device_state(),
        }
        worker = Worker(worker_command(SOURCES), ROOT)
        failure = worker.start()
        worker.end()
        hello = worker.hello
        self.results["doctor"] = {"worker": hello, "failure": failure, "sanitizer": gpu_machine.sanitizer() or "absent"}
        self.results["on_device"] = hello.get("where") == "cuda"
        for name, value in {**self.environment["packages"], **hello, "sanitizer": self.results["doctor"]["sanitizer"]}.items():
            print(f"  {name:18} {value}", flush=True)
        self.write()
        if failure or "missing" in hello:
            print(f"the backend is not ready: {failure or hello['missing']}")
            return False
        if not self.results["on_device"] and not self.given.dry_run:
            print("torch sees no GPU here; `--dry-run` walks the steps without one")
            return False
        return True

    def run(self) -> None:
        found = smallest_first(workloads())
        for step in STEPS:
            if why := self.why_not(step.name):
                self.results["steps"][step.name] = why
                continue
            deadline = deadline_s(step.name, self.now_s, self.total_s)
            tasks = list(getattr(self, f"{step.name}_tasks")(found))[: MOST_DRY[step.name] if self.given.dry_run else None]
            done = self.work(step.name, tasks, deadline)
            self.results["steps"][step.name] = "complete" if done == len(tasks) else f"cut off at {done} of {len(tasks)}"
            self.write()

    def why_not(self, step: str) -> str:
        """Why a step cannot be made here; "" where it can."""
        if step == "sanitizer" and not self.results["on_device"]:
            return "no device"
        if step == "sanitizer" and not gpu_machine.sanitizer():
            return "compute-sanitizer is absent"
        absent = gpu_machine.missing(gpu_machine.FOR_MODELS) if step == "model" else []
        return f"pip install {' '.join(absent)}" if absent else ""

    def work(self, step: str, tasks: Sequence[tuple[str, dict[str, Any]]], deadline: float) -> int:
        """Do tasks in order until the deadline; how many were done. Only what is timed needs the device for itself."""
        count = self.given.jobs if step == "correct" else 1
        prefix = [str(gpu_machine.sanitizer()), "--error-exitcode", "9"] if step == "sanitizer" else []
        waiting: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
        for task in tasks:
            waiting.put(task)
        done: list[int] = []

        def serve() -> None:
            worker = Worker(worker_command(SOURCES, prefix), ROOT)
            try:
                while self.now_s < deadline:
                    name, request = waiting.get_nowait()
                    left = max(5.0, min(CASE_S, self.total_s - self.now_s))
                    self.note(step, name, worker.ask(request, left), structure=spelled(request.get("structure", {})))
                    done.append(1)
            except queue.Empty:
                pass
            finally:
                worker.end()

        with ThreadPoolExecutor(count) as pool:
            for future in [pool.submit(serve) for _ in range(count)]:
                future.result()
        return len(done)

    def correct_tasks(self, found: Sequence[DeviceWorkload]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The default structure of every workload in turn, and then the other structures of each."""
        supported = [one for one in found if backend().supports(one.workload) is None]
        most = 3 if self.given.dry_run else 6
        for one in supported:
            yield one.name, {"op": "correct", "workload": one.to_json(), "structure": {}, "most": most}
        for one in supported:
            for structure in structures(backend().grammar(one.workload))[1:]:
                yield one.name, {"op": "correct", "workload": one.to_json(), "structure": structure, "most": most}

    def sanitizer_tasks(self, found: Sequence[DeviceWorkload]) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, request in list(self.correct_tasks(found[: 4 * SANITIZED]))[:SANITIZED]:
            yield name, {**request, "most": 1}

    def time_tasks(self, found: Sequence[DeviceWorkload]) -> Iterator[tuple[str, dict[str, Any]]]:
        right = {case["name"] for case in self.results["cases"] if case["step"] == "correct" and case["ok"]}
        for one in found:
            if one.name in right:
                yield one.name, {"op": "time", "workload": one.to_json(), "scale": SCALE, "budget_s": 1.0}

    def model_tasks(self, found: Sequence[DeviceWorkload]) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "moe", {"op": "model", "budget_s": 10.0}


def backend() -> Any:
    from accelopt_backends.registry import backend_named

    return backend_named("triton")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8.0, help="everything ends within them")
    parser.add_argument("--dry-run", action="store_true", help="walk the steps in a simulation, on few and small cases")
    parser.add_argument(
        "--jobs", type=int, default=max(1, min(6, (os.cpu_count() or 2) - 1)), help="workers while nothing is timed"
    )
    parser.add_argument("--results", default="", help="the file (default: benchmarks/results/gpu-check[-dry-run].json)")
    given = parser.parse_args(arguments)
    given.results = given.results or str(harness.RESULTS / f"gpu-check{'-dry-run' if given.dry_run else ''}.json")
    absent = gpu_machine.missing({**gpu_machine.NEEDED, **(gpu_machine.FOR_SIMULATION if given.dry_run else {})})
    if absent:
        print(f"missing here: {', '.join(absent)}\n  {sys.executable} -m pip install {' '.join(p.split()[0] for p in absent)}")
        return 2
    for package in gpu_machine.missing(gpu_machine.HELPFUL):
        print(f"  {package} is not here; no step of this check needs it")
    check = Check(given)
    interrupted = False
    try:
        if not check.doctor():
            return 1
        check.run()
    except KeyboardInterrupt:
        interrupted = True
        check.results["steps"]["interrupted"] = "by the keyboard"
        check.write()
    print("\n" + table(check.results) + f"\n\nwritten to {check.path} after {check.now_s:.0f} s")
    bad = sum(not case["ok"] for case in check.results["cases"])
    harness.finish("gpu-check", {"on_device": check.results["on_device"], "cases": len(check.results["cases"]), "failed": bad,
                                 "steps": check.results["steps"], "seconds": round(check.now_s)})  # fmt: skip
    if interrupted:
        return 130
    return 1 if bad or not check.results["cases"] else 0


if __name__ == "__main__":
    sys.exit(main())
