"""Who searches: one process per (workload, target), as a courtesy. Results stay right when locks do not work.

The lock is a kernel lock on a file that is never deleted: it falls with its holder, also by SIGKILL. Beside it lies a
note for people (host, pid, since), which is only believed while its process lives.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from filelock import FileLock, Timeout

from accelopt_cache import durable, layout
from accelopt_cache.files import Files, warn_once
from accelopt_compile.errors import DamagedEntry

RETRY_S = 0.05
"""A claim tries this long, so that a waiter's momentary probe of the lock does not refuse it."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who searches now: host name, process id, and since when (ISO 8601, UTC)."""

    host: str
    pid: int
    since: str


class Claims:
    """Claims on searches under one root."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def claim(self, workload_digest: str, target: str, *, timeout_s: float = 0.0) -> AbstractContextManager[bool]:
        """True when this process (and thread) may search, False when another one does. Where no lock can be made:
        True, since a search done twice is better than none."""
        return self.hold(layout.lock(workload_digest, target), timeout_s=timeout_s)

    @contextlib.contextmanager
    def hold(self, name: str, *, timeout_s: float = 0.0) -> Iterator[bool]:
        """`claim` on the lock file `name`, which must end in ".lock"."""
        lock = self._lock(name)
        try:
            if lock is not None:
                lock.acquire(timeout=max(timeout_s, RETRY_S), poll_interval=0.01)
        except Timeout:
            yield False
            return
        except (OSError, NotImplementedError) as failure:
            warn_once(self.files.root.named, f"has no working locks ({failure}); a search may be done twice")
            lock = None
        if lock is None:
            yield True
            return
        note = Path(lock.lock_file).with_suffix(".json")
        try:
            _write_note(note)
            yield True
        finally:
            with contextlib.suppress(OSError):
                note.unlink()
            lock.release()

    def wait(self, workload_digest: str, target: str, timeout_s: float) -> bool:
        """Wait until nobody holds the claim; False when it is still held after `timeout_s`."""
        return self.free(layout.lock(workload_digest, target), timeout_s)

    def free(self, name: str, timeout_s: float = 0.0) -> bool:
        """`wait` on the lock file `name`."""
        lock = self._lock(name)
        if lock is None or not os.path.lexists(lock.lock_file):
            return True
        try:
            lock.acquire(timeout=max(timeout_s, 0.0), poll_interval=0.02)
            lock.release()
        except Timeout:
            return False
        except (OSError, NotImplementedError):
            pass  # no working lock: nothing to wait for
        return True

    def holder(self, workload_digest: str, target: str) -> Holder | None:
        """Who holds the claim, or None when nobody does (or the holder left no note)."""
        return self.holder_of(layout.lock(workload_digest, target))

    def holder_of(self, name: str) -> Holder | None:
        """`holder` of the lock file `name`."""
        path = self.files.path(name)
        if path is None:
            return None
        try:
            note = durable.parse_object(durable.read_file(path.with_suffix(".json"), limit=4096))
            holder = Holder(host=str(note["host"]), pid=int(note["pid"]), since=str(note["since"]))
        except (OSError, DamagedEntry, KeyError, TypeError, ValueError):
            return None
        return holder if _alive(holder) else None

    def _lock(self, name: str) -> FileLock | None:
        path = self.files.path(name)
        if path is None or not self.files.writable or self.files.root.path is None:
            return None
        try:
            durable.make_dirs(path.parent, below=self.files.root.path)
            if path.is_symlink() or (path.exists() and not path.is_file()):
                self.files.quarantine(name, "it is not a lock file")
            mode = stat.S_IMODE(path.parent.stat().st_mode) & 0o666
        except OSError as failure:
            warn_once(str(path.parent), f"cannot hold locks ({failure.strerror}); a search may be done twice")
            return None
        # A soft lock would outlive a killed holder; a claim without any lock is better.
        return FileLock(path, mode=mode, fallback_to_soft=False)


def _write_note(note: Path) -> None:
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    with contextlib.suppress(OSError):
        durable.write_atomic(note, durable.encode({"host": socket.gethostname(), "pid": os.getpid(), "since": since}))


def _alive(holder: Holder) -> bool:
    if holder.host != socket.gethostname():
        return True  # cannot be seen from here
    if holder.pid <= 0:
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
