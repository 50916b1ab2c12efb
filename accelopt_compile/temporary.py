"""Folders for a while, all below one of this process: what a process that was killed has left goes when the next begins."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import shutil
import stat
import tempfile
import time
import weakref
from pathlib import Path

PREFIX = "accelopt-run-"
YOUNG_S = 60.0
"""Until then a folder may be waiting for its lock."""


class Folder:
    """A new folder with `name` in its own, removed by the process that made it: not by a fork of that, which drops it too."""

    def __init__(self, name: str) -> None:
        if not _own(os.getpid()).is_dir():  # whoever cleans /tmp of old things has taken it
            _own.cache_clear()
        self.name = tempfile.mkdtemp(prefix=f"{name}-", dir=_own(os.getpid()))
        self.cleanup = weakref.finalize(self, _remove, Path(self.name), os.getpid())

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


@functools.lru_cache(maxsize=1)
def _own(process: int) -> Path:
    """The folder of a process, locked while it lives; a fork has its own."""
    top = Path(tempfile.gettempdir())
    sweep(top)
    made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=top))
    # Not a FileLock: that unlocks when it is collected, which a fork of ours would do to the lock of both.
    with contextlib.suppress(OSError):  # a file system without locks: nobody can take this for left behind either
        fcntl.flock(os.open(made / "lock", os.O_CREAT | os.O_RDWR, 0o600), fcntl.LOCK_EX | fcntl.LOCK_NB)
    atexit.register(_remove, made, process)
    return made


def _remove(made: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(made, ignore_errors=True)


def sweep(top: Path) -> None:
    """Remove what processes of ours that live no more have left below `top`."""
    for left in top.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            status = left.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or time.time() - status.st_mtime < YOUNG_S:
                continue
            lock = os.open(left / "lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(lock)
