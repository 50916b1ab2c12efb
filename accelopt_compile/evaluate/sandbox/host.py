"""Starting, talking to and ending the evaluation child. Everything the child can do wrong ends here as `ChildFailed`."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import selectors
import signal
import socket
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NoReturn

from accelopt_backends.base import Attached
from accelopt_compile.evaluate.limits import Limits
from accelopt_compile.evaluate.sandbox import forkserver
from accelopt_compile.evaluate.sandbox.channel import MESSAGE_BYTES
from accelopt_compile.evaluate.sandbox.forks import Forker
from accelopt_compile.evaluate.sandbox.surroundings import child_environment

FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)


class ChildFailed(Exception):
    """The child did not answer. `timed_out` tells a hang from a death; `faulted`, that it died of what it ran and was not
    killed; `what` is for people; `output` is the tail of what it printed."""

    def __init__(self, what: str, *, timed_out: bool, output: str, faulted: bool = False) -> None:
        super().__init__(what)
        self.what, self.timed_out, self.output, self.faulted = what, timed_out, output, faulted


@dataclass(frozen=True, kw_only=True)
class Birth:
    """What a child is to become. `readable` and `writable` are folders that its walls leave open to it; `arena` is the
    descriptor of the memory that it shares with others, -1 for none. `attached` is the device that it uses, `baseline` what
    such a runner compiles before its walls rise ("workload", "binding", "threads"), None for nothing."""

    role: Literal["referee", "builder", "runner", "tracer", "nursery", "scales"]
    scratch: str
    limits: Limits
    inductor_cache: str
    readable: Sequence[str] = ()
    writable: Sequence[str] = ()
    arena: int = -1
    attached: Attached | None = None
    baseline: Mapping[str, Any] | None = None


class Child:
    """One evaluation child, forked by the fork server or by `forker`. `request` may be called until it raises; after
    that the child is gone."""

    def __init__(self, birth: Birth, forker: Forker | None = None) -> None:
        self._limits, self._role = birth.limits, birth.role
        self._output = bytearray()
        self._printed = 0
        self._pending = b""
        self._ids = itertools.count(1)
        self._selector = selectors.DefaultSelector()
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        try:
            self._process = _start(birth, forker or forkserver.shared(birth.limits.start_s, birth.inductor_cache), theirs, write)
        except BaseException:
            ours.close()
            os.close(read)
            raise
        finally:
            theirs.close()
            os.close(write)
        self._sock, self._read = ours, read
        os.set_blocking(read, False)
        self._selector.register(ours, selectors.EVENT_READ)
        self._selector.register(read, selectors.EVENT_READ)
        ours.settimeout(birth.limits.start_s)
        self._closer = weakref.finalize(self, _end, os.getpid(), self._process, self._selector, ours, read)
        self.alive = True

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Kill the child and everything it started. Safe to call twice."""
        self.alive = False
        self._closer()

    def kill(self) -> None:
        """Kill the child while another thread waits for its answer, which then fails there."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def send(self, message: dict[str, Any]) -> int:
        """Send a request without waiting; its number, for `wait`."""
        number = next(self._ids)
        try:
            self._sock.sendall(json.dumps(message | {"id": number}).encode() + b"\n")
        except TimeoutError:
            self._fail("it took no message within the time limit", timed_out=True)
        except OSError:
            self._fail("the evaluation process was gone")
        return number

    def request(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send and wait. Raises ChildFailed; the child is then ended."""
        return self.wait(self.send(message), timeout_s)

    def wait(self, number: int, timeout_s: float) -> dict[str, Any]:
        """The answer to request `number` within `timeout_s`. Raises ChildFailed."""
        deadline = time.monotonic() + timeout_s
        try:
            message = self._next(deadline)
            if message.get("id") != number:
                self._fail("something else than an answer arrived from the evaluation process")
        except (ValueError, RecursionError):
            self._fail("the evaluation process sent garbage")
        except BaseException:
            self.close()  # an interrupt must not leave a child computing
            raise
        return message

    def forker(self) -> Forker:
        """This child, a nursery, as one that forks others. No request may be sent to it otherwise from then on."""
        self._sock.settimeout(30.0)
        return Forker(self._sock)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            for key, _ in self._selector.select(min(max(left, 0.0), 1.0)):
                self._take(key.fileobj is self._sock)
            if left <= 0 and b"\n" not in self._pending:  # after a look: this process may have been stopped, not the child
                self._fail("no answer within the time limit", timed_out=True)
        line, self._pending = self._pending.split(b"\n", 1)
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("not an object")
        return message

    def _take(self, is_channel: bool) -> None:
        if not is_channel:
            self._take_output()
            return
        try:
            data = self._sock.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._fail("")
        self._pending += data
        if len(self._pending) > MESSAGE_BYTES:
            self._fail("the evaluation process flooded its channel")

    def _take_output(self) -> None:
        try:
            data = os.read(self._read, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(self._read)
        self._printed += len(data)
        if len(self._output) < self._limits.output_bytes:
            self._output += data[: self._limits.output_bytes - len(self._output)]
        if self._printed > self._limits.flood_bytes:
            self._fail(f"printed more than {self._limits.flood_bytes >> 20} MiB")

    def _fail(self, what: str, *, timed_out: bool = False) -> NoReturn:
        with contextlib.suppress(OSError, KeyError, ValueError, ChildFailed):
            if not timed_out and self._printed <= self._limits.flood_bytes:
                self._take_output()
        self.alive = False
        ended = self._closer()
        status = ended if isinstance(ended, int) else 0
        output = self._output.decode(errors="replace")[-4000:]
        what = what or _describe(status, self._role)
        raise ChildFailed(what, timed_out=timed_out, output=output, faulted=not timed_out and _faulted(status))


def _describe(status: int, role: str) -> str:
    """How a process ended. Only a runner has a kernel in it, to be named as the cause."""
    crashed, ended = "its process crashed", "its process ended"
    if role == "runner":
        crashed, ended = "the kernel crashed the process", "the kernel ended the process"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        return f"{crashed} ({name})"
    return f"{ended} (exit code {os.waitstatus_to_exitcode(status)})"


def _faulted(status: int) -> bool:
    """Whether a signal ended a process that nobody sent it."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) in FAULTS


class _Process:
    """A child process however it was started. `reap` waits for its end and gives the raw wait status."""

    def __init__(self, pid: int, reap: Callable[[], int]) -> None:
        self.pid, self.reap = pid, reap


def _start(birth: Birth, forker: Forker, channel: socket.socket, output: int) -> _Process:
    request = {
        "role": birth.role,
        "environment": child_environment(birth.scratch, birth.inductor_cache, birth.attached.variables if birth.attached else ()),
        "scratch": birth.scratch,
        "path": [p or os.getcwd() for p in sys.path],
        "limits": asdict(birth.limits),
        "readable": list(birth.readable),
        "writable": list(birth.writable),
        "attached": None if birth.attached is None else asdict(birth.attached),
        "baseline": birth.baseline,
    }
    pid = forker.fork(request, [channel.fileno(), output, *([birth.arena] if birth.arena >= 0 else [])])
    return _Process(pid, lambda: forker.reap(pid))


def _end(owner: int, process: _Process, selector: selectors.BaseSelector, sock: socket.socket, read: int) -> int:
    """Close our ends, kill the child's whole process group, and wait for it. A child that is already dead keeps its
    pid until `reap`, so that the kill cannot hit a stranger. A fork of the `owner` only closes what it has of it."""
    selector.close()
    dead = _drained(sock)
    sock.close()
    os.close(read)
    if os.getpid() != owner:
        return 0
    if dead:
        time.sleep(0.02)  # it closed its channel by dying: let its own status stand
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.reap()


def _drained(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return False
