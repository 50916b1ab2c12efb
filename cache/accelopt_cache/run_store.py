"""Runs on disk, `v1/runs/<run id>/`: what was asked (run.json), what happened (events.jsonl), what a model was asked and
answered (calls.jsonl), where the search stands (state.json) and what came of it (result.json).

The two logs are appended to by their writers, who get their paths here; the other three are replaced as a whole, so that
a killed process leaves each as it was before or after. What is read back is checked; what is damaged names its file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from accelopt_cache import durable, layout
from accelopt_cache.claims import Claims, Holder
from accelopt_cache.files import Files, warn_once
from accelopt_compile.errors import DamagedEntry, InvalidRecord, UsageError

RUN_VERSION = 1

STATE_LIMIT = 64 << 20
"""Bytes of the largest saved state: hundreds of kernels and what was learned from them."""

NO_RUNS = "only `accelopt tune` makes runs, and there is none in"

LOCK = "worker.lock"
"""Held by the process that works on a run; the note beside it, worker.json, names it."""

_EVENTS, _CALLS, _STATE, _RESULT, _ABOUT = "events.jsonl", "calls.jsonl", "state.json", "result.json", "run.json"
_TEXTS = ("workload", "target", "proposer")
_OBJECTS = ("binding", "settings", "models", "environment")
_SAME = (*_TEXTS, *_OBJECTS)
"""What two searches must agree in, so that one may go on with the other's run."""

INTERRUPTED = "interrupted"
"""Outcome of a run that somebody stopped: it can be gone on with, as one without a result."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run. `about` is its run.json."""

    id: str
    about: Mapping[str, Any]
    files: Files

    @property
    def path(self) -> Path:
        """The directory of the run."""
        path = self.files.path(layout.run(self.id))
        assert path is not None, "a run is made or found on disk only"
        return path

    @property
    def events_path(self) -> Path:
        """The file for a `RunLog`."""
        return self.path / _EVENTS

    @property
    def calls_path(self) -> Path:
        """The file for the recorded calls of a language model, one JSON object a line."""
        return self.path / _CALLS

    @property
    def lock(self) -> AbstractContextManager[bool]:
        """`with run.lock as mine:`; `mine` is False when another process (or thread) works on the run. Never waits."""
        return self._locked()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        with Claims(self.files).hold(layout.run(self.id, LOCK)) as mine:
            if mine and self.files.writable:
                for name in (_EVENTS, _CALLS):  # their writers would follow a link
                    with contextlib.suppress(OSError):
                        self.files.clear_way(layout.run(self.id, name))
            yield mine

    @property
    def holder(self) -> Holder | None:
        """Who works on the run now, or None: also on a root that may only be read."""
        return Claims(self.files).holder_of(layout.run(self.id, LOCK))

    @property
    def busy(self) -> bool:
        """Whether the run's lock is held, by this process or another."""
        return not Claims(self.files).free(layout.run(self.id, LOCK))

    def load_state(self) -> dict[str, Any] | None:
        """What was saved last, or None. Raises DamagedEntry."""
        return _read(self.files, layout.run(self.id, _STATE), STATE_LIMIT)

    def save_state(self, data: Mapping[str, Any]) -> bool:
        """Replace the state; False where that cannot be written. Raises InvalidRecord for what is not plain JSON."""
        encoded = durable.encode(dict(data), limit=STATE_LIMIT, indent=None)
        return self.files.write_file(layout.run(self.id, _STATE), encoded)

    def result(self) -> dict[str, Any] | None:
        """What came of the run, or None while it has not ended. Raises DamagedEntry."""
        found = _read(self.files, layout.run(self.id, _RESULT))
        if found is not None and not isinstance(found.get("outcome"), str):
            raise DamagedEntry(f"{self.path / _RESULT}: it names no outcome")
        return found

    def finish(self, result: Mapping[str, Any]) -> bool:
        """Keep what came of the run; False where that cannot be written. Raises InvalidRecord."""
        if not isinstance(result.get("outcome"), str):
            raise InvalidRecord("a result names its outcome")
        return self.files.write_file(layout.run(self.id, _RESULT), durable.encode(dict(result)))


