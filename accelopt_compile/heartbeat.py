"""A line in the log every few seconds of a search, for those who wait for their model."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from accelopt_compile.events import Event
from accelopt_compile.records import Basis
from accelopt_compile.wording import plural, times_text

log = logging.getLogger("accelopt_compile.tuning")

SILENT_S = 10.0
"""A line is written so often while something happens."""


class Heartbeat:
    """Call it with each event of a search of `name`.

    >>> now = iter([0.0, 4.0, 12.0])
    >>> beat = Heartbeat("softmax ab12ab12", clock=lambda: next(now))
    >>> accepted = {"kind": "verdict", "verdict": {"timing": {"speedup": 1.42}}}
    >>> beat(accepted), beat({"kind": "verdict", "verdict": {"stage": "build"}})
    (None, None)
    >>> beat.line(12.0)
    'still searching softmax ab12ab12: 2 kernels judged, best 1.42x, after 12 s'
    """

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = name, clock
        self._began = self._told_at = clock()
        self._judged, self._best = 0, 0.0
        self._basis: Basis = "measured"

    def __call__(self, event: Event) -> None:
        if event["kind"] == "verdict":
            self._judged += 1
            if (timing := event["verdict"].get("timing")) is not None:
                self._best = max(self._best, float(timing["speedup"]))
                self._basis = "estimated" if timing.get("basis") == "estimated" else "measured"
        if (now := self._clock()) - self._told_at >= SILENT_S:
            self._told_at = now
            log.info("%s", self.line(now - self._began))

    def line(self, seconds: float) -> str:
        """Where the search stands after `seconds`."""
        best = f"best {times_text(self._best, self._basis)}" if self._best else "no kernel yet"
        judged = plural(self._judged, "kernel")
        return f"still searching {self._name}: {judged} judged, {best}, after {seconds:.0f} s"
