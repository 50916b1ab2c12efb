"""The tree under a root as the stores see it: files on disk, and above them a layer in memory for what cannot be written.

Nothing here raises for the state of the disk. What cannot be read is a miss with one warning and goes to quarantine (or is
skipped where we may not write); what cannot be written stays in this process with one warning.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from accelopt_cache import durable, layout
from accelopt_cache.quarantine import NOTE, Note, move_out, offender, plain_word
from accelopt_compile.errors import DamagedEntry, InvalidRecord

log = logging.getLogger(__name__)

T = TypeVar("T")

USE_STAMP_S = 3600.0

UNKEPT = "what is found now stays in this process"
"""What follows for a search from a root that does not take it."""

_warned: set[tuple[str, str]] = set()
_warned_lock = threading.Lock()


def warn_once(path: str, reason: str) -> None:
    """One WARNING a process for the same path and reason."""
    with _warned_lock:
        if (path, reason) in _warned:
            return
        _warned.add((path, reason))
    log.warning("accelopt cache: %s %s", path, reason)


class UnreadableEntry(Exception):
    """What is there cannot be read now: for want of a permission or of file descriptors. It may be whole, so it stays."""


class Files:
    """Reads and writes by relative path. Thread-safe; any number of processes may share the root."""

    def __init__(self, root: layout.Root) -> None:
        self.root = root
        self._memory: dict[str, bytes] = {}
        self._hidden: set[str] = set()
        self._scratch: Path | None = None
        if root.why:
            warn_once(root.named, f"{root.why}; {UNKEPT}")

    @property
    def writable(self) -> bool:
        """Whether writes are tried on disk at all."""
        return self.root.path is not None and self.root.writable

    def path(self, name: str) -> Path | None:
        """The real path of `name`, or None where no part of the root is used."""
        return None if self.root.path is None else self.root.path / name

    # ------------------------------------------------------------ reading

    def read(self, name: str, check: Callable[[bytes], T], *, limit: int = durable.READ_LIMIT) -> T | None:
        """`check(bytes)` of a file, or None for a miss. `check` raises DamagedEntry or InvalidRecord for bytes that are
        not what the name says; such a file is quarantined. UnreadableEntry, for another file that belongs to it, is a miss."""
        try:
            data = self.load(name, limit=limit)
            return None if data is None else check(data)
        except UnreadableEntry:
            return None
        except (DamagedEntry, InvalidRecord, RecursionError, OverflowError) as failure:
            self.quarantine(name, str(failure) or type(failure).__name__)
            return None

    def load(self, name: str, *, limit: int = durable.READ_LIMIT) -> bytes | None:
        """The bytes at `name`, or None where there are none. Raises DamagedEntry for what is no plain file of ours."""
        held = self._memory.get(name)
        return held if held is not None else self._read_disk(name, limit)

    def _read_disk(self, name: str, limit: int) -> bytes | None:
        path = self.path(name)
        if path is None or name in self._hidden:
            return None
        try:
            if os.path.realpath(path.parent) != str(path.parent):
                raise DamagedEntry("it lies behind a symbolic link")
            return durable.read_file(path, limit=limit)
        except (FileNotFoundError, NotADirectoryError):
            return None  # absent, or removed between the listing and now
        except OSError as failure:
            self._hidden.add(name)
            warn_once(str(path), f"cannot be read ({failure.strerror}); skipped")
            return None

    def names(self, directory: str) -> list[str]:
        """Sorted names of the entries in a directory, without temporaries; empty when it cannot be listed."""
        prefix = directory + "/"
        held = list(self._memory)
        found = {name[len(prefix) :].split("/", 1)[0] for name in held if name.startswith(prefix)}
        path = self.path(directory)
        if path is not None:
            with contextlib.suppress(OSError):
                on_disk = os.listdir(path)
                found.update(n for n in on_disk if not n.startswith(".") and prefix + n not in self._hidden)
        return sorted(found)

    def exists(self, name: str) -> bool:
        """Whether there is something at `name`, read or not."""
        path = self.path(name)
        return name in self._memory or (path is not None and name not in self._hidden and os.path.lexists(path))

    def lies_there(self, name: str) -> bool:
        """Whether something is on disk at `name`, also what could not be read."""
        path = self.path(name)
        return path is not None and os.path.lexists(path)

    # ------------------------------------------------------------ writing

    def write(self, name: str, data: bytes) -> bool:
        """Store `data` at `name`: on disk (True), else in memory (False). A file that already holds it is kept and only
        its age renewed, so that `prune` sees it as fresh."""
        if self.write_file(name, data):
            return True
        self.hold(name, data)
        return False

    def write_file(self, name: str, data: bytes) -> bool:
        """Store `data` on disk, or warn once and return False."""
        if not self.writable:
            return False
        try:
            self._write_disk(name, data)
        except OSError as failure:
            warn_once(self.root.named, f"cannot be written ({failure.strerror or failure}); {UNKEPT}")
            return False
        self._memory.pop(name, None)
        self._hidden.discard(name)
        return True

    def hold(self, name: str, data: bytes) -> None:
        """Keep `data` at `name` in this process only."""
        self._memory[name] = data

    def _write_disk(self, name: str, data: bytes) -> None:
        path = self.path(name)
        assert path is not None and self.root.path is not None
        self.clear_way(name)
        durable.make_dirs(path.parent, below=self.root.path)
        try:
            if durable.read_file(path) == data:
                os.utime(path)
                return
        except (OSError, DamagedEntry):
            pass  # absent or damaged: replaced below
        try:
            durable.write_atomic(path, data)
        except FileNotFoundError:  # `prune` removed the empty directory between the two calls
            durable.make_dirs(path.parent, below=self.root.path)
            durable.write_atomic(path, data)

    def clear_way(self, name: str) -> None:
        """Quarantine what stands where a directory or file of ours must be: files, links, directories."""
        parts = name.split("/")
        for depth in range(1, len(parts) + 1):
            step = "/".join(parts[:depth])
            path = self.path(step)
            assert path is not None
            if not os.path.lexists(path):
                return
            if path.is_symlink() or path.is_dir() != (depth < len(parts)):
                self.quarantine(step, "it is not what belongs here")

    def held(self) -> int:
        """How many entries live in this process only."""
        return len(self._memory)

    def remove(self, name: str) -> bool:
        """Delete a file; True when there was one and it is gone. Where it cannot be deleted it is hidden from this process."""
        gone = self.exists(name)
        self._memory.pop(name, None)
        path = self.path(name)
        if path is not None and os.path.lexists(path):
            try:
                if not self.writable:
                    raise PermissionError(errno.EROFS, "read-only")
                path.unlink()
            except OSError:
                self._hidden.add(name)
                gone = False
        return gone

    def touch(self, name: str) -> None:
        """Stamp a use on a file, at most every hour, so that `prune` keeps what is used. Does nothing on a read-only root."""
        path = self.path(name)
        if path is not None and self.writable:
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime > USE_STAMP_S:
                    os.utime(path, follow_symlinks=False)

    def quarantine(self, name: str, reason: str, *, word: str = "damaged", diagnosis: str = "", quiet: bool = False) -> bool:
        """Take an entry out of service: moved to `v1/quarantine` as `<name>.<word>`, with a note beside it that says why and what
        to do; or hidden from this process alone, False, where we may not write. One warning, unless `quiet` because the caller
        gives a better one."""
        self._memory.pop(name, None)
        root = self.root.path
        path = None if root is None else offender(root, name)
        if root is None or path is None or not os.path.lexists(path):
            log.info("accelopt cache: %s left out of use: %s", name, reason)
            return True
        note = Note(reason=reason, diagnosis=diagnosis, word=plain_word(word))
        if self.writable and move_out(root, name, path, note):
            if not quiet:
                log.warning("accelopt cache: %s: %s; moved to quarantine, treated as a miss", path, reason)
            return True
        self._hidden.add(name)
        if not quiet:
            warn_once(str(path), f": {reason}; skipped, treated as a miss")
        return False

    def quarantined(self, start: str) -> list[tuple[Path, str]]:
        """(place, reason) of what lies in quarantine under a name with this start; "" where the note is lost."""
        folder = self.path(layout.QUARANTINE)
        held = [n for n in self.names(layout.QUARANTINE) if n.startswith(start) and not n.endswith(NOTE)]
        return [] if folder is None else [(folder / name, self._noted(name)) for name in held]

    def _noted(self, name: str) -> str:
        try:
            data = self.load(f"{layout.QUARANTINE}/{name}{NOTE}", limit=1 << 16)
            return "" if data is None else str(durable.parse_object(data).get("reason", ""))
        except (DamagedEntry, RecursionError):
            return ""

    def scratch(self) -> Path:
        """A directory of this process for what cannot go to the root; removed at exit."""
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="accelopt-"))
            weakref.finalize(self, _remove, self._scratch, os.getpid())
        return self._scratch


def _remove(scratch: Path, maker: int) -> None:
    if os.getpid() == maker:  # not a fork, which has the same finalizer
        shutil.rmtree(scratch, ignore_errors=True)
