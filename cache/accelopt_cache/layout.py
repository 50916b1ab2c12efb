"""Where everything lies on disk, and whether a root may be used at all.

Paths are relative POSIX strings under the root; only `files` turns them into real ones. A name that came from outside
(a digest, a target, a key) is admitted by `safe` alone, so that no name can leave its directory.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import platformdirs

from accelopt_cache import durable
from accelopt_compile.errors import DamagedEntry, InvalidRecord

FORMAT = 1
"""Major version of everything below `v1/`. Minor changes only add fields, which older readers ignore."""

TAG = b"Signature: 8a477f597d28d172789f06886806bc55\n# Kernels found by AccelOpt Compile; backup tools may skip this directory.\n"

RECORDS, BLOBS, WORKLOADS = "v1/records", "v1/blobs/sha256", "v1/workloads"
GRAPHS, MEMORY, PROGRESS = "v1/graphs", "v1/memory", "v1/runs/progress"
RUNS, QUARANTINE, TOMBSTONES = "v1/runs", "v1/quarantine", "v1/tombstones"
LOCKS, TMP, BUILDS = "v1/locks", "v1/tmp", "v1/builds"
WITHDRAWN = "v1/withdrawn"
BASELINES = "v1/baselines"
"""What Inductor compiled to compare with, a folder for each level of instructions; rebuildable."""

ENDINGS = {"baseline": ".baseline.json", "candidate": ".candidate.json", "winner": ".json"}
"""How the file of a record ends: the outcome is in the name, so that a listing alone tells the winners. Longer endings first."""

TEMPORARY = ".tmp-"
"""Prefix of every file that is still being written; `prune` sweeps those left by a killed writer."""

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+\-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8}-[0-9a-f]{4}")

log = logging.getLogger(__name__)


def safe(name: str) -> str:
    """`name` if it may be one component of a path here. Raises InvalidRecord."""
    if not isinstance(name, str) or not _SAFE.fullmatch(name):
        raise InvalidRecord(f"{name!r} cannot be part of a path in the store")
    return name


def is_sha256(name: str) -> bool:
    """Whether `name` is a lower-case hexadecimal sha256."""
    return _SHA256.fullmatch(name) is not None


def blob(sha: str) -> str:
    """A kernel source, by the sha256 of its UTF-8 text."""
    return f"{BLOBS}/{safe(sha)[:2]}/{sha}"


def workload(digest: str) -> str:
    """A workload's canonical text, by its digest."""
    return f"{WORKLOADS}/{safe(digest)[:2]}/{digest}.json"


def record_dir(workload_digest: str, target: str) -> str:
    """The directory of all records of one (workload, target)."""
    return f"{RECORDS}/{safe(workload_digest)[:2]}/{workload_digest}/{safe(target)}"


def record(workload_digest: str, target: str, record_id: str, outcome: str) -> str:
    """One record, by the sha256 of its bytes."""
    return f"{record_dir(workload_digest, target)}/{safe(record_id)}{ENDINGS[outcome]}"


def graph(digest: str) -> str:
    """What is known of one captured graph."""
    return f"{GRAPHS}/{safe(digest)}.json"


def experience(sha: str) -> str:
    """One experience, by the sha256 of its canonical JSON."""
    return f"{MEMORY}/{safe(sha)}.json"


def progress(workload_digest: str, target: str) -> str:
    """Where an interrupted search on (workload, target) stands."""
    return f"{PROGRESS}/{safe(workload_digest)}/{safe(target)}.json"


def events(workload_digest: str, target: str) -> str:
    """What happened in an interrupted search on (workload, target), one event a line."""
    return f"{PROGRESS}/{safe(workload_digest)}/{safe(target)}.jsonl"


def run_id(created: datetime, workload_digest: str, token: str) -> str:
    """The name of a run: when it began (UTC), on what, and four hexadecimal digits for runs of the same second."""
    return f"{created:%Y%m%d-%H%M%S}-{safe(workload_digest)[:8]}-{token[:4]}"


def is_run(name: str) -> bool:
    """Whether an entry of `v1/runs` is a run; `progress` and strangers are not."""
    return _RUN_ID.fullmatch(name) is not None


def run(run_id: str, file: str = "") -> str:
    """The directory of a run, or one of its files: run.json, events.jsonl, calls.jsonl, state.json, result.json."""
    return f"{RUNS}/{safe(run_id)}" + (f"/{safe(file)}" if file else "")


def tombstone(record_id: str) -> str:
    """The mark of a removed record."""
    return f"{TOMBSTONES}/{safe(record_id)}.json"


def withdrawn(sha: str) -> str:
    """The mark of a kernel source that is out of service: what was learned from it is not given out."""
    return f"{WITHDRAWN}/{safe(sha)}.json"


def lock(workload_digest: str, target: str) -> str:
    """The lock file of a search; never deleted while the store lives."""
    return f"{LOCKS}/{safe(workload_digest)}.{safe(target)}.lock"


