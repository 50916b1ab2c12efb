"""A worker process that answers requests line by line and may die of one: the request then has that as its answer."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DYING_S = 0.5
START_S = 120.0


def worker_command(sources: Sequence[str], prefix: Sequence[str] = ()) -> list[str]:
    """How a worker is started: with `sources` on its path, below `prefix` (a sanitizer) where there is one."""
    path = os.pathsep.join([*sources, *filter(None, [os.environ.get("PYTHONPATH")])])
    return [*prefix, "env", f"PYTHONPATH={path}", sys.executable, "-m", "benchmarks.gpu_worker"]


class Worker:
    """A process of that command, started when it is first asked and again after it ended."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command, self._folder = list(command), folder
        self._child: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._errors: list[str] = []
        self.hello: dict[str, Any] = {}

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer; where the worker dies or does not answer, that is the answer, and the worker is ended."""
        begin = time.monotonic()
        if self._child is None and (failure := self.start()):
            return {"ok": False, "detail": failure, "seconds": round(time.monotonic() - begin, 2)}
        assert self._child is not None and self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            return {"ok": False, "detail": self.end(), "seconds": 0.0}
        found = self._receive(timeout_s)
        if found is None:
            return {"ok": False, "detail": self.end(), "seconds": round(time.monotonic() - begin, 2)}
        if found.get("fault"):
            self.end()
        return found

    def start(self) -> str:
        """Start the process and take its greeting; "" or why it did not start."""
        self._lines = queue.Queue()
        self._child = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self._folder
        )
        threading.Thread(target=_read, args=(self._child.stdout, self._lines), daemon=True).start()
        self._errors = []
        threading.Thread(target=_keep, args=(self._child.stderr, self._errors), daemon=True).start()
        hello = self._receive(START_S)
        if hello is None:
            return f"the worker did not start: {self.end()}"
        self.hello = hello
        return ""

    def _receive(self, timeout_s: float) -> dict[str, Any] | None:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None
        return None if line is None else json.loads(line)

    def end(self) -> str:
        """End the process; how it ended, in words."""
        child, self._child = self._child, None
        if child is None:
            return "no worker"
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(DYING_S)  # its pipes close a moment before it has ended
        hung = child.poll() is None
        if hung:
            child.kill()
        status = child.wait()
        said = "".join(self._errors)[-800:].strip()
        return f"{'no answer in time, killed' if hung else f'the worker ended with {status}'}: {said}"


def _read(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        if line.startswith("{"):
            lines.put(line)
    lines.put(None)


def _keep(stream: Any, kept: list[str]) -> None:
    for line in stream:
        kept.append(line)
        del kept[:-200]
