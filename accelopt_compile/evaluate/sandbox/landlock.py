"""Landlock, by its three system calls: which files a process and its children may read, write or execute from now on.

No library of the index speaks more than its file rights (see DECISIONS 16); the calls are the same on every architecture.
Source: the kernel's Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_GET_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FIRST_RIGHTS = (1 << 13) - 1
_SINCE = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
"""Rights added later, by version of the interface: linking between folders, truncation, device ioctls."""

READ = READ_FILE | READ_DIR
_FOR_FILES = EXECUTE | WRITE_FILE | READ_FILE | _SINCE[3] | _SINCE[5]


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("tcp", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def version() -> int:
    """The version of the interface, 0 where the system has none."""
    try:
        return _call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_GET_VERSION))
    except (OSError, AttributeError):
        return 0


def restrict(*, readable: Iterable[str], writable: Iterable[str], executable: Iterable[str] = ()) -> None:
    """From now on this process and what it starts may only read below `readable`, also execute below `executable`, do
    anything but execute below `writable`; paths that do not exist are left out. It may use no TCP, reach no abstract
    socket, and signal or trace no process outside. Raises OSError where the system has no Landlock."""
    present = version()
    if present < 1:
        raise OSError("this kernel has no Landlock (5.13 or newer, with landlock among its security modules)")
    everything = _FIRST_RIGHTS | sum(right for since, right in _SINCE.items() if present >= since)
    size = 8 if present < 4 else 16 if present < 6 else 24
    ruleset = _Ruleset(files=everything, tcp=3, scoped=3)
    handle = _call(_CREATE, ctypes.byref(ruleset), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for paths, rights in (
            (readable, READ),
            (executable, READ | EXECUTE),
            (writable, everything & ~EXECUTE),
        ):
            for path in paths:
                _allow(handle, path, rights & everything)
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        _call(_RESTRICT, ctypes.c_int(handle), ctypes.c_uint32(0))
    finally:
        os.close(handle)


def _allow(handle: int, path: str, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rule = _Beneath(allowed=rights if os.path.isdir(path) else rights & _FOR_FILES, folder=opened)
        _call(_ADD, ctypes.c_int(handle), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0))
    finally:
        os.close(opened)