def build_dir(target: str, key: str) -> str:
    """Built files of one artifact; rebuildable."""
    return f"{BUILDS}/{safe(target)}/{safe(key)}"


def split_record(name: str) -> tuple[str, str] | None:
    """(record id, outcome) of a record's file name, or None for any other file."""
    outcome = next((outcome for outcome, ending in ENDINGS.items() if name.endswith(ending)), None)
    stem = "" if outcome is None else name.removesuffix(ENDINGS[outcome])
    return (stem, outcome) if outcome is not None and is_sha256(stem) else None


# ---------------------------------------------------------------- the root


@dataclass(frozen=True, kw_only=True)
class Root:
    """A root after examination. `path` is None when nothing of it may be used; `why` says what is wrong with it, `foreign`
    who else can write it (empty: nobody)."""

    named: str
    path: Path | None
    writable: bool
    why: str = ""
    foreign: str = ""


def default_root(environ: Mapping[str, str] = os.environ) -> Path:
    """$ACCELOPT_CACHE_DIR, else the user's cache directory (XDG_CACHE_HOME is honoured). Never a temporary directory."""
    named = environ.get("ACCELOPT_CACHE_DIR", "").strip()
    if named:
        return Path(named)
    try:
        return Path(platformdirs.user_cache_dir("accelopt"))
    except RuntimeError:  # a user id without account and without HOME
        return Path("~/.cache/accelopt")


def examine(root: str | Path | None, *, readonly: bool, environ: Mapping[str, str] = os.environ) -> Root:
    """Find, create and check a root. Never raises: what cannot be used comes back with the reason."""
    named = Path(root) if root is not None else default_root(environ)
    if str(named).startswith("~"):
        with contextlib.suppress(RuntimeError):
            named = named.expanduser()
    if str(named).startswith("~"):
        return Root(named=str(named), path=None, writable=False, why="no home directory; set ACCELOPT_CACHE_DIR")
    try:
        if not readonly:
            named.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = Path(os.path.realpath(named, strict=True))
        why = _refusal(path, environ)
        if why:
            return Root(named=str(named), path=None, writable=False, why=why)
        return replace(_with_format(named, path, readonly), foreign=_foreign(path))
    except FileNotFoundError as failure:
        return Root(
            named=str(named), path=None, writable=False, why="" if readonly else f"cannot be created ({failure.strerror})"
        )
    except (OSError, ValueError) as failure:
        return Root(named=str(named), path=None, writable=False, why=f"cannot be used ({failure})")


def _refusal(path: Path, environ: Mapping[str, str]) -> str:
    """Why the directory is not trusted: whoever can write here runs code as us."""
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory"
    if environ.get("ACCELOPT_ALLOW_SHARED", "").strip().lower() in ("1", "true"):
        return ""
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to uid {status.st_uid}, not to us (uid {os.geteuid()}); ACCELOPT_ALLOW_SHARED=1 admits it"
    if status.st_mode & stat.S_IWOTH:
        return "is writable by everyone; ACCELOPT_ALLOW_SHARED=1 admits it"
    return ""


def _foreign(path: Path) -> str:
    """Who else can write here: what others may have put there is proven before it runs."""
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to uid {status.st_uid}"
    if status.st_mode & stat.S_IWOTH:
        return "can be written by everyone"
    return "can be written by its group" if status.st_mode & stat.S_IWGRP else ""


def _with_format(named: Path, path: Path, readonly: bool) -> Root:
    """Check FORMAT; write it and the tag where they lack."""
    if not os.access(path, os.R_OK | os.X_OK):
        return Root(named=str(named), path=None, writable=False, why="is not readable")
    found = _read_format(path)
    if found is not None and found > FORMAT:
        why = f"has format {found}, this version reads format {FORMAT}; it is left alone"
        return Root(named=str(named), path=None, writable=False, why=why)
    if readonly:
        return Root(named=str(named), path=path, writable=False)
    try:
        if found is None:
            durable.write_atomic(path / "FORMAT", json.dumps({"format": FORMAT, "created_by": "accelopt"}).encode() + b"\n")
        if not (path / "CACHEDIR.TAG").exists():
            durable.write_atomic(path / "CACHEDIR.TAG", TAG)
        if not os.access(path, os.W_OK):
            raise PermissionError("no permission to write")
    except OSError as failure:
        why = f"cannot be written ({failure.strerror or failure})"
        return Root(named=str(named), path=path, writable=False, why=why)
    return Root(named=str(named), path=path, writable=True)


def _read_format(path: Path) -> int | None:
    """The root's format, or None where FORMAT lacks or is damaged (it is then written anew)."""
    try:
        found = durable.parse_object(durable.read_file(path / "FORMAT", limit=4096))["format"]
    except FileNotFoundError:
        return None
    except (DamagedEntry, KeyError) as failure:
        log.warning("%s is damaged (%s); read as format %d", path / "FORMAT", failure, FORMAT)
        return None
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None
