"""Where an interrupted search stands: its events on disk, each appended as it happens, and its state after each round.

A process that is killed loses at most the kernel that it was evaluating. What was measured under another environment or
by other settings is not gone on with.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from accelopt_cache.kernel_store import Store
from accelopt_compile.errors import DamagedEntry, InvalidRecord
from accelopt_compile.events import Event, Log, MemoryLog, RunLog
from accelopt_compile.search.state import SearchState

log = logging.getLogger("accelopt_compile.tuning")

_BEGUN = "begun"
"""Kind of the first event: the environment and the settings of the search."""


class _Kept:
    """A log on disk for as long as the disk takes it: a full one must not end a search that works."""

    def __init__(self, file: RunLog) -> None:
        self._file, self._full = file, False

    def append(self, kind: str, /, **data: Any) -> None:
        if self._full:
            return
        try:
            self._file.append(kind, **data)
        except OSError as failure:
            log.warning("%s takes no more events (%s); if this search is interrupted, it starts anew", self._file.path, failure)
            self._full = True

    def events(self) -> Iterator[Event]:
        return self._file.events()


def events_of(store: Store, workload_digest: str, target: str, about: Mapping[str, Any]) -> tuple[Log, bool]:
    """The log to give to a search, and whether it is that of an interrupted one with the same `about`."""
    path = store.search_events(workload_digest, target)
    if path is None:
        return MemoryLog(), False
    expected = json.loads(json.dumps(about))
    for _ in range(2):
        try:
            file = RunLog(path)
            first = next(file.events(), None)
            if first is None:
                file.append(_BEGUN, about=expected)
                return _Kept(file), False
            if first["kind"] == _BEGUN and first.get("about") == expected:
                return _Kept(file), True
            log.info("a search interrupted under another environment or other settings is started anew")
        except (DamagedEntry, UnicodeDecodeError) as damage:
            log.info("the events of an interrupted search cannot be read, it is started anew: %s", damage)
        except OSError as failure:
            log.info("the events of this search are not kept: %s", failure)
            return MemoryLog(), False
        _removed(path)
    return MemoryLog(), False


def state_of(store: Store, workload_digest: str, target: str) -> SearchState | None:
    """The state that an interrupted search saved last; one that cannot be read is as good as none."""
    data = store.load_progress(workload_digest, target)
    if data is None:
        return None
    try:
        return SearchState.from_json(data)
    except InvalidRecord as failure:
        log.info("the saved search on %s is started anew: %s", workload_digest[:8], failure)
        return None


def _removed(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as failure:
        log.info("%s cannot be removed: %s", path, failure)
