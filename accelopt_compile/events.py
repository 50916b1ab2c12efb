"""The run log: one JSON object a line, only ever appended to.

Line 1 is the header {"format": 1, "kind": "run", ...}. Every further line is {"seq", "at_s", "kind", ...}. A run
that died leaves at most one torn line at the end, which opening the log again cuts off; so a run is resumed by
opening its log and asking it what was already measured (`search.trials`).

Kinds written by the search: seed, plans, attempts, fix, verdict, lesson, fill, round, takeover, final, stop; by those who start
or resume one: begun. Reports are made from them (`accelopt_compile.report`), so what a kind has may grow, not change.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from accelopt_compile.errors import DamagedEntry

FORMAT = 1
"""Version of the log's lines; a log of another version is refused."""

Event = Mapping[str, Any]
"""One line of the log, as plain JSON."""


class Log(Protocol):
    """Where events go. `append` returns once the event would survive the death of this process."""

    def append(self, kind: str, /, **data: Any) -> None:
        """Add one event. `data` must be plain JSON."""

    def events(self) -> Iterator[Event]:
        """All events so far, oldest first, those of earlier processes included; the header is not one."""


class MemoryLog:
    """A log that lives as long as this object: for tests, and for searches nobody will resume."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def append(self, kind: str, /, **data: Any) -> None:
        # Through JSON, so that what is read back has the types a file would give.
        self._events.append(json.loads(_line(kind, len(self._events), 0.0, data)))

    def events(self) -> Iterator[Event]:
        return iter(tuple(self._events))


class RunLog:
    """A log in a file. Opening an existing one continues it.

    Raises DamagedEntry when the file is of another format or damaged anywhere but in its last line.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self._clock = clock
        self._seq = 0
        if self.path.exists() and self.path.stat().st_size > 0:
            self._seq = _recover(self.path)
        if self._seq == 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._write(json.dumps({"format": FORMAT, "kind": "run", "at_s": self._clock()}) + "\n")
            self._seq = 1

    def append(self, kind: str, /, **data: Any) -> None:
        self._write(_line(kind, self._seq, self._clock(), data) + "\n")
        self._seq += 1

    def events(self) -> Iterator[Event]:
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines()):
            if number > 0:
                yield _parse(self.path, number, line)

    def _write(self, line: str) -> None:
        # Opened for each event: a forked child or a second process never holds our half-written buffer.
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)


def read_events(path: str | Path) -> list[Event]:
    """The events of a log that may still be written to: a torn last line is left out. Raises DamagedEntry."""
    path = Path(path)
    lines = path.read_text(encoding="utf-8").split("\n")
    return [_parse(path, number, line) for number, line in enumerate(lines[:-1]) if number > 0]


def _line(kind: str, seq: int, at_s: float, data: Mapping[str, Any]) -> str:
    return json.dumps({"seq": seq, "at_s": at_s, "kind": kind, **data}, separators=(",", ":"), default=str)


def _recover(path: Path) -> int:
    """Cut a torn last line off; the number of whole lines."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)
    lines = content[:whole].decode("utf-8").splitlines()
    if lines and _parse(path, 0, lines[0]).get("format") != FORMAT:
        raise DamagedEntry(f"{path}: not a run log of format {FORMAT}")
    return len(lines)


def _parse(path: Path, number: int, line: str) -> Event:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as failure:
        raise DamagedEntry(f"{path}: line {number + 1} is not JSON ({failure})") from failure
    if not isinstance(event, dict) or "kind" not in event:
        raise DamagedEntry(f"{path}: line {number + 1} is not an event")
    return event
