"""Where a search keeps its events, its state and its model's calls, so that the next process goes on where it was killed.

A search without a language model that nobody asked for by name leaves nothing behind when it ends. All others are runs,
which stay: `accelopt runs ls`. A process that is killed loses at most the kernel that it was evaluating and the answers
that had not come yet. What was measured under another environment or by other settings is not gone on with.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelopt_cache.kernel_store import Store
from accelopt_cache.run_store import INTERRUPTED, Run
from accelopt_compile.errors import AccelOptError, DamagedEntry, InvalidRecord
from accelopt_compile.events import Event, Log, MemoryLog, RunLog
from accelopt_compile.search.logged import check
from accelopt_compile.search.state import SearchState

log = logging.getLogger("accelopt_compile.tuning")

_BEGUN = "begun"
"""Kind of the event with which a process begins or goes on; in a search that is no run, with environment and settings."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one search is kept. `resume` is the state to go on from, None to begin; `run` is None where no run is kept."""

    log: Log
    save: Callable[[SearchState], object]
    end: Callable[[Mapping[str, Any]], object]
    resume: SearchState | None = None
    calls: Path | None = None
    run: Run | None = None


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


class Watched:
    """A log that tells somebody of each event, as it happens."""

    def __init__(self, inner: Log, tell: Callable[[Event], None]) -> None:
        self._inner, self._tell = inner, tell

    def append(self, kind: str, /, **data: Any) -> None:
        self._inner.append(kind, **data)
        self._tell({"kind": kind, **data})

    def events(self) -> Iterator[Event]:
        return self._inner.events()


def fleeting(store: Store, workload: str, target: str, about: Mapping[str, Any]) -> Place:
    """The place of a search that leaves nothing when it has ended; one of the same `about` that was killed, or interrupted, is
    gone on with."""
    events, continued = events_of(store, workload, target, about)

    def end(told: Mapping[str, Any]) -> None:
        if told["outcome"] != INTERRUPTED:
            store.clear_progress(workload, target)

    return Place(
        log=events,
        save=_saving(lambda state: store.save_progress(workload, target, state)),
        end=end,
        resume=_on_a_new_budget(state_of(store, workload, target)) if continued else None,
    )


@contextlib.contextmanager
def kept(store: Store, about: Mapping[str, Any]) -> Iterator[Place]:
    """The place of a run: an unfinished one of the same `about` that nobody works on, else a new one. Where nothing can
    be written, the search works all the same and is not kept."""
    run = store.runs.unfinished(about) or store.runs.create(about)
    with contextlib.ExitStack() as held:
        if run is None or not held.enter_context(run.lock):
            log.warning("this run is not kept: %s cannot be written", store.runs.files.root.named)
            yield Place(log=MemoryLog(), save=lambda _: None, end=lambda _: None)
            return
        events, whole = _run_log(run)
        events.append(_BEGUN)  # what lies between the last event and this one was no time of the search
        yield Place(
            log=events,
            save=_saving(run.save_state),
            end=run.finish,
            resume=_checked(run.load_state) if whole else None,
            calls=run.calls_path,
            run=run,
        )


def _saving(write: Callable[[dict[str, Any]], object]) -> Callable[[SearchState], None]:
    """Saves a state by `write`. One that is too large to be kept must not end a search that works."""

    def save(state: SearchState) -> None:
        try:
            write(state.to_json())
        except InvalidRecord as failure:
            log.warning("the state of a search is not kept (%s); if it is interrupted, it starts anew", failure)

    return save


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
                check(file.events())
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
    return _checked(lambda: store.load_progress(workload_digest, target))


def _on_a_new_budget(state: SearchState | None) -> SearchState | None:
    """Each compile has a budget of its own: what an earlier one spent is not held against it."""
    return None if state is None else replace(state, seconds=0.0)


def _run_log(run: Run) -> tuple[Log, bool]:
    """The log of a run, and whether its state may be gone on with: not after damage, since it would have no events."""
    whole = True
    for _ in range(2):
        try:
            file = RunLog(run.events_path)
            check(file.events())
            return _Kept(file), whole
        except (DamagedEntry, UnicodeDecodeError) as damage:
            log.warning("the events of run %s cannot be read, it is started anew; paid answers are kept: %s", run.id, damage)
            _removed(run.events_path)
            _removed(run.path / "state.json")
            whole = False
        except OSError as failure:
            log.warning("the events of run %s are not kept: %s", run.id, failure)
            break
    return MemoryLog(), whole


def _checked(load: Callable[[], dict[str, Any] | None]) -> SearchState | None:
    try:
        data = load()
        return None if data is None else SearchState.from_json(data)
    except (AccelOptError, InvalidRecord) as failure:
        log.info("the saved state of a search cannot be read, it is started anew: %s", failure)
        return None


def _removed(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as failure:
        log.info("%s cannot be removed: %s", path, failure)
