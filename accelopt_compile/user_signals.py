"""What a signal handler of the user's raises while we compile: a deadline, say, which is not for us to swallow.

Such an exception comes up wherever the program happens to stand. In our layer that is often inside an `except OSError` about a
full disk, and the commonest deadline, `TimeoutError`, is an OSError; so it travels as something that none of ours catches.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Raised(BaseException):
    """Carries what a handler raised past every `except Exception`."""

    def __init__(self, failure: Exception, by: _Carrying) -> None:
        super().__init__(failure)
        self.failure, self.by = failure, by


class _Carrying:
    """A handler as it was, but for the way in which its exceptions travel."""

    def __init__(self, handler: Callable[[int, Any], Any], *, restarts: bool) -> None:
        self.handler, self.restarts, self.open = handler, restarts, True

    def __call__(self, number: int, frame: Any) -> Any:
        try:
            return self.handler(number, frame)
        except Exception as failure:
            if not self.open:
                raise
            raise _Raised(failure, self) from None


_LINUX_SIGACTION = (256, 136)
"""Bytes of libc's struct sigaction at most, and where its flags lie, on Linux with 64 bits: behind the handler and the mask."""
_SA_RESTART = 0x10000000


def _restarts(number: int) -> bool:
    """Whether system calls go on after this signal: `signal.signal` turns that off, and asyncio has it on for its handlers."""
    if sys.platform != "linux" or sys.maxsize < 1 << 32:
        return False
    size, at = _LINUX_SIGACTION
    found = ctypes.create_string_buffer(size)
    if ctypes.CDLL(None).sigaction(number, None, found):
        return False
    return bool(int.from_bytes(found.raw[at : at + 4], sys.byteorder) & _SA_RESTART)


@contextmanager
def heard() -> Iterator[None]:
    """Raise what the user's handlers raise in here as they raised it, past all handling of our own failures.

    Handlers run in the main thread alone; elsewhere, and for handlers that Python did not install, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    carrying: dict[int, _Carrying] = {}
    try:
        try:
            for number in signal.valid_signals():
                handler = signal.getsignal(number)
                if callable(handler) and handler is not signal.default_int_handler and not isinstance(handler, _Carrying):
                    carrying[number] = _Carrying(handler, restarts=_restarts(number))
                    signal.signal(number, carrying[number])
            yield
        finally:
            for at, ours in carrying.items():
                restarts, handler, ours.open = ours.restarts, ours.handler, False
                if signal.getsignal(at) is ours:  # else it was changed meanwhile, and stays so
                    signal.signal(at, handler)
                    if restarts:
                        signal.siginterrupt(at, False)
    except _Raised as raised:
        if raised.by not in carrying.values():  # a compile around this one gives it back
            raise
        raise raised.failure from raised.failure.__cause__
