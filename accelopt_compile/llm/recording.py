"""Calls on disk: one JSON object a line, appended as each call ends, so that a run can be resumed, replayed and counted.

A line is {"key", "at_s", "request", "prompt_digest", "reply", "reply_digest"}; digests are sha256 of what the model read
and wrote. Without texts, "system", "user", "text" and "detail" are null: what was spent stays known, the answer does not.
A run that died leaves at most one torn line, the last, which opening to record cuts off. Damage anywhere else is an error.

On resuming, what a model itself said to a prompt is answered from the file: an answer, an empty or truncated one, a
refusal, a prompt that is too long. Everything else is asked again: it is the endpoint's, the key's, the address's or the
budget's doing, which may have been mended since. `ReplayClient` gives back even those: a replay is what happened.

Put a `MeteredClient` inside a `RecordingClient`, not around it, and what is answered from the file is not paid again.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from accelopt_compile.errors import DamagedEntry
from accelopt_compile.llm.client import Client, Reply, Request
from accelopt_compile.llm.totals import Ledger, ledger_of
from accelopt_compile.records import sha256_text

log = logging.getLogger("accelopt_compile.llm")

ANSWERED = frozenset({"", "empty", "truncated", "refusal", "context_length"})
"""What a model said; the other problems are asked again on resuming."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One recorded call. `whole`: its texts were kept. Otherwise they are "" here."""

    key: str
    at_s: float
    request: Request
    reply: Reply
    whole: bool


class RecordingClient:
    """Records every call that `client` answers, and asks it nothing that a model already answered.

    Raises DamagedEntry for a file that is no recording, OSError where it cannot be written.
    """

    def __init__(
        self, client: Client, path: str | Path, *, keep_texts: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        self._client, self._path, self._keep_texts, self._clock = client, Path(path), keep_texts, clock
        self._path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(self._path)
        self._answers = {c.key: c.reply for c in recorded_calls(self._path) if c.whole and c.reply.problem in ANSWERED}
        self._lock, self._unkept = threading.Lock(), False
        self._asking: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def ask(self, request: Request) -> Reply:
        """The recorded answer, else the client's, which is on disk before it is returned."""
        key = request.key
        with self._lock:
            asking = self._asking[key]
        with asking:  # equal requests at the same time are one call
            known = self._answers.get(key)
            if known is not None:
                return known
            reply = self._client.ask(request)
            with self._lock:
                self._record(_line(request, reply, self._clock(), self._keep_texts))
            if reply.problem in ANSWERED:
                self._answers[key] = reply
            return reply

    def _record(self, line: bytes) -> None:
        """Keep an answer. Where the disk is full it is used all the same: it is paid for."""
        try:
            _append(self._path, line)
        except OSError as failure:
            if not self._unkept:
                log.warning("calls are not recorded any more: %s", failure)
            self._unkept = True


class ReplayClient:
    """Answers from a recording alone; what is not in it is the problem "not_recorded". Of several calls with one key the
    last counts. With `by_call` a request whose words are not in it is answered by its role and its name in the run: so a run
    can be repeated after a prompt was reworded. Raises DamagedEntry for a file that is no recording."""

    def __init__(self, path: str | Path, *, by_call: bool = False) -> None:
        self._path = Path(path)
        self._calls = {call.key: call for call in recorded_calls(self._path)}
        self._named = {(c.request.role, c.request.call): c for c in self._calls.values()} if by_call else {}

    def ask(self, request: Request) -> Reply:
        """What was recorded, to the last bit."""
        call = self._calls.get(request.key) or self._named.get((request.role, request.call))
        if call is not None and call.whole:
            return call.reply
        why = "was recorded without its texts" if call is not None else "is not in it"
        asked = f"call {request.call!r} of the {request.role} to {request.model!r}"
        return Reply(problem="not_recorded", detail=f"{self._path}: {asked} {why}", tries=0)


def recorded_spending(path: str | Path) -> Ledger:
    """What the calls of a recording took together, per role and model; nothing for a file that is not there."""
    return ledger_of((call.request, call.reply) for call in recorded_calls(path))


def recorded_calls(path: str | Path) -> Iterator[Call]:
    """The calls, oldest first; a torn last line is left out. Raises DamagedEntry."""
    path = Path(path)
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            yield _call(json.loads(line.decode("utf-8")))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as failure:
            raise DamagedEntry(f"{path}: line {number} is not a recorded call ({type(failure).__name__}: {failure})") from failure


def set_aside_if_damaged(path: str | Path) -> None:
    """Rename a recording that cannot be read, so that a new one begins in its place; says so. Raises OSError."""
    try:
        for _ in recorded_calls(path):
            pass
    except DamagedEntry as damage:
        aside = f"{path}.damaged"
        os.replace(path, aside)
        told = "the recorded answers cannot be read and are asked for again, and what they cost is not counted; kept as %s: %s"
        log.warning(told, aside, damage)


def _line(request: Request, reply: Reply, at_s: float, keep_texts: bool) -> bytes:
    asked, said = asdict(request), reply.to_json()
    if not keep_texts:
        asked.update(system=None, user=None)
        said.update(text=None, detail=None)
    data = {
        "key": request.key,
        "at_s": round(at_s, 3),
        "request": asked,
        "prompt_digest": request.prompt_digest,
        "reply": said,
        "reply_digest": sha256_text(reply.text),
    }
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _call(data: Mapping[str, Any]) -> Call:
    """Inverse of `_line`. Raises ValueError, KeyError, TypeError, AttributeError and OverflowError for anything else."""
    asked, said = dict(data["request"]), dict(data["reply"])
    whole = said["text"] is not None
    if not whole:
        asked.update(system="", user="")
        said.update(text="", detail="")
    for fields in (asked, said, said["usage"], {"at_s": data["at_s"]}):
        _check_kinds(fields)
    request, reply = Request(**asked), Reply.from_json(said)
    if whole and (data["key"], data["reply_digest"]) != (request.key, sha256_text(reply.text)):
        raise ValueError("it was changed: its digests are of other texts")
    return Call(key=str(data["key"]), at_s=float(data["at_s"]), request=request, reply=reply, whole=whole)


_COUNTS = ("max_tokens", "tries", "prompt", "cached", "completion")
_TIMES = ("at_s", "seconds", "usd")
_OPTIONAL = ("effort", "usd")


def _check_kinds(fields: Mapping[str, Any]) -> None:
    """Raises ValueError, or OverflowError for a number beyond all measure."""
    for name, value in fields.items():
        if name == "usage" or (value is None and name in _OPTIONAL):
            continue
        expected: Any = int if name in _COUNTS else int | float if name in _TIMES else bool if name == "estimated" else str
        fits = isinstance(value, expected) and (expected is bool or not isinstance(value, bool))
        if not fits or (name in _COUNTS + _TIMES and not (math.isfinite(value) and value >= 0)):
            raise ValueError(f"its {name} is {value!r:.40}")


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)


def _append(path: Path, line: bytes) -> None:
    # One write to a file opened for appending: lines of two processes do not mix.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        while line:
            line = line[os.write(file, line) :]
    finally:
        os.close(file)
