"""Does every seed kernel compile for every device, and is it right? Without a device: issue 5's first proof.

For each stored workload (device_workloads.py) and each structure of the backend's grammar: built for each target at the declared
defaults and at random choices of tunables, and verified through the evaluator (in a simulation where the device is not here) in
the workload's dtype, at the defaults and at one random choice. One workload of each family (in bf16, where there is one) gets
20 random choices for each structure and target, the others 2 (`--choices`, `--few`). A build that two share is made once.

    python -m benchmarks.check_device_kernels --quick
    python -m benchmarks.check_device_kernels --only 'llama.*norm' --jobs 8
    python -m benchmarks.check_device_kernels --each 0        # all of them, not one of each kind, family and dtype

One child process a workload: a compiler that crashes costs one unit. What is done is kept below `--state` and not done again with
the same code, so that Ctrl-C and a second run go on. Exit code 0 where nothing failed, 1 where something did, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from accelopt_backends.base import Backend, Missing
from accelopt_backends.registry import backend_named
from accelopt_compile.errors import ToolchainFailed
from accelopt_compile.records import KernelSource, Rejected, canonical_json, sha256_text
from benchmarks import harness
from benchmarks.device_workloads import DeviceWorkload, sample, work, workloads
from benchmarks.kernel_checks import Finding, choices, spelled, structures, summary, table

TARGETS = ("triton-cuda-sm_80", "triton-cuda-sm_90", "triton-hip-gfx942")
UNIT_S = 900.0
"""Seconds after which a unit is given up."""
VERIFY = "verify"


# ---------------------------------------------------------------- one workload, in a child


def checked(
    one: DeviceWorkload, *, language: str, targets: Sequence[str], count: int, skip: set[tuple[str, str]], state: Path
) -> None:
    """Print a line for each unit of a workload: {"begin": ...} before, a finding after."""
    backend = backend_named(language, targets[0])
    about = {"workload": one.name, "family": one.family, "dtype": one.dtype}
    why = backend.supports(one.workload)
    if why is not None:
        _say(Finding(**about, structure="", stage="supports", outcome="refused", reason=why).to_json())
        return
    for structure in structures(backend.grammar(one.workload)):
        text = spelled(structure)
        for stage in (*targets, VERIFY):
            if (text, stage) in skip:
                continue
            _say({"begin": [one.name, text, stage]})
            begin = time.monotonic()
            try:
                found = _unit(one, structure, stage, backend, language=language, count=count, state=state)
            except Exception:  # a bug of the backend's: it costs this unit, not those after it
                found = {"outcome": "failed", "reason": f"our own failure: {traceback.format_exc()[-700:]}"}
            seconds = round(time.monotonic() - begin, 2)
            _say(Finding(**about, structure=text, stage=stage, seconds=seconds, **found).to_json())


def _unit(
    one: DeviceWorkload, structure: Mapping[str, str], stage: str, backend: Backend, *, language: str, count: int, state: Path
) -> dict[str, Any]:
    """The outcome of one structure at one stage, as fields of a finding."""
    try:
        source = backend.render(one.workload, structure)
    except ValueError as refusal:
        return {"outcome": "refused", "reason": str(refusal)[:300]}
    if stage == VERIFY:
        return _verified(one, source, backend)
    return _built(source, backend_named(language, stage), stage, count=count, state=state)


def _say(data: Mapping[str, Any]) -> None:
    print(json.dumps(data), flush=True)


def _built(source: KernelSource, backend: Backend, target: str, *, count: int, state: Path) -> dict[str, Any]:
    """Every choice built for one target."""
    faults, builds, shared = [], 0, 0
    for chosen in choices(source.tunables, lambda t: backend.valid(source, t), count=count, seed=source.digest):
        if not backend.valid(source, chosen):
            faults.append(f"{chosen}: the declared defaults are not valid for {target}")
            continue
        fault, known = _build(source, chosen, backend, target, state)
        builds, shared = builds + 1, shared + known
        if fault:
            faults.append(f"{chosen}: {fault}")
    return {"outcome": "failed" if faults else "ok", "reason": faults[0] if faults else "", "builds": builds, "shared": shared,
            "faults": tuple(faults)}  # fmt: skip


def _build(source: KernelSource, chosen: Mapping[str, int], backend: Backend, target: str, state: Path) -> tuple[str, bool]:
    """(why it failed or "", whether that was known): one text with one choice is built once for a target."""
    note = state / "builds" / f"{sha256_text(canonical_json([source.digest, dict(chosen), target]))[:32]}.json"
    if note.exists():
        return json.loads(note.read_text())["fault"], True
    folder = tempfile.mkdtemp(prefix="accelopt-check-")
    try:
        backend.build(source, chosen, folder)
        fault = ""
    except ToolchainFailed as failure:
        fault = f"{failure} {getattr(failure, 'diagnosis', '')}"[:600]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({"fault": fault}))
    return fault, False


def _verified(one: DeviceWorkload, source: KernelSource, backend: Backend) -> dict[str, Any]:
    """The defaults and one random choice, through the evaluator."""
    from accelopt_compile.evaluate import open_evaluator

    faults = []
    with (
        tempfile.TemporaryDirectory(prefix="accelopt-check-") as workdir,
        open_evaluator(one.workload, one.binding, backend=backend, threads=1, seed=11, workdir=workdir) as evaluator,
    ):
        for chosen in choices(source.tunables, lambda t: backend.valid(source, t), count=1, seed=source.digest[::-1]):
            verdict = evaluator.verify(source, chosen, seeds=[101, 102], effort="quick")
            if isinstance(verdict, Rejected):
                faults.append(f"{chosen}: {verdict.stage.value}: {verdict.reason} {verdict.diagnosis}"[:800])
    return {"outcome": "failed" if faults else "ok", "reason": faults[0] if faults else "", "faults": tuple(faults)}


# ---------------------------------------------------------------- the parent


def of_each_family(found: Sequence[DeviceWorkload]) -> list[DeviceWorkload]:
    """The smallest workload of each family and dtype."""
    least: dict[tuple[str, str], DeviceWorkload] = {}
    for one in sorted(found, key=lambda w: (work(w), w.name)):
        least.setdefault((one.family, one.dtype), one)
    return list(least.values())


def tried_thoroughly(found: Sequence[DeviceWorkload]) -> set[str]:
    """The names of one workload of each family, the smallest in bf16 where there is one."""
    least: dict[str, str] = {}
    for one in sorted(found, key=lambda w: (w.dtype != "bf16", work(w), w.name)):
        least.setdefault(one.family, one.name)
    return set(least.values())


class Run:
    """What is known so far: read from `state`, added to as children report."""

    def __init__(self, state: Path, arguments: argparse.Namespace, thorough: set[str]) -> None:
        self.state, self.given, self.thorough = state, arguments, thorough
        self.file = state / f"findings-{code_digest(arguments.backend)[:16]}.jsonl"
        state.mkdir(parents=True, exist_ok=True)
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        self.findings = {f.key: f for f in (Finding.from_json(json.loads(line)) for line in lines if line.endswith("}"))}
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def stop(self) -> None:
        """End the children; what they were at is not a finding."""
        self._stopped = True
        for child in list(self._children):
            child.kill()

    def add(self, finding: Finding) -> None:
        with self._lock:
            self.findings[finding.key] = finding
            with self.file.open("a") as out:
                out.write(json.dumps(finding.to_json()) + "\n")

    def check(self, one: DeviceWorkload) -> list[Finding]:
        """All units of one workload; a child that dies or hangs in one costs that unit, and the next child goes on."""
        for _ in range(40):
            doing = self._child(one)
            if doing is None or self._stopped:
                break
            name, structure, stage, why = doing
            about = {"workload": name, "family": one.family, "dtype": one.dtype, "structure": structure, "stage": stage}
            self.add(Finding(**about, outcome="failed", reason=why))
        return self._of(one)

    def _of(self, one: DeviceWorkload) -> list[Finding]:
        with self._lock:  # other threads add
            return [f for f in self.findings.values() if f.workload == one.name]

    def _child(self, one: DeviceWorkload) -> tuple[str, str, str, str] | None:
        """Run a child to its end. None, or the unit (name, structure, stage) that it ended in and how."""
        done = {(f.structure, f.stage) for f in self._of(one)}
        if ("", "supports") in done:
            return None
        count = self.given.choices if one.name in self.thorough else self.given.few
        job = {"workload": one.to_json(), "skip": sorted(done), "state": str(self.state), "language": self.given.backend,
               "targets": self.given.targets, "count": count}  # fmt: skip
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.check_device_kernels", "--child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, cwd=harness.ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self._children.add(child)
        assert child.stdin is not None
        child.stdin.write(json.dumps(job))
        child.stdin.close()
        begun: tuple[str, str, str] | None = None
        try:
            for line in _lines(child, UNIT_S):
                if line is None:
                    why = f"no answer in {UNIT_S:.0f} s"
                    return (*(begun or (one.name, "", "start")), why)
                data = json.loads(line)
                if "begin" in data:
                    begun = tuple(data["begin"])
                else:
                    begun = None
                    self.add(Finding.from_json(data))
        finally:
            if child.poll() is None:
                child.kill()
            self._children.discard(child)
            status, said = child.wait(), (child.stderr.read() if child.stderr is not None else "")
        if status == 0:
            return None
        return (*(begun or (one.name, "", "start")), f"the process ended with {status}: {said[-600:].strip()}")


def _lines(child: subprocess.Popen[str], wait_s: float) -> Iterator[str | None]:
    """Lines of a child's output as they come; None, as the last, when none came for `wait_s`."""
    waiting: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("{"):
                waiting.put(line)
        waiting.put("")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = waiting.get(timeout=wait_s)
        except queue.Empty:
            yield None
            return
        if not line:
            return
        yield line


