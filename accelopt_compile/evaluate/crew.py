"""The processes behind one evaluator: a referee, a nursery that compiles the baseline, builders, and a runner per candidate."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from accelopt_backends.base import Attached, Backend, Ready
from accelopt_compile import temporary
from accelopt_compile.errors import EvaluatorDied
from accelopt_compile.evaluate.buffers import arena_bytes
from accelopt_compile.evaluate.cases import cases, elements
from accelopt_compile.evaluate.limits import Limits, free_memory
from accelopt_compile.evaluate.sandbox.arena import Arena
from accelopt_compile.evaluate.sandbox.forks import Forker
from accelopt_compile.evaluate.sandbox.host import Birth, Child, ChildFailed
from accelopt_compile.evaluate.sandbox.surroundings import baselines_folder
from accelopt_compile.records import Workload, sha256_text
from accelopt_compile.wording import region, said_once

log = logging.getLogger(__name__)

NEEDED_BYTES = 80
"""What judging takes for each element of a region's inputs and outputs: both sides' tensors, and right answers in float64.
Measured: 80 where these are float32, 68 where they are bfloat16."""

SPARE_BYTES = 16 << 20
"""For the sizes that are drawn at random; memory that nobody touches costs nothing."""


class Crew:
    """Starts what is asked for when it is asked for, and ends all of it. Raises EvaluatorDied where a trusted process
    fails: what a candidate does to a runner or a builder is the caller's to judge."""

    def __init__(
        self,
        workload: Workload,
        binding: Mapping[str, int],
        backend: Backend,
        workdir: str,
        limits: Limits,
        threads: int,
        cache_dir: str | None,
    ) -> None:
        self.workload, self.binding, self.limits = workload, dict(binding), limits
        self.workdir, self._threads = workdir, threads
        self._folders = backend_folders(backend)
        ready = backend.probe()
        self.attached = ready.attached if isinstance(ready, Ready) else None
        self._scratch = temporary.Folder("scratch")
        self._inductor_cache = baselines_folder(cache_dir)
        tried = [dict(case.binding) for case in cases(workload, binding, "full", [1])]
        needed = NEEDED_BYTES * max(elements(workload, at) for at in (*tried, self.binding))
        if needed > (free := free_memory()):
            gib = 1 << 30
            raise EvaluatorDied(f"to judge kernels here takes about {needed / gib:.1f} GiB, and {free / gib:.1f} GiB are free")
        self._arena = Arena(arena_bytes(workload, [*tried, self.binding]) + SPARE_BYTES)
        self._referee: Child | None = None
        self._builders: dict[int, Child] = {}
        self._nursery: Child | None = None
        self._prepared = False
        self._preparing: int | None = None
        self._forker: Forker | None = None
        self._inductor = False
        self.inductor_failure = ""

    # ------------------------------------------------------------ the trusted ones

    def start(self) -> None:
        """Start the referee: whether it takes the workload."""
        self.ask({"op": "begin"})

    def start_baseline(self) -> None:
        """Start compiling the baseline, which only timing needs, unless that was done."""
        if not self._prepared and self._preparing is None:
            self._nursery = Child(self._birth("nursery"))
            try:
                self._preparing = self._nursery.send({"op": "baseline", "driver": self.driver, **self._about()})
            except ChildFailed as failure:
                raise self._without_baseline(failure) from failure

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """The referee's answer."""
        try:
            if self._referee is None or not self._referee.alive:
                self._referee = Child(self._birth("referee", arena=True))
                opening = {"op": "open", "workload": self.workload.to_json(), "binding": self.binding}
                _answered(self._referee.request(opening, self.limits.start_s), "the referee refused the workload")
            return _answered(self._referee.request(message, self.limits.verify_s), "the referee failed")
        except ChildFailed as failure:
            raise EvaluatorDied(f"the referee died: {failure.what}\n{failure.output}") from failure

    def inductor(self) -> bool:
        """Wait until the baseline is compiled; whether Inductor can compile the region. Raises EvaluatorDied where it did not
        come to an answer: with eager alone to beat, a kernel slower than Inductor's could win, and stay."""
        self.start_baseline()
        if self._preparing is not None and self._nursery is not None:
            try:
                reply = self._nursery.wait(self._preparing, self.limits.baseline_s)
                self._inductor, self.inductor_failure = bool(reply.get("inductor")), str(reply.get("why", ""))
                if self.attached is None:
                    self._forker = self._nursery.forker()
                else:  # it has used the device, so nobody can be forked from it; what it compiled lies in the cache
                    self._nursery.close()
                    self._nursery = None
            except ChildFailed as failure:
                raise self._without_baseline(failure) from failure
            self._preparing, self._prepared = None, True
            if not self._inductor:
                log.warning(
                    "region %s has no Inductor baseline, eager only: %s", region(self.workload), said_once(self.inductor_failure)
                )
        return self._inductor

    def _without_baseline(self, failure: ChildFailed) -> EvaluatorDied:
        self._preparing = self._nursery = None
        return EvaluatorDied(f"Inductor did not compile the region to compare with: {failure.what}\n{failure.output}")

    # ------------------------------------------------------------ the others

    def builder(self, slot: int) -> Child:
        """The builder of this number; another one where the last died."""
        kept = self._builders.get(slot)
        if kept is None or not kept.alive:
            kept = self._builders[slot] = Child(self._birth("builder", writable=True))
        return kept

    def runner(self, *, timing: bool = False) -> Child:
        """A fresh runner that is ready for a kernel, the caller's to close. One for `timing` has the compiled baseline in memory.
        A device has one runner at a time, of all processes here: the next one waits for it."""
        forker = self._forker if timing and self.inductor() else None
        birth = self._birth("runner", arena=True, timing=timing)
        runner = Child(birth, forker) if self.attached is None else self._turn(birth, self.attached, timing=timing)
        seconds = self.limits.start_s + (self.limits.baseline_s if self.attached is not None and timing else 0.0)
        with contextlib.ExitStack() as unready:
            unready.callback(runner.close)  # which gives a device back, too
            try:  # what fails before a kernel is loaded (a slow compiler of the launcher, a full device) is no kernel's fault
                _answered(runner.request({"op": "ready"}, seconds), "a process to run kernels in failed")
            except ChildFailed as failure:
                raise EvaluatorDied(f"a process to run kernels in did not start: {failure.what}\n{failure.output}") from failure
            unready.pop_all()
        return runner

    def _turn(self, birth: Birth, attached: Attached, *, timing: bool) -> Turn:
        lock = turn(attached, self._inductor_cache, self.limits.turn_s)
        try:
            if timing and self._inductor:
                birth = replace(birth, baseline=self._about())
            return Turn(birth, lock, self._scratch.name)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """End every process and remove the scratch folder. Safe to call twice."""
        for child in (*self._builders.values(), self._referee, self._nursery):
            if child is not None:
                child.close()
        self._builders, self._referee, self._nursery = {}, None, None
        self._arena.close()
        with contextlib.suppress(OSError):
            self._scratch.cleanup()

    def pids(self) -> list[int]:
        """The living processes, runners left out."""
        return [c.pid for c in (*self._builders.values(), self._referee, self._nursery) if c is not None and c.alive]

    @property
    def driver(self) -> str:
        """Of the device that kernels run on, "" for the host."""
        return "" if self.attached is None else self.attached.driver

    def _about(self) -> dict[str, Any]:
        return {"workload": self.workload.to_json(), "binding": self.binding, "threads": self._threads}

    def _birth(self, role: Any, *, arena: bool = False, writable: bool = False, timing: bool = False) -> Birth:
        counted = role == "builder" or (role == "runner" and not timing)  # a nursery's runners inherit its limits
        return Birth(
            role=role,
            scratch=self._scratch.name,
            limits=replace(self.limits, cpu_s=self.limits.cpu_s * max(1, self._threads) if counted else 0),
            inductor_cache=self._inductor_cache,
            readable=[*self._folders, self.workdir, self._inductor_cache],
            writable=[self.workdir] if writable else (),
            arena=self._arena.descriptor if arena else -1,
            attached=self.attached if role in ("runner", "nursery") else None,
        )


