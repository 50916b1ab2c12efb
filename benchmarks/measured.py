"""Measured kernels that several searches share: all of a workload's searches see one landscape."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from accelopt_compile.records import Accepted, Verdict
from accelopt_compile.search import SearchTask
from accelopt_compile.search.state import verdict_from, verdict_json
from accelopt_compile.search.trials import Effort, Evaluator, Kernel, trial_key

Opened = Callable[[], AbstractContextManager[Evaluator]]
TIMES = 3
"""Evaluations of a kernel, of which the median by speed counts."""
NEAR, ENOUGH = 0.9, 9
"""The share of the best speed from which on a kernel may really be the best, and how often such a kernel is evaluated."""
AGREED = 1.04
"""Speeds of one kernel that lie this close, slowest to fastest, need no more of them."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One workload to search, and how to open an evaluator for it."""

    name: str
    task: SearchTask
    opened: Opened


class Table:
    """Verdicts by workload and kernel. With a `path` they are kept in that file, a JSON line each: an interrupted run goes on,
    and two versions of the search are compared on one table. Of one machine and one generator of kernels only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[tuple[str, str], list[Verdict]] = {}
        for line in path.read_text().splitlines() if path is not None and path.exists() else ():
            row = json.loads(line)
            self._known.setdefault((row["workload"], row["kernel"]), []).append(verdict_from(row["verdict"]))

    def get(self, workload: str, kernel: str) -> Verdict | None:
        """The verdict of median speed; the first rejection, where there is one. None below `TIMES` of them."""
        found = self._known.get((workload, kernel), [])
        accepted = sorted((v for v in found if isinstance(v, Accepted)), key=lambda v: v.timing.speedup)
        if len(accepted) < len(found):
            return next(v for v in found if not isinstance(v, Accepted))
        return accepted[len(accepted) // 2] if len(accepted) >= TIMES else None

    def missing(self, workload: str, kernel: str) -> int:
        """How many verdicts a kernel near the best lacks: none where those that it has agree."""
        found = self._known.get((workload, kernel), [])
        speeds = [v.timing.speedup for v in found if isinstance(v, Accepted)]
        return 0 if len(speeds) >= TIMES and max(speeds) <= AGREED * min(speeds) else max(0, ENOUGH - len(found))

    def add(self, workload: str, kernel: str, verdict: Verdict) -> None:
        self._known.setdefault((workload, kernel), []).append(verdict)
        if self._path is not None:
            with self._path.open("a") as file:
                print(json.dumps({"workload": workload, "kernel": kernel, "verdict": verdict_json(verdict)}), file=file)


class Measured:
    """The landscape of one workload as far as it was asked for: each kernel's verdict, the same in every search. Its
    evaluator is opened for the first kernel that is new, and kept until `close`."""

    def __init__(self, case: Case, table: Table) -> None:
        self._case, self._table, self._stack = case, table, ExitStack()
        self._workload = case.task.workload.digest
        self._asked: dict[str, Kernel] = {}
        self._evaluator: Evaluator | None = None

    def evaluate_each(self, candidates: Sequence[Kernel], *, effort: Effort = "quick") -> Iterator[Verdict]:
        for kernel in candidates:
            key = trial_key(*kernel)
            self._asked[key] = kernel
            while (verdict := self._table.get(self._workload, key)) is None:
                self._measure(key)
            yield verdict

    def settle(self, rng: random.Random) -> bool:
        """Time the kernels near the best until each has `ENOUGH` verdicts, or some that agree. Whether they had them already."""
        found = {key: self._table.get(self._workload, key) for key in self._asked}
        speeds = {key: verdict.timing.speedup for key, verdict in found.items() if isinstance(verdict, Accepted)}
        near = [key for key, speed in speeds.items() if speed >= NEAR * max(speeds.values())]
        missing = [key for key in near for _ in range(self._table.missing(self._workload, key))]
        rng.shuffle(missing)
        for key in missing:
            self._measure(key)
        return not missing

    def close(self) -> None:
        self._stack.close()
        self._evaluator = None

    def _measure(self, key: str) -> None:
        if self._evaluator is None:
            self._evaluator = self._stack.enter_context(self._case.opened())
        for verdict in self._evaluator.evaluate_each([self._asked[key]]):
            self._table.add(self._workload, key, verdict)
