"""Everything that lies below `v1`, as `prune` counts it: files, and directories that only go as a whole."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accelopt_cache import layout

KINDS = (
    layout.RECORDS,
    layout.BLOBS,
    layout.WORKLOADS,
    layout.GRAPHS,
    layout.MEMORY,
    layout.RUNS,
    layout.QUARANTINE,
    layout.TOMBSTONES,
    layout.WITHDRAWN,
    layout.LOCKS,
    layout.TMP,
    layout.BUILDS,
    layout.BASELINES,
)
"""The directories whose contents are counted."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file or a whole directory: its name below the root, allocated bytes, and seconds since its last use."""

    name: str
    size: int
    age_s: float


def within(entry: Entry, kind: str) -> bool:
    """Whether an entry lies below the directory of a kind."""
    return entry.name.startswith(kind + "/")


def scan(root: Path) -> Iterator[Entry]:
    """Every file, link, run and quarantined directory below v1. Links are not followed; a run goes as a whole."""
    now = time.time()
    for directory, subdirectories, files in os.walk(root / "v1"):
        place = os.path.relpath(directory, root)
        links = [d for d in subdirectories if os.path.islink(os.path.join(directory, d))]
        whole = subdirectories[:] if place == layout.QUARANTINE else links
        runs = [d for d in subdirectories if place == layout.RUNS and layout.is_run(d) and d not in links]
        subdirectories[:] = [d for d in subdirectories if d not in whole and d not in runs]
        for base in (*files, *whole):
            path = os.path.join(directory, base)
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                size = status.st_blocks * 512 if not stat.S_ISDIR(status.st_mode) else 4096
                yield Entry(name=os.path.relpath(path, root), size=size, age_s=max(now - status.st_mtime, 0.0))
        for base in runs:
            yield _run(root, f"{place}/{base}", now)


def _run(root: Path, name: str, now: float) -> Entry:
    """A run with all its files: as young as the youngest of them."""
    size, youngest = 4096, 0.0
    for file in [root / name, *(root / name).rglob("*")]:
        with contextlib.suppress(OSError):
            status = file.lstat()
            size, youngest = size + status.st_blocks * 512, max(youngest, status.st_mtime)
    return Entry(name=name, size=size, age_s=max(now - youngest, 0.0))
