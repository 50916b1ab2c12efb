"""The processes behind one evaluator: a referee, a nursery that compiles the baseline, builders, and a runner per candidate."""

from __future__ import annotations

import contextlib
import logging
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from accelopt_backends.base import Backend
from accelopt_compile.errors import EvaluatorDied
from accelopt_compile.evaluate.buffers import arena_bytes
from accelopt_compile.evaluate.cases import cases
from accelopt_compile.evaluate.limits import Limits
from accelopt_compile.evaluate.sandbox.arena import Arena
from accelopt_compile.evaluate.sandbox.forks import Forker
from accelopt_compile.evaluate.sandbox.host import Birth, Child, ChildFailed
from accelopt_compile.evaluate.sandbox.surroundings import baselines_folder
from accelopt_compile.records import Workload
from accelopt_compile.wording import region, said_once

log = logging.getLogger(__name__)

SPARE_BYTES = 16 << 20
"""For the sizes that are drawn at random; memory that nobody touches costs nothing."""


class Crew:
    """Starts what is asked for when it is asked for, and ends all of it. Raises EvaluatorDied where a trusted process
    fails: what a candidate does to a runner or a builder is the caller's to judge."""

    def __init__(
        self, workload: Workload, binding: Mapping[str, int], backend: Backend, workdir: str, limits: Limits, threads: int
    ) -> None:
        self.workload, self.binding, self.limits = workload, dict(binding), limits
        self.workdir, self._threads = workdir, threads
        self._folders = backend_folders(backend)
        self._scratch = tempfile.TemporaryDirectory(prefix="accelopt-scratch-")
        self._inductor_cache = baselines_folder()
        tried = [dict(case.binding) for case in cases(workload, binding, "full", [1])]
        self._arena = Arena(arena_bytes(workload, [*tried, self.binding]) + SPARE_BYTES)
        self._referee: Child | None = None
        self._builders: dict[int, Child] = {}
        self._nursery: Child | None = None
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
        if self._nursery is None and self._preparing is None and not self.inductor_failure:
            self._nursery = Child(self._birth("nursery"))
            about = {"workload": self.workload.to_json(), "binding": self.binding, "threads": self._threads}
            self._preparing = self._nursery.send({"op": "baseline", **about})

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
        """Wait until the baseline is compiled; whether there is one."""
        self.start_baseline()
        if self._preparing is not None and self._nursery is not None:
            try:
                reply = self._nursery.wait(self._preparing, self.limits.baseline_s)
                self._inductor, self.inductor_failure = bool(reply.get("inductor")), str(reply.get("why", ""))
                self._forker = self._nursery.forker()
            except ChildFailed as failure:
                self.inductor_failure, self._nursery = failure.what, None
            self._preparing = None
            if not self._inductor:
                log.warning(
                    "region %s has no Inductor baseline, eager only: %s", region(self.workload), said_once(self.inductor_failure)
                )
        return self._inductor

    # ------------------------------------------------------------ the others

    def builder(self, slot: int) -> Child:
        """The builder of this number; another one where the last died."""
        kept = self._builders.get(slot)
        if kept is None or not kept.alive:
            kept = self._builders[slot] = Child(self._birth("builder", writable=True))
        return kept

    def runner(self, *, timing: bool = False) -> Child:
        """A fresh runner, the caller's to close. One for `timing` has the compiled baseline in memory."""
        forker = self._forker if timing and self.inductor() else None
        return Child(self._birth("runner", arena=True, timing=timing), forker)

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

    def _birth(self, role: Any, *, arena: bool = False, writable: bool = False, timing: bool = False) -> Birth:
        counted = role == "builder" or (role == "runner" and not timing)  # a nursery's runners inherit its limits
        return Birth(
            role=role,
            scratch=self._scratch.name,
            limits=self.limits if counted else replace(self.limits, cpu_s=0),
            inductor_cache=self._inductor_cache,
            readable=[*self._folders, self.workdir, self._inductor_cache],
            writable=[self.workdir] if writable else (),
            arena=self._arena.descriptor if arena else -1,
        )


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
