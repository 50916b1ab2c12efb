"""Keeping the store small: sweep what a crash left, what nothing refers to, and, over a limit, what is worth least.

Order over a limit: quarantine, compiled baselines, builds, progress and runs, graphs, winners beaten by another at the same
binding, candidates, baseline records, experiences, then winners, each kind by last use. A grace period protects what is being
written now.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelopt_cache import layout
from accelopt_cache.claims import Claims
from accelopt_cache.record_store import RecordStore
from accelopt_cache.run_store import LOCK as RUN_LOCK
from accelopt_cache.scan import KINDS, Entry, scan, within

GRACE_S = 3600.0
"""Nothing younger is removed: another process may be about to refer to it."""

DAY_S = 86400.0
QUARANTINE_DAYS = 30.0
PROGRESS_DAYS = 30.0
RUN_DAYS = 180.0

RUNS_KEPT = 200
"""Runs, the newest, that are kept; a search of hours with a model leaves some ten megabytes."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What `collect` did, or with `dry_run` would do. Bytes are allocated disk space; `skipped` says why nothing was done."""

    removed: tuple[str, ...] = ()
    freed_bytes: int = 0
    files_before: int = 0
    bytes_before: int = 0
    files_after: int = 0
    bytes_after: int = 0
    dry_run: bool = False
    skipped: str = ""


def collect(
    store: RecordStore,
    *,
    max_bytes: int = 5 << 30,
    max_files: int = 50_000,
    older_than_days: float | None = None,
    dry_run: bool = False,
    grace_s: float = GRACE_S,
) -> Report:
    """Sweep the store, then shrink it below `max_bytes` and `max_files`, and drop what was not used for
    `older_than_days`. One process at a time; never raises for the state of the disk."""
    root = store.files.root.path
    if root is None or not store.files.writable:
        return Report(dry_run=dry_run, skipped=store.files.root.why or "read-only")
    with Claims(store.files).claim("prune", "all") as mine:
        if not mine:
            return Report(dry_run=dry_run, skipped="another process prunes")
        sweep = _Sweep(store, root, grace_s)
        sweep.leftovers()
        if older_than_days is not None:
            sweep.unused(older_than_days * DAY_S)
        sweep.shrink(max_bytes, max_files)
        if not dry_run:
            sweep.delete()
        return sweep.report(dry_run)


