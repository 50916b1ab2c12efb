"""The only ways bytes reach the disk and come back: atomic writes, capped and suspicious reads.

A reader sees a whole file or none, also when a writer is killed; nothing that is read is trusted.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

from accelopt_compile.errors import DamagedEntry, InvalidRecord

READ_LIMIT = 8 << 20
"""Bytes of the largest file that is read or written as JSON or source."""

DEPTH_LIMIT = 64
"""Nesting of the deepest JSON that is accepted; ours is below 12."""

_TEMPORARY = ".tmp-"


def sha256(data: bytes) -> str:
    """Hex sha256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def make_dirs(path: Path, *, below: Path) -> None:
    """Create `path` with the permissions of `below`, an existing ancestor: a root shared with a group stays shared."""
    missing = []
    step = path
    while step != below and not step.is_dir():
        missing.append(step)
        step = step.parent
    mode = stat.S_IMODE(below.stat().st_mode) if missing else 0
    for step in reversed(missing):
        try:
            step.mkdir()
        except FileExistsError:
            if not step.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(step)) from None
            continue  # another writer was faster
        with contextlib.suppress(OSError):
            step.chmod(mode)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, durably: temporary file in the same directory, fsync, rename, fsync of the directory.

    The file's permissions follow its directory's. Raises OSError; the temporary file is then gone.
    """
    directory = path.parent
    handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), stat.S_IMODE(directory.stat().st_mode) & 0o666)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    # Some file systems refuse fsync on directories; the rename is then as durable as they make it.
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_file(path: Path, *, limit: int = READ_LIMIT) -> bytes:
    """The bytes of a regular file of at most `limit` bytes.

    Raises FileNotFoundError when it is not there, PermissionError and other OSError as they come, and DamagedEntry for
    a symbolic link, a directory, a device, a file too large, or one on a failing disk.
    """
    for _ in range(3):
        try:
            return _read_once(path, limit)
        except OSError as failure:
            if failure.errno == errno.ESTALE:  # a network file system replaced it under us
                continue
            if failure.errno == errno.ELOOP:
                raise DamagedEntry("it is a symbolic link") from failure
            if failure.errno in (errno.EIO, errno.ENXIO):
                raise DamagedEntry(f"it cannot be read ({failure.strerror})") from failure
            raise
    raise FileNotFoundError(errno.ENOENT, "stale file handle", str(path))


def _read_once(path: Path, limit: int) -> bytes:
    # O_NONBLOCK: a FIFO in place of a file must not hang the reader.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise DamagedEntry("it is not a regular file")
        if status.st_size > limit:
            raise DamagedEntry(f"it has {status.st_size} bytes, more than {limit}")
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(handle)
    if len(data) > limit:
        raise DamagedEntry(f"it grew beyond {limit} bytes")
    return data


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`. Raises DamagedEntry for anything else."""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as failure:
        raise DamagedEntry(f"it is not JSON ({failure})" if data else "it is empty") from failure
    if not isinstance(value, dict):
        raise DamagedEntry("it is not a JSON object")
    _check_depth(value)
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are different: of two equal ones, another reader might take the other."""
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it says {next(n for n in names if names.count(n) > 1)!r} twice")
    return made


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEPTH_LIMIT:
            raise DamagedEntry(f"it is nested more than {DEPTH_LIMIT} deep")
        inner = [v.values() if isinstance(v, dict) else v for v in level]
        level = [child for values in inner for child in values if isinstance(child, dict | list)]


def plain(value: Any) -> Any:
    """`value` as a reader will see it: keys are strings, tuples are lists. Raises InvalidRecord for what is not JSON."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as failure:
        raise InvalidRecord(f"not plain JSON: {failure}") from failure


def encode(value: Any, *, limit: int = READ_LIMIT, indent: int | None = 1) -> bytes:
    """JSON for the disk: sorted keys, indented for people, one final newline. Raises InvalidRecord for what is not JSON
    or longer than `limit` bytes."""
    try:
        data = json.dumps(value, sort_keys=True, indent=indent, ensure_ascii=True, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as failure:
        raise InvalidRecord(f"not plain JSON: {failure}") from failure
    if len(data) > limit:
        raise InvalidRecord(f"{len(data)} bytes of JSON, more than {limit}")
    return data


def seal(value: Any, **about: Any) -> bytes:
    """`value` in an envelope that carries its digest, for files not named by their content. Raises InvalidRecord."""
    value = plain(value)
    return encode({**about, "data": value, "sha256": sha256(encode(value))})


def unseal(data: bytes, **about: Any) -> Any:
    """Inverse of `seal`; `about` must be what it was sealed with. Raises DamagedEntry."""
    envelope = parse_object(data)
    for name, expected in about.items():
        if envelope.get(name) != expected:
            raise DamagedEntry(f"its {name} is {envelope.get(name)!r}, not {expected!r}")
    try:
        right = "data" in envelope and envelope.get("sha256") == sha256(encode(envelope["data"]))
    except InvalidRecord as failure:  # e.g. a number beyond a double
        raise DamagedEntry(str(failure)) from failure
    if not right:
        raise DamagedEntry("its digest is wrong")
    return envelope["data"]