def code_digest(language: str) -> str:
    """What findings depend on: the text of the package and of the language's backend, and the toolchain's version."""
    folders = [harness.ROOT / "accelopt_compile", harness.ROOT / "backends"]
    files = sorted(f for folder in folders for f in folder.rglob("*") if f.suffix in (".py", ".tmpl", ".h") and f.is_file())
    ready = backend_named(language).probe()
    versions = str(sorted(ready.environment.items())) if not isinstance(ready, Missing) else ""
    return sha256_text(versions + "".join(f"{f}\n{f.read_text(encoding='utf-8', errors='replace')}" for f in files))


def run(given: argparse.Namespace) -> int:
    ready = backend_named(given.backend, given.targets[0]).probe()
    if isinstance(ready, Missing):
        print(f"{given.backend} is not ready: {ready.why}; {ready.how}", file=sys.stderr)
        return 1
    found = [one for one in workloads() if re.search(given.only, one.name)]
    if given.quick:
        found = of_each_family(found)
    elif given.each:
        found = sample(found, given.each)
    thorough = tried_thoroughly(found)
    found.sort(key=lambda one: (one.name not in thorough, work(one), one.name))  # a run that is cut off has met each family
    known, begin, done = Run(Path(given.state), given, thorough), time.monotonic(), 0
    interrupted = False
    pool = ThreadPoolExecutor(given.jobs)
    try:
        for number, findings in enumerate(pool.map(known.check, found), 1):
            done = number
            bad = [f for f in findings if f.outcome == "failed"]
            marks = "refused: " + findings[0].reason if findings and findings[0].stage == "supports" else f"{len(findings)} units"
            status = f"{len(bad)} FAILED ({bad[0].structure} {bad[0].stage}: {bad[0].reason[:120]})" if bad else "ok"
            print(
                f"[{number}/{len(found)} {time.monotonic() - begin:.0f} s] {found[number - 1].name}: {marks}, {status}",
                flush=True,
                file=sys.stderr if given.json else sys.stdout,
            )
    except KeyboardInterrupt:
        interrupted = True
        known.stop()
        pool.shutdown(wait=False, cancel_futures=True)
    names = {one.name for one in found}
    counted = summary([f for f in known.findings.values() if f.workload in names])
    about = {"targets": list(given.targets), "choices": given.choices, "few": given.few, "rung": ready.rung}
    about |= {"toolchain": dict(ready.environment), "complete": done == len(found), "of": len(found)}
    path = harness.write_result(
        "device-kernels", {"summary": counted, **about}, quick=bool(given.quick), directory=Path(given.results)
    )
    if not given.json:
        print(table(counted, ["supports", *given.targets, VERIFY]))
        print(f"written to {path}; verified on rung {ready.rung}; findings in {known.file}")
    short = {name: counted[name] for name in ("workloads", "by_dtype", "builds", "builds_shared", "ok")}
    short |= {"failed": len(counted["failed"]), "refused": sum(counted["refused"].values())}
    harness.finish("device-kernels", short | {"seconds": round(time.monotonic() - begin)})
    if interrupted:
        return 130
    return 1 if counted["failed"] or done < len(found) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="workloads whose name this finds")
    parser.add_argument("--each", type=int, default=1, help="workloads of each kind, family and dtype (0: all)")
    parser.add_argument(
        "--quick", action="store_true", help="one workload of each family and dtype; two choices, if none are asked for"
    )
    parser.add_argument(
        "--choices", type=int, help="random choices of tunables, for one workload a family and dtype (default: 20)"
    )
    parser.add_argument("--few", type=int, default=2, help="random choices of tunables for the other workloads")
    parser.add_argument("--targets", default=",".join(TARGETS), type=lambda text: tuple(text.split(",")))
    parser.add_argument("--backend", default="triton")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="child processes at a time")
    parser.add_argument("--state", default=str(Path(tempfile.gettempdir()) / "accelopt-device-kernels"))
    parser.add_argument("--results", default=str(harness.RESULTS))
    parser.add_argument("--json", action="store_true", help="only the JSON line at the end")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.choices is None:
        given.choices = 2 if given.quick else 20
    if given.child:
        job = json.load(sys.stdin)
        skip = {(structure, stage) for structure, stage in job["skip"]}
        one = DeviceWorkload.from_json(job["workload"])
        checked(one, language=job["language"], targets=job["targets"], count=job["count"], skip=skip, state=Path(job["state"]))
        return 0
    return run(given)


if __name__ == "__main__":
    sys.exit(main())
