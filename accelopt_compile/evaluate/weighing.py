"""The host's side of timing kernels in their context (`in_context`): asks a child that may die, within limits."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from accelopt_compile import temporary
from accelopt_compile.context import NotWeighed
from accelopt_compile.evaluate import timing
from accelopt_compile.evaluate.limits import Limits
from accelopt_compile.evaluate.sandbox.host import Birth, Child, ChildFailed
from accelopt_compile.evaluate.sandbox.surroundings import baselines_folder

PROTOCOL = timing.Protocol(blocks=12, pairs=6, budget_s=0.6)


class Weigher:
    """Compares contexts with and without kernels, in one child for all of them; another where that dies."""

    def __init__(self, *, threads: int, seed: int, cache_dir: str | None = None) -> None:
        self._threads, self._seed, self._cache_dir = threads, seed, cache_dir
        self._scratch = temporary.Folder("scratch")
        self._child: Child | None = None

    def close(self) -> None:
        """End the child. Safe to call twice."""
        if self._child is not None:
            self._child.close()
        self._scratch.cleanup()

    def compare(self, context: Mapping[str, Any], replaced: Sequence[Mapping[str, Any]], seconds: float) -> timing.Paired:
        """A context (a workload as JSON) without kernels over the same with `replaced`: the ratio is above 1 where they gain.
        Raises NotWeighed, also when it took longer than `seconds`; and EvaluatorDied where no child can be started."""
        message = {
            "op": "compare",
            "context": context,
            "replaced": list(replaced),
            "threads": self._threads,
            "seed": self._seed,
            "protocol": asdict(PROTOCOL),
        }
        deadline = time.monotonic() + seconds
        if self._child is None or not self._child.alive:
            self._child = self._started(seconds)
        try:
            reply = self._child.request(message, deadline - time.monotonic())
        except ChildFailed as failure:
            lost = not (failure.timed_out or failure.faulted)
            raise NotWeighed(failure.what, late=failure.timed_out, faulted=failure.faulted, lost=lost) from failure
        if "paired" not in reply:
            raise NotWeighed(str(reply.get("error", "no ratio came back"))[:300])
        return timing.Paired(**reply["paired"])

    def _started(self, seconds: float) -> Child:
        # A limit of processor time would make its clock count in ticks of 4 ms.
        limits = Limits(cpu_s=0, start_s=seconds)
        folder = baselines_folder(self._cache_dir)
        return Child(Birth(role="scales", scratch=self._scratch.name, limits=limits, inductor_cache=folder))
