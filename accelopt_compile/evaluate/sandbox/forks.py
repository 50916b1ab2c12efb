"""Forking on request: the loop that the fork server and each nursery run, and the host's side of it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from accelopt_compile.errors import EvaluatorDied
from accelopt_compile.evaluate.sandbox import child

DESCRIPTORS = 3
"""The most descriptors that one request carries: channel, output pipe, arena."""
DYING_S = 10.0
"""How long the end of a killed child is waited for."""


def serve(control: socket.socket, alive: Callable[[], bool], other: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Serve the host at `control` until it is gone: {"fork": {...}} with descriptors -> {"pid"}, {"reap": pid} ->
    {"status"}, the raw wait status. Any other request is answered by `other`, which knows what children may inherit."""
    dying: set[int] = set()
    while alive():
        if not select.select([control], [], [], 2.0)[0]:
            dying -= {pid for pid in dying if os.waitpid(pid, os.WNOHANG)[0]}
            continue
        data, descriptors, _, _ = socket.recv_fds(control, 1 << 20, DESCRIPTORS)
        while data and not data.endswith(b"\n"):
            more = control.recv(1 << 20)
            data = data + more if more else b""
        if not data:
            return
        request = json.loads(data)
        if "fork" in request:
            reply = {"pid": _fork(request["fork"], descriptors, control, other)}
        elif "reap" in request:
            reply = {"status": reaped(int(request["reap"]), dying)}
        else:
            reply = other(request) | {"id": request.get("id")}
        control.sendall(json.dumps(reply).encode() + b"\n")


def reaped(pid: int, dying: set[int], patience_s: float = DYING_S) -> int:
    """The raw wait status of a child that was killed. One that the system cannot end yet (a device's driver has it) goes to
    `dying`, to be waited for later, and counts as killed: nobody else's fork may wait for it."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.001)
    dying.add(pid)
    return int(signal.SIGKILL)


def _fork(request: dict[str, Any], descriptors: list[int], control: socket.socket, other: Any) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            control.close()
            child.enter(request, descriptors, getattr(other, "baselines", None))
            status = 0
        except Exception:  # whoever started it is shown what it printed, unless he is gone
            with contextlib.suppress(OSError, ValueError):
                traceback.print_exc()
                sys.stderr.flush()
        finally:
            os._exit(status)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


class Forker:
    """The host's end. Its methods may be called from several threads."""

    def __init__(self, control: socket.socket) -> None:
        self.socket = control
        self.file = control.makefile("rb")
        self._lock = threading.RLock()  # a child's finalizer may run amid a question, in the same thread: it then gets no answer
        self._asking = False

    @property
    def lost(self) -> bool:
        """Whether an exchange was cut off, by Ctrl-C for one: what is read next would answer another question, so nothing is
        asked any more."""
        with self._lock:
            return self._asking

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Fork a child holding `descriptors`; its pid. Raises EvaluatorDied."""
        return int(self._ask({"fork": request}, descriptors)["pid"])

    def reap(self, pid: int) -> int:
        """Wait for a child that was killed or died; its raw wait status (0 when whoever forked it is gone)."""
        try:
            return int(self._ask({"reap": pid}, [])["status"])
        except EvaluatorDied:
            return 0

    def _ask(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        line = json.dumps(message).encode() + b"\n"
        with self._lock:
            if self._asking:
                raise EvaluatorDied("the process that forks evaluation processes was interrupted amid an answer")
            self._asking = True
            try:
                if descriptors:
                    sent = socket.send_fds(self.socket, [line], descriptors)
                    line = line[sent:]
                self.socket.sendall(line)
                reply: dict[str, Any] = json.loads(self.file.readline())
            except (OSError, ValueError) as failure:
                raise EvaluatorDied(f"the process that forks evaluation processes is gone: {failure}") from failure
            self._asking = False
            return reply
