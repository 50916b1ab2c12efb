"""What a signal handler of the user's raises while we compile: a deadline, say, which is not for us to swallow.

Such an exception comes up wherever the program happens to stand. In our layer that is often inside an `except OSError` about a
full disk, and the commonest deadline, `TimeoutError`, is an OSError; so it travels as something that none of ours catches.
"""

from __future__ import annotations

import signal
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

    def __init__(self, handler: Callable[[int, Any], Any]) -> None:
        self.handler, self.open = handler, True

    def __call__(self, number: int, frame: Any) -> Any:
        try:
            return self.handler(number, frame)
        except Exception as failure:
            if not self.open:
                raise
            raise _Raised(failure, self) from None


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
                    carrying[number] = _Carrying(handler)
                    signal.signal(number, carrying[number])
            yield
        finally:
            for at, ours in carrying.items():
                ours.open, handler = False, ours.handler
                if signal.getsignal(at) is ours:  # else it was changed meanwhile, and stays so
                    signal.signal(at, handler)
    except _Raised as raised:
        if raised.by not in carrying.values():  # a compile around this one gives it back
            raise
        raise raised.failure from raised.failure.__cause__
