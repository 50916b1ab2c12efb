"""Inductor's precompiled header, lent by the user's own cache to the children that compile baselines.

It takes 8 to 20 s to build and 150 MB, its name is a digest of the compiler, the flags and the text behind it, and the
user's process has mostly built it already. Children see it through links in a folder of theirs: they may read what the
user's Inductor reads, and write nothing there.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import tempfile
from pathlib import Path

HEADERS = "precompiled_headers"
"""Inductor's name for the folder, in its default cache folder below the temporary folder that it meets at import."""


def lend_headers(temporary: str) -> dict[str, str]:
    """Link the user's precompiled headers into the folder where a process with `temporary` as its TMPDIR looks for them.
    Gives what else that process must be told for this to be so. Where nothing can be lent, the process builds its own."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ModuleNotFoundError):
        return {}
    folder = f"torchinductor_{user}"
    theirs, ours = Path(tempfile.gettempdir(), folder, HEADERS), Path(temporary, folder, HEADERS)
    if "/" not in user:
        with contextlib.suppress(OSError):
            _link(theirs, ours)
    return {"LOGNAME": user}


def _link(theirs: Path, ours: Path) -> None:
    ours.mkdir(parents=True, exist_ok=True)
    for stale in (link for link in ours.iterdir() if link.is_symlink() and not link.exists()):
        stale.unlink(missing_ok=True)
    if theirs.stat().st_uid != os.getuid():  # in a folder that all may write to, anybody may have made it
        return
    for built in theirs.glob("*.h.gch"):
        for file in (built.with_suffix(""), built):
            with contextlib.suppress(FileExistsError):
                (ours / file.name).symlink_to(file)
