"""Runs cases in child processes and hands on what they print, whatever the kernels in them do to their process."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.harness import ROOT


def stream(
    job: Mapping[str, Any],
    keys: Sequence[str],
    env: Mapping[str, str],
    patience_s: float,
    module: str = "benchmarks.region_child",
) -> Iterator[dict[str, Any]]:
    """One result per case, as they come. A case that kills its process, or gives nothing for `patience_s`, gets
    {"case", "died"}, and another process goes on with the next."""
    pending = list(keys)
    while pending:
        child = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps({**job, "keys": pending})],
            cwd=ROOT,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that its own children end with it
        )
        try:
            why = yield from _results(child, pending, patience_s)
        finally:
            _end(child, 0.0 if pending else 30.0)
        if pending:
            yield {"case": pending.pop(0), "died": why}


def _results(child: subprocess.Popen[str], pending: list[str], patience_s: float) -> Generator[dict[str, Any], None, str]:
    """Results until the child ends; takes their cases from `pending`. Returns why it ended."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(child, lines), daemon=True).start()
    while pending:
        try:
            line = lines.get(timeout=patience_s)
        except queue.Empty:
            return f"no result within {patience_s:.0f} s"
        if line is None:
            return f"its process ended with {child.wait()}"
        result = _parsed(line)
        if result is not None and result.get("case") in pending:
            pending.remove(result["case"])
            yield result
    return ""


def _read(child: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        lines.put(line)
    lines.put(None)


def _parsed(line: str) -> dict[str, Any] | None:
    """A result; None for whatever else a child prints."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _end(child: subprocess.Popen[str], wait_s: float) -> None:
    """Let the child end by itself for `wait_s`, then end it and what it started."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(wait_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