class RunStore:
    """All runs under one root. `now` and `token` give a new run its name."""

    def __init__(
        self,
        files: Files,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        token: Callable[[], str] = lambda: secrets.token_hex(2),
    ) -> None:
        self.files, self._now, self._token = files, now, token

    def create(self, about: Mapping[str, Any]) -> Run | None:
        """A new run, or None where nothing can be written. `about` is run.json but for format, id and created.
        Raises InvalidRecord for one that could not be read back."""
        created = self._now()
        run_id = layout.run_id(created, str(about.get("workload")), self._token())
        made = {**about, "format": RUN_VERSION, "id": run_id, "created": created.isoformat(timespec="microseconds")}
        try:
            made = _checked(durable.plain(made), run_id)
        except DamagedEntry as failure:
            raise InvalidRecord(f"not a run: {failure}") from failure
        if not self.files.write_file(layout.run(run_id, _ABOUT), durable.encode(made)):
            return None
        return Run(id=run_id, about=made, files=self.files)

    def list(self) -> tuple[Run, ...]:
        """All runs that can be read, the newest first; one that is damaged costs a warning."""
        found = [run for run_id in self._ids() if (run := self._readable(run_id)) is not None]
        return tuple(sorted(found, key=lambda run: (str(run.about["created"]), run.id), reverse=True))

    def open(self, prefix: str) -> Run:
        """The run with this id or start of an id; "last" is the newest. Raises UsageError when that names none or
        several, DamagedEntry when its run.json is damaged."""
        ids = self._ids()
        if prefix == "last" and (runs := self.list()):
            return runs[0]
        hits = [run_id for run_id in ids if prefix and run_id.startswith(prefix)]
        if len(hits) > 1:
            told = ", ".join(hits[:4]) + (", ..." if len(hits) > 4 else "")
            raise UsageError(f"{prefix!r} is the start of {len(hits)} runs ({told}); give more characters")
        run = self._load(hits[0]) if hits else None
        if not ids:
            raise UsageError(f"no run {prefix!r}: {NO_RUNS} {self.files.root.named}")
        if run is None:
            raise UsageError(f"no run {prefix!r} among the {len(ids)} in {self.files.root.named}; `accelopt runs ls` lists them")
        return run

    def unfinished(self, matching: Mapping[str, Any]) -> Run | None:
        """The newest run with the same workload, target, binding, settings, proposer, models and environment that has
        not ended (or was interrupted) and that nobody works on."""
        if not self.files.writable:
            return None  # nothing that happens there would be kept
        wanted = durable.plain({name: matching.get(name) for name in _SAME})
        for run in self.list():
            if wanted == {name: run.about[name] for name in _SAME} and _open_ended(run) and not run.busy:
                return run
        return None

    def remove(self, run: Run) -> bool:
        """Delete a run; False where it is worked on, or nothing may be deleted."""
        root = self.files.root.path
        if root is None or not self.files.writable or run.busy:
            return False
        try:
            durable.make_dirs(root / layout.TMP, below=root)
            # Out of sight at once: a reader never meets half a run, and `prune` sweeps what a kill leaves.
            gone = root / layout.TMP / f"{run.id}.{secrets.token_hex(4)}"
            os.replace(run.path, gone)
        except OSError as failure:
            warn_once(str(run.path), f"cannot be removed ({failure.strerror})")
            return False
        shutil.rmtree(gone, ignore_errors=True)
        return True

    def _ids(self) -> tuple[str, ...]:
        return tuple(name for name in self.files.names(layout.RUNS) if layout.is_run(name))

    def _load(self, run_id: str) -> Run | None:
        name = layout.run(run_id, _ABOUT)
        if (data := _read(self.files, name)) is None:
            return None
        try:
            return Run(id=run_id, about=_checked(data, run_id), files=self.files)
        except DamagedEntry as failure:
            raise DamagedEntry(f"{self.files.path(name)}: {failure}") from failure

    def _readable(self, run_id: str) -> Run | None:
        try:
            return self._load(run_id)
        except DamagedEntry as failure:
            warn_once(str(failure), "(left out)")
            return None


def _open_ended(run: Run) -> bool:
    try:
        result = run.result()
    except DamagedEntry as failure:
        warn_once(str(failure), "(left out)")
        return False
    return result is None or result["outcome"] == INTERRUPTED


def _read(files: Files, name: str, limit: int = durable.READ_LIMIT) -> dict[str, Any] | None:
    """The JSON object in a file, or None where there is none. Raises DamagedEntry with the file's name."""
    try:
        data = files.load(name, limit=limit)
        return None if data is None else durable.parse_object(data)
    except DamagedEntry as failure:
        raise DamagedEntry(f"{files.path(name)}: {failure}") from failure


def _checked(about: Any, run_id: str) -> dict[str, Any]:
    """`about` if it is a run.json of this run. Raises DamagedEntry, without the file's name."""
    found: dict[str, Any] = about
    if found.get("format") != RUN_VERSION:
        raise DamagedEntry(f"its format is {found.get('format')!r}, this version reads {RUN_VERSION}")
    if found.get("id") != run_id or not layout.is_run(run_id):
        raise DamagedEntry(f"its id is {found.get('id')!r}, not {run_id!r}")
    wrong = [name for name in ("created", *_TEXTS) if not isinstance(found.get(name), str)]
    wrong += [name for name in _OBJECTS if not isinstance(found.get(name), dict)]
    if wrong:
        raise DamagedEntry(f"it lacks {', '.join(wrong)}, or has them in another form")
    return found
