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
from accelopt_compile.heartbeat import SILENT_S
from accelopt_compile.records import Basis
from accelopt_compile.wording import plural, times_text, visible

APART = 1.05
"""A quick timing and the final number that differ by more than this factor are worth a word."""


class Watching:
    """Call it with each event of a search, those of the processes before this one marked "before". Counts are what the
    events say; nothing is asked of the search."""

    def __init__(self, out: Output, name: str, *, budget_s: float, asks: bool = False) -> None:
        self._out, self._name, self._budget_s, self._began = out, name, budget_s, time.monotonic()
        self._asks, self._told_at, self._stack = asks, self._began, ExitStack()
        self._status: Any = None
        self._round, self._best, self._accepted, self._best_of_model = 0, 0.0, 0, 0.0
        self._basis: Basis = "measured"
        self._rejected: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._models: dict[str, None] = {}
        self._calls, self._unpriced, self._tokens, self._usd = 0, 0, 0, 0.0
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
        kind, before = event["kind"], bool(event.get("before"))
        if kind == "verdict":
            self._verdict(event)
        elif kind == "round":
            self._round, self._best = int(event["round"]), float(event["speedup"])
        elif kind == "call":
            self._call(event)
        elif kind == "takeover":
            self._out.note(f"the built-in proposer goes on alone: {event['because']}")
        if before:
            return
        if kind == "round" and self._round == 0:
            self._opened()
        self._show(kind)

    def line(self) -> str:
        """Where the search stands."""
        bad = ", ".join(f"{stage} {count}" for stage, count in sorted(self._rejected.items()))
        best = f"best {times_text(self._best, self._basis)}" if self._best else "no kernel yet"
        rejected = f" ({bad})" if bad else ""
        judged = f"accepted {self._accepted}  rejected {self._rejected.total()}{rejected}"
        paid = f"  {self._paid()}" if self._calls else ""
        return f"round {self._round}  {best}  {judged}{paid}  {self._left_s():.0f} s left"

    def of_model(self, origin: str | None) -> str:
        """What became of the model, once the search is over; `origin` is the winner's, None without one. "" where no model
        was to be asked."""
        if not self._asks:
            return ""
        names = ", ".join(self._models)
        asked = f"the language model {names}: {self._called()}" if self._calls else "the language model was not asked"
        quick = "" if self._basis == "estimated" else " (quick timing)"
        wrote = (
            f"its best kernel {times_text(self._best_of_model, self._basis)}{quick}"
            if self._best_of_model
            else "no kernel of it was accepted"
        )
        kept = "best candidate" if self._basis == "estimated" else "winner"
        won = "" if origin is None else f"; the {kept} is by {'the model' if origin == 'llm' else 'the built-in proposer'}"
        return f"{asked}; {wrote}{won}"

    def apart(self, final: float) -> str:
        """Why the final speedup is another than the last progress line said; "" where it is about the same."""
        if self._basis == "estimated" or not final or not self._best or 1 / APART <= self._best / final <= APART:
            return ""
        return f"progress said {self._best:.2f}x: quick timings rank candidates, the final {final:.2f}x is from a full evaluation"

    def counts(self) -> dict[str, Any]:
        """The same for programs. `usd` is null where no price is known."""
        return {
            "rounds": self._round,
            "accepted": self._accepted,
            "rejected": dict(self._rejected),
            "calls": self._calls,
            "failed_calls": dict(self._failed),
            "best_of_model": self._best_of_model or None,
            "tokens": self._tokens,
            "usd": None if self._unknown else round(self._usd, 6),
        }

    @property
    def _unknown(self) -> bool:
        """Whether nobody knows what the calls cost."""
        return bool(self._calls) and self._unpriced == self._calls

    def _left_s(self) -> float:
        return max(0.0, self._budget_s - (time.monotonic() - self._began))

    def _called(self) -> str:
        """ "3 calls, 2 failed: connection"; how often each problem was, where there are several."""
        told = plural(self._calls, "call")
        if not self._failed:
            return told
        several = len(self._failed) > 1
        why = ", ".join(f"{problem} {n}" if several else problem for problem, n in self._failed.most_common())
        return f"{told}, {self._failed.total()} failed: {why}"

    def _paid(self) -> str:
        cost = "cost unknown" if self._unknown else f"${self._usd:.3f}"
        return f"{self._called()}  {self._tokens} tokens  {cost}"

    def _call(self, event: Mapping[str, Any]) -> None:
        self._calls, self._tokens = self._calls + 1, self._tokens + int(event["tokens"])
        self._models[str(event.get("model", ""))] = None
        self._unpriced += event["usd"] is None
        self._usd += float(event["usd"] or 0.0)
        if event["problem"]:
            self._failed[str(event["problem"])] += 1

    def _verdict(self, event: Mapping[str, Any]) -> None:
        verdict = event["verdict"]
        if "stage" in verdict:
            self._rejected[str(verdict["stage"])] += 1
            return
        speedup = float(verdict["timing"]["speedup"])
        self._basis = "estimated" if verdict["timing"].get("basis") == "estimated" else "measured"
        self._accepted += 1
        self._best = max(self._best, speedup)
        if event.get("origin") == "llm" and event.get("effort") == "quick":
            self._best_of_model = max(self._best_of_model, speedup)

    def _opened(self) -> None:
        """Where a model is to be asked and the opening took most of the time: how little is left for it."""
        left_s = self._left_s()
        if self._asks and left_s < self._budget_s / 2:
            took_s = self._budget_s - left_s
            self._out.note(f"the opening took {took_s:.0f} s; {left_s:.0f} of {self._budget_s:.0f} s are left for the model")

    def _show(self, kind: str) -> None:
        if self._status is not None:
            self._status.update(visible(f"{self._name}\n{self.line()}"))
        elif kind == "round" or time.monotonic() - self._told_at > SILENT_S:
            self._told_at = time.monotonic()
            self._out.note(self.line())
