"""The host's side of the fork server: one per process, started on first use, shared by all evaluators."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from accelopt_compile import temporary
from accelopt_compile.errors import EvaluatorDied
from accelopt_compile.evaluate.sandbox.forks import Forker
from accelopt_compile.evaluate.sandbox.headers import lend_headers
from accelopt_compile.evaluate.sandbox.surroundings import child_environment

_lock = threading.Lock()
_server: ForkServer | None = None


class ForkServer:
    """A running fork server; `forker` asks it for children."""

    def __init__(self, folder: str) -> None:
        ours, theirs = socket.socketpair()
        self._scratch = temporary.Folder("fork")
        self._said = Path(self._scratch.name, "stderr")
        with theirs, self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "accelopt_compile.evaluate.sandbox.zygote", str(theirs.fileno())],
                env=child_environment(self._scratch.name, self._scratch.name) | {"TMPDIR": folder} | lend_headers(folder),
                cwd=self._scratch.name,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.forker = Forker(ours)
        self._ready = False

    def wait_ready(self, timeout_s: float) -> bool:
        """Whether it has imported torch and serves, within `timeout_s`."""
        if not self._ready:
            self.forker.socket.settimeout(timeout_s)
            try:
                self._ready = b"ready" in self.forker.file.readline()
            except OSError:
                return False
            self.forker.socket.settimeout(30.0)
        return self._ready

    def alive(self) -> bool:
        """Whether it can be asked: it runs, and no answer was cut off."""
        return self._process.poll() is None and not self.forker.lost

    def why_not(self, timeout_s: float) -> str:
        """Why it is not ready after so long."""
        try:
            code = self._process.wait(0.5)  # what ends closes its socket a little earlier
        except subprocess.TimeoutExpired:
            return f"the fork server did not start within {timeout_s:.0f} s"
        with contextlib.suppress(OSError):
            last = self._said.read_bytes()[-2000:].decode(errors="replace").strip().splitlines()[-1:]
            return f"the fork server ended with exit code {code}: {last[0] if last else 'it said nothing'}"
        return f"the fork server ended with exit code {code}"

    def close(self) -> None:
        """End the server; its children die with it."""
        self.forker.socket.close()
        self._process.kill()
        self._process.wait()
        self._scratch.cleanup()


def start(folder: str) -> None:
    """Start the server in the background, so that it imports torch while the caller does something else. Its children find
    precompiled headers in `folder`, where compiled baselines are kept."""
    global _server
    with _lock:
        if _server is not None and _server.alive():
            return
        if _server is not None:
            _server.close()
        _server = ForkServer(folder)


def shared(timeout_s: float, folder: str) -> Forker:
    """The process-wide server, started if need be (see `start`). Raises EvaluatorDied where it cannot run."""
    global _server
    try:
        start(folder)
    except OSError as failure:
        raise EvaluatorDied(f"the fork server cannot be started: {failure}") from failure
    with _lock:
        if _server is not None and _server.wait_ready(timeout_s):
            return _server.forker
        why = "the fork server was stopped"
        if _server is not None:
            why = _server.why_not(timeout_s)
            _server.close()
        _server = None
    raise EvaluatorDied(why)


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
