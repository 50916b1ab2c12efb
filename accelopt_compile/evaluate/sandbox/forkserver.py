"""The host's side of the fork server: one per process, started on first use, shared by all evaluators."""

from __future__ import annotations

import atexit
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Any

from accelopt_compile.errors import EvaluatorDied
from accelopt_compile.evaluate.sandbox.confine import baselines_folder, child_environment

log = logging.getLogger(__name__)

_lock = threading.Lock()
_server: ForkServer | None = None
_unusable = False


class ForkServer:
    """A running fork server. Its methods may be called from several threads."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._scratch = tempfile.TemporaryDirectory(prefix="accelopt-fork-")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "accelopt_compile.evaluate.sandbox.zygote", str(theirs.fileno())],
                # Inductor keeps its precompiled header (8 s to build) under the temporary folder it meets at import.
                env=child_environment(self._scratch.name, self._scratch.name) | {"TMPDIR": baselines_folder()},
                cwd=self._scratch.name,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._sock = ours
        self._file = ours.makefile("rb")
        self._lock = threading.Lock()
        self._ready = False

    def wait_ready(self, timeout_s: float) -> bool:
        """Whether it has imported torch and serves, within `timeout_s`."""
        if not self._ready:
            self._sock.settimeout(timeout_s)
            try:
                self._ready = b"ready" in self._file.readline()
            except OSError:
                return False
            self._sock.settimeout(30.0)
        return self._ready

    def alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Fork a child holding `descriptors`; its pid. Raises EvaluatorDied."""
        return int(self._ask({"fork": request}, descriptors)["pid"])

    def reap(self, pid: int) -> int:
        """Wait for a child that was killed or died; its raw wait status (0 when the server itself is gone)."""
        try:
            return int(self._ask({"reap": pid}, [])["status"])
        except EvaluatorDied:
            return 0

    def close(self) -> None:
        """End the server; its children die with it."""
        self._sock.close()
        self._process.kill()
        self._process.wait()
        self._scratch.cleanup()

    def _ask(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        line = json.dumps(message).encode() + b"\n"
        try:
            with self._lock:
                if descriptors:
                    sent = socket.send_fds(self._sock, [line], descriptors)
                    line = line[sent:]
                self._sock.sendall(line)
                reply: dict[str, Any] = json.loads(self._file.readline())
                return reply
        except (OSError, ValueError) as failure:
            raise EvaluatorDied(f"the fork server is gone: {failure}") from failure


def start() -> None:
    """Start the server in the background, so that it imports torch while the caller does something else."""
    global _server
    with _lock:
        if _unusable or (_server is not None and _server.alive()):
            return
        if _server is not None:
            _server.close()
        _server = ForkServer()


def shared(timeout_s: float) -> ForkServer | None:
    """The process-wide server, started if need be; None where it cannot run (then children are started afresh)."""
    global _unusable
    start()
    with _lock:
        if _unusable or _server is None:
            return None
        if not _server.wait_ready(timeout_s):
            log.warning("the fork server did not start; each evaluation process imports torch anew")
            _unusable = True
            _server.close()
            return None
        return _server


def stop() -> None:
    """End the server and with it every child. Called at exit."""
    global _server
    with _lock:
        if _server is not None:
            _server.close()
        _server = None


def _forget() -> None:
    """In a fork of the host: the server belongs to the original."""
    global _server, _lock
    _server, _lock = None, threading.Lock()


atexit.register(stop)
os.register_at_fork(after_in_child=_forget)