class Turn(Child):
    """A runner that holds its device for as long as it lives, with a scratch folder of its own below `scratch`: what it may
    leave there reaches no other."""

    def __init__(self, birth: Birth, lock: FileLock, scratch: str) -> None:
        self._lock = lock
        self._own = tempfile.TemporaryDirectory(prefix="runner-", dir=scratch)
        super().__init__(replace(birth, scratch=self._own.name, writable=[self._own.name]))

    def close(self) -> None:
        super().close()
        self._lock.release()
        with contextlib.suppress(OSError):
            self._own.cleanup()


def turn(attached: Attached, folder: str, seconds: float) -> FileLock:
    """The right to run on a device, waited for. Raises EvaluatorDied where another process keeps it."""
    which = sha256_text(" ".join([attached.driver, *(os.environ.get(name, "") for name in attached.variables)]))[:16]
    locks = Path(folder) / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    lock = FileLock(locks / f"device-{which}.lock")
    try:
        lock.acquire(timeout=seconds)
    except Timeout as late:
        raise EvaluatorDied(f"another process has kept the device for {seconds:.0f} s") from late
    return lock


def backend_folders(backend: Backend) -> list[str]:
    """What a child must be able to read to import the backend: its file, or the folder of its outermost package."""
    name = type(backend).__module__
    top = sys.modules.get(name.partition(".")[0])
    module = sys.modules.get(name)
    files = [m.__file__ for m in (top, module) if m is not None and m.__file__]
    return [str(Path(f).parent if Path(f).name == "__init__.py" else f) for f in files]


def _answered(reply: dict[str, Any], what: str) -> dict[str, Any]:
    if "error" in reply:
        raise EvaluatorDied(f"{what}: {reply['error']}")
    return reply