class _Sweep:
    """One pass: entries are marked in order of worth, then deleted."""

    def __init__(self, store: RecordStore, root: Path, grace_s: float) -> None:
        self.root, self.grace_s = root, grace_s
        # Lock files are never deleted (a waiter may hold one open), so they do not count either.
        self.entries = {entry.name: entry for entry in scan(root) if not within(entry, layout.LOCKS)}
        self.busy = {name for name in self._runs() if not Claims(store.files).free(f"{name}/{RUN_LOCK}")}
        self.bytes = sum(entry.size for entry in self.entries.values())
        self.dropped: dict[str, Entry] = {}
        self.refers: dict[str, tuple[str, ...]] = {}
        self.referrers: Counter[str] = Counter()
        self.beaten: list[str] = []
        self.unread = False  # a record that cannot be read refers to a source that nobody knows
        self._read_records(store)

    def _read_records(self, store: RecordStore) -> None:
        fastest: dict[tuple[object, ...], tuple[float, str]] = {}
        for workload, target, record_id, outcome in store.walk():
            name = layout.record(workload, target, record_id, outcome)
            record = store.peek(workload, target, record_id, outcome)
            referred = [layout.workload(workload)]
            self.unread = self.unread or record is None
            if record is not None and record.source is not None:
                referred.append(layout.blob(record.source.digest))
            if record is not None and record.outcome == "winner" and record.timing is not None:  # no estimate beats a measurement
                place = (workload, target, tuple(sorted(record.binding.items())), tuple(sorted(record.environment.items())))
                mine = (record.timing.kernel_us, name)
                best = fastest.get(place)
                fastest[place] = mine if best is None else min(best, mine)
                if best is not None:
                    self.beaten.append(max(best, mine)[1])
            self.refers[name] = tuple(referred)
            self.referrers.update(referred)

    def leftovers(self) -> None:
        """What a killed writer left, old quarantine, progress and runs, and what no record refers to."""
        for place, name in enumerate(self._runs()):
            if place >= RUNS_KEPT or self.entries[name].age_s > RUN_DAYS * DAY_S:
                self._drop(name)
        days = {layout.QUARANTINE: QUARANTINE_DAYS, layout.PROGRESS: PROGRESS_DAYS}
        for entry in list(self.entries.values()):
            unfinished = entry.name.rsplit("/", 1)[-1].startswith(".") or within(entry, layout.TMP)
            if unfinished or any(within(entry, kind) and entry.age_s > limit * DAY_S for kind, limit in days.items()):
                self._drop(entry.name)
        self._unreferenced()

    def unused(self, age_s: float) -> None:
        """Everything that was not used for `age_s` seconds; what it referred to goes with it."""
        lasting = (layout.LOCKS, layout.TOMBSTONES, layout.WITHDRAWN, layout.BLOBS, layout.WORKLOADS)
        kinds = [kind for kind in KINDS if kind not in lasting]
        for entry in list(self.entries.values()):
            if entry.age_s > age_s and any(within(entry, kind) for kind in kinds):
                self._drop(entry.name)
        self._unreferenced()

    def shrink(self, max_bytes: int, max_files: int) -> None:
        """Drop by worth until the limits hold."""
        for names in self._by_worth():
            for name in names:
                if self.bytes <= max_bytes and len(self.entries) <= max_files:
                    return
                if self._drop(name):
                    self._orphans_of(name)

    def _by_worth(self) -> Iterator[list[str]]:
        def kind(prefix: str, also: Callable[[str], bool] = lambda _: True) -> list[str]:
            found = [e for e in self.entries.values() if within(e, prefix) and also(e.name)]
            return [e.name for e in sorted(found, key=lambda e: (-e.age_s, e.name))]

        yield kind(layout.QUARANTINE)
        yield kind(layout.BASELINES)
        yield kind(layout.BUILDS)
        yield kind(layout.RUNS)
        yield kind(layout.GRAPHS)
        yield [name for name in self.beaten if name in self.entries]
        for outcome in ("candidate", "baseline"):
            yield kind(layout.RECORDS, lambda name, ending=layout.ENDINGS[outcome]: name.endswith(ending))  # type: ignore[misc]
        yield kind(layout.MEMORY)
        yield kind(layout.RECORDS)

    def _runs(self) -> list[str]:
        """Directories of runs, the newest first."""
        found = (name for name in self.entries if name.startswith(layout.RUNS) and layout.is_run(name.rsplit("/", 1)[-1]))
        return sorted(found, reverse=True)

    def _drop(self, name: str) -> bool:
        entry = self.entries.get(name)
        if entry is None or entry.age_s < self.grace_s or name in self.busy or (self.unread and within(entry, layout.BLOBS)):
            return False
        del self.entries[name]
        self.bytes -= entry.size
        self.dropped[name] = entry
        return True

    def _unreferenced(self) -> None:
        kept = {target for name, targets in self.refers.items() if name in self.entries for target in targets}
        for entry in list(self.entries.values()):
            if (within(entry, layout.BLOBS) or within(entry, layout.WORKLOADS)) and entry.name not in kept:
                self._drop(entry.name)

    def _orphans_of(self, name: str) -> None:
        for target in self.refers.pop(name, ()):
            self.referrers[target] -= 1
            if self.referrers[target] == 0:
                self._drop(target)

    def delete(self) -> None:
        """Delete what was dropped, records before what they refer to, then directories long empty."""
        for name in sorted(self.dropped, key=lambda n: not n.startswith(layout.RECORDS)):
            path = self.root / name
            with contextlib.suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                elif time.time() - path.lstat().st_mtime >= self.grace_s:  # else somebody refers to it since it was listed
                    path.unlink()
        for directory in (layout.RECORDS, layout.BASELINES, layout.BUILDS, layout.PROGRESS, layout.WORKLOADS, layout.BLOBS):
            _remove_empty(self.root / directory, self.grace_s)

    def report(self, dry_run: bool) -> Report:
        """The account of the pass."""
        freed = sum(entry.size for entry in self.dropped.values())
        return Report(
            removed=tuple(sorted(self.dropped)),
            freed_bytes=freed,
            files_before=len(self.entries) + len(self.dropped),
            bytes_before=self.bytes + freed,
            files_after=len(self.entries),
            bytes_after=self.bytes,
            dry_run=dry_run,
        )


def _remove_empty(directory: Path, grace_s: float) -> None:
    """Remove directories that have been empty for longer than the grace period; a writer makes them anew."""
    for path, _, _ in os.walk(directory, topdown=False):
        with contextlib.suppress(OSError):
            if path != str(directory) and not os.listdir(path) and time.time() - os.stat(path).st_mtime > grace_s:
                os.rmdir(path)


def stats(store: RecordStore) -> dict[str, Any]:
    """Files and bytes by kind, winners and candidates by target, baselines, and what is wrong with the root. Plain JSON."""
    root = store.files.root
    kinds = {kind.removeprefix("v1/"): {"files": 0, "bytes": 0} for kind in KINDS}
    total_files = total_bytes = 0
    for entry in scan(root.path) if root.path is not None else ():
        total_files, total_bytes = total_files + 1, total_bytes + entry.size
        kind = next((kind for kind in KINDS if within(entry, kind)), None)
        if kind is not None:
            kinds[kind.removeprefix("v1/")]["files"] += 1
            kinds[kind.removeprefix("v1/")]["bytes"] += entry.size
    winners: Counter[str] = Counter()
    candidates: Counter[str] = Counter()
    baselines = 0
    for _, target, _, outcome in store.walk():
        winners[target] += outcome == "winner"
        candidates[target] += outcome == "candidate"
        baselines += outcome == "baseline"
    return {
        "root": root.named,
        "format": layout.FORMAT,
        "writable": root.path is not None and os.access(root.path, os.W_OK),  # also where it was opened to be looked at
        "why": root.why or ("" if root.path is not None else "is not there"),
        "files": total_files,
        "bytes": total_bytes,
        "kinds": kinds,
        "winners": dict(winners),
        "candidates": {target: count for target, count in candidates.items() if count},
        "baselines": baselines,
        "in_memory": store.files.held(),
    }
