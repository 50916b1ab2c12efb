"""Inductor's precompiled header, lent by the user's own cache to the children that compile baselines.

It takes 8 to 20 s to build and 150 MB, its name is a digest of the compiler, the flags and the text behind it, and the
user's process has mostly built it already. Children find it in a folder of theirs: the same file under a second name, so
that neither depends on the other's folder, or a copy where the two lie on different disks.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import tempfile
from pathlib import Path

from filelock import FileLock, Timeout

HEADERS = "precompiled_headers"
"""Inductor's name for the folder, in its default cache folder below the temporary folder that it meets at import."""


def lend_headers(temporary: str) -> dict[str, str]:
    """Put the user's precompiled headers where a process with `temporary` as its TMPDIR looks for them. Gives what else that
    process must be told for this to be so. Where nothing can be lent, the process builds its own."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ModuleNotFoundError):
        return {}
    folder = "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user)  # as Inductor writes it
    with contextlib.suppress(OSError):
        _lend(Path(tempfile.gettempdir(), folder, HEADERS), Path(temporary, folder, HEADERS))
    return {"LOGNAME": user}


def drop_headers(folder: Path) -> bool:
    """Remove the precompiled headers of the children below `folder`; whether there were any. What includes them goes on with
    their text, and the next process builds them again."""
    found = list(folder.glob(f"*/{HEADERS}/*.gch"))
    for built in found:
        built.unlink(missing_ok=True)
    return bool(found)


def _lend(theirs: Path, ours: Path) -> None:
    if theirs.stat().st_uid != os.getuid():  # in a folder that all may write to, anybody may have made it
        return
    ours.mkdir(parents=True, exist_ok=True)
    whole = [built for built in theirs.glob("*.h.gch") if _is_whole(built)]
    for built in sorted(whole, key=lambda path: path.stat().st_mtime, reverse=True):
        if not _put(built, ours / built.name):
            return  # to another disk only the newest is copied


def _is_whole(built: Path) -> bool:
    """Whether nobody is writing it: Inductor holds a lock meanwhile."""
    lock = built.parent / "locks" / f"{built.name.removesuffix('.h.gch')}.lock"
    if not lock.exists():
        return True
    try:
        with FileLock(lock, timeout=0):
            return True
    except (Timeout, OSError):
        return False


def _put(built: Path, to: Path) -> bool:
    """Lend a header with its text; whether as the same file."""
    if to.exists():
        return True
    text = built.with_suffix("")
    shutil.copyfile(text, to.with_suffix(""))
    try:
        os.link(built, to)
    except FileExistsError:
        return True
    except OSError:
        new = to.with_name(f"{to.name}.{os.getpid()}")
        shutil.copyfile(built, new)
        new.replace(to)
        return False
    return True
