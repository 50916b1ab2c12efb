"""Live progress of a search: one line that is kept up to date on a terminal, a line a round elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from accelopt_compile.cli.output import Output
from accelopt_compile.report.wording import visible

SILENT_S = 10.0
"""Without a terminal, a line is written at least so often while something happens."""


class Watching:
    """Call it with each event of a search. Counts are what the events say; nothing is asked of the search."""

    def __init__(self, out: Output, name: str, *, budget_s: float) -> None:
        self._out, self._name, self._budget_s, self._began = out, name, budget_s, time.monotonic()
        self._told_at, self._stack = self._began, ExitStack()
        self._status: Any = None
        self._round, self._best, self._accepted = 0, 0.0, 0
        self._rejected: Counter[str] = Counter()
        self._calls, self._tokens, self._usd = 0, 0, 0.0
        self._lock = threading.Lock()  # calls of a model are told of by their threads

    def __enter__(self) -> Watching:
        if self._out.level >= 0 and sys.stderr.isatty():
            from rich.console import Console

            self._status = self._stack.enter_context(Console(stderr=True).status(self._name))
        else:
            self._out.note(f"searching {self._name}, at most {self._budget_s:.0f} s")
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def __call__(self, event: Mapping[str, Any]) -> None:
        with self._lock:
            self._told(event)

    def _told(self, event: Mapping[str, Any]) -> None:
        kind = event["kind"]
        if kind == "verdict":
            self._verdict(event["verdict"])
        elif kind == "round":
            self._round, self._best = int(event["round"]), float(event["speedup"])
        elif kind == "call":
            self._calls, self._tokens = self._calls + 1, self._tokens + int(event["tokens"])
            self._usd += float(event["usd"] or 0.0)
        elif kind == "takeover":
            self._out.note(f"the built-in proposer goes on alone: {event['because']}")
        self._show(kind)

    def line(self) -> str:
        """Where the search stands."""
        bad = ", ".join(f"{stage} {count}" for stage, count in sorted(self._rejected.items()))
        paid = f"  {self._calls} calls {self._tokens} tokens ${self._usd:.3f}" if self._calls else ""
        left = max(0.0, self._budget_s - (time.monotonic() - self._began))
        best = f"best {self._best:.2f}x" if self._best else "no kernel yet"
        rejected = f" ({bad})" if bad else ""
        judged = f"accepted {self._accepted}  rejected {self._rejected.total()}{rejected}"
        return f"round {self._round}  {best}  {judged}{paid}  {left:.0f} s left"

    def counts(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "rounds": self._round,
            "accepted": self._accepted,
            "rejected": dict(self._rejected),
            "calls": self._calls,
            "tokens": self._tokens,
            "usd": round(self._usd, 6),
        }

    def _verdict(self, verdict: Mapping[str, Any]) -> None:
        if "stage" in verdict:
            self._rejected[str(verdict["stage"])] += 1
        else:
            self._accepted += 1
            self._best = max(self._best, float(verdict["timing"]["speedup"]))

    def _show(self, kind: str) -> None:
        if self._status is not None:
            self._status.update(visible(f"{self._name}\n{self.line()}"))
        elif kind == "round" or time.monotonic() - self._told_at > SILENT_S:
            self._told_at = time.monotonic()
            self._out.note(self.line())
