"""The walls around a process that runs or compiles what nobody trusts, raised by the process itself right after its fork.

Each wall that this system offers is raised; one that it does not is named with the reason, in the record of whatever was
judged without it. SECURITY.md says which wall answers which threat.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import site
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from accelopt_backends.base import Attached
from accelopt_compile.evaluate.sandbox import landlock, syscalls

Role = Literal["runner", "builder"]
Walls = dict[str, str]
"""Name of a wall -> "" where it stands, else why it does not."""

NAMES = ("limits", "privileges", "network", "files", "system calls")

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_NEW_USER, _NEW_IPC, _NEW_NET = 0x10000000, 0x08000000, 0x40000000
_DAC_READ_SEARCH = 2
"""The one capability that root keeps: files of other users below the readable folders stay readable, as they are for it."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_FACTS = (
    "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm", "/sys/devices/system", "/sys/fs/cgroup",
)  # fmt: skip
_LIBRARIES = (
    "/usr", "/lib", "/lib64", "/lib32", "/bin", "/opt/rocm", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
    "/etc/alternatives", "/nix/store", "/gnu/store",
)  # fmt: skip


def limit(limits: Mapping[str, Any], *, attached: bool = False) -> None:
    """Bound memory, processor time, file size and open files of this process, no core dumps; it dies with its parent.
    Data, not address space: torch and its libraries reserve far more than they touch. Raises OSError or ValueError.

    Not processor time where that is measured ("cpu_s" 0): with such a limit Linux counts a process's time in ticks of
    4 ms. The host's deadline bounds those. Where a device is `attached`, neither data nor open files: its driver maps the
    device's memory many times over, and opens a file for each event."""
    bounds = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, int(limits["file_bytes"]))]
    if not attached:
        bounds += [(resource.RLIMIT_DATA, int(limits["memory_bytes"])), (resource.RLIMIT_NOFILE, int(limits["open_files"]))]
    if limits["cpu_s"]:
        bounds.append((resource.RLIMIT_CPU, int(limits["cpu_s"])))
    for what, bound in bounds:
        hard = resource.getrlimit(what)[1]
        bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(what, (bound, bound))
    with contextlib.suppress(OSError, AttributeError):  # not Linux: the host's kill is then the only guard
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def raise_walls(
    role: Role,
    limits: Mapping[str, Any],
    *,
    readable: Sequence[str],
    writable: Sequence[str],
    attached: Attached | None = None,
    before_files: Callable[[], None] = lambda: None,
) -> Walls:
    """Give up, for good, what a candidate ("runner") or a compiler ("builder") does not need. A runner writes nowhere and
    starts nothing; a builder writes below `writable` and executes what is installed. Both read what is installed, and
    `readable`. Called in a process with one thread. An `attached` device keeps its files open, and `compiles` makes a
    runner a builder as far as programs go; its driver's threads start in `before_files`, which runs when the walls that want one
    thread stand, and whose own failure is raised."""
    syscalls.library()
    compiles = role == "builder" or (attached is not None and attached.compiles)
    opens, reads = ((), ()) if attached is None else (attached.opens, attached.reads)
    installed = [*_LIBRARIES, *python_folders()]

    def files() -> None:
        landlock.restrict(
            readable=[*_FACTS, *_DEVICES, *readable, *reads, *([] if compiles else installed)],
            writable=["/dev/null", *opens, *(writable if compiles else ())],
            executable=installed if compiles else (),
        )

    raised: Sequence[tuple[str, Callable[[], None]]] = (
        ("limits", lambda: limit(limits, attached=attached is not None)),
        ("network", _leave_network),
        ("privileges", _drop_privileges),
        ("files", files),
        ("system calls", lambda: syscalls.restrict(compiles=compiles, opens=bool(opens))),
    )
    walls: Walls = {}
    for name, build in raised:
        if name == "files":
            before_files()
        try:
            build()
            walls[name] = ""
        except (OSError, ValueError, AttributeError) as missing:
            walls[name] = str(missing) or type(missing).__name__
    return walls


def described(walls: Mapping[str, str]) -> str:
    """ "limits, privileges, ... (no network: why)": what a record keeps."""
    standing = ", ".join(name for name in NAMES if walls.get(name) == "")
    missing = "; ".join(f"no wall around {name}: {walls.get(name, 'not tried')}" for name in NAMES if walls.get(name) != "")
    return f"{standing or 'none'} ({missing})" if missing else standing


def probe(timeout_s: float = 60.0) -> Walls:
    """Which walls stand around a runner on this system, tried in a process of its own."""
    command = [sys.executable, "-m", "accelopt_compile.evaluate.sandbox.walls"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environment)
        found = json.loads(done.stdout)
        return {name: str(found[name]) for name in NAMES}
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as failure:
        return dict.fromkeys(NAMES, f"it could not be tried: {type(failure).__name__}")


def python_folders() -> list[str]:
    """Where the interpreter, its packages and ours lie: no folder of the user's own program, whatever is on sys.path."""
    ours = [sys.modules.get("accelopt_compile"), sys.modules.get("accelopt_backends"), sys.modules.get("accelopt_cache")]
    folders = [str(Path(module.__file__).parent) for module in ours if module is not None and module.__file__]
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__:
        folders.append(str(Path(torch.__file__).parents[1]))
    return [*folders, sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages(), site.getusersitepackages()]


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _leave_network() -> None:
    """A network and inter-process namespace of its own, with nothing in it; through a user namespace where need be."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NET | _NEW_IPC) == 0:
        return
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEW_USER | _NEW_NET | _NEW_IPC) != 0:
        raise OSError(ctypes.get_errno(), "this system gives no namespace to ordinary users")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with contextlib.suppress(OSError):
            Path(f"/proc/self/{name}").write_text(text)


def _drop_privileges() -> None:
    """No capability but reading (for root), no new ones by executing something, and no look into this process."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    for capability in range(64):
        if capability != _DAC_READ_SEARCH:
            with contextlib.suppress(OSError):  # EPERM without CAP_SETPCAP, EINVAL past the last one
                _prctl(_PR_CAPBSET_DROP, capability)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capget(header, data) == 0:
        kept = data[1] & (1 << _DAC_READ_SEARCH)
        data[:] = [kept, kept, 0, 0, 0, 0]
        if libc.capset(header, data) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    _prctl(_PR_SET_DUMPABLE, 0)


if __name__ == "__main__":
    from dataclasses import asdict

    from accelopt_compile.evaluate.limits import Limits

    print(json.dumps(raise_walls("runner", asdict(Limits()), readable=(), writable=())))
