"""Waiting for several slow answers at once."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """Calls that run in threads of their own from now on. The threads are daemons: neither an interrupt nor the end of the
    process waits for a service that does not answer."""

    def __init__(self, calls: Sequence[Callable[[], T]]) -> None:
        self._results: list[T | None] = [None] * len(calls)
        self._failure: BaseException | None = None
        self._threads = [threading.Thread(target=self._run, args=(i, call), daemon=True) for i, call in enumerate(calls)]
        for thread in self._threads:
            thread.start()

    def done(self, timeout_s: float = math.inf) -> bool:
        """Whether all have answered; waits for that at most so long."""
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if math.isinf(end) else max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def results(self) -> list[T]:
        """The answers in the order of the calls. Waits; raises what a call raised."""
        self.done()
        if self._failure is not None:
            raise self._failure
        return self._results  # type: ignore[return-value]

    def _run(self, index: int, call: Callable[[], T]) -> None:
        try:
            self._results[index] = call()
        except BaseException as failure:
            self._failure = self._failure or failure


def together(calls: Sequence[Callable[[], T]], *, concurrent: bool) -> list[T]:
    """The results of all calls, in order: at the same time where that is wanted, else one after another here."""
    if not concurrent or len(calls) < 2:
        return [call() for call in calls]
    return Pending(calls).results()
