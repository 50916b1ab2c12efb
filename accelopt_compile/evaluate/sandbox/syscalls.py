"""Which system calls a candidate's process is refused, by libseccomp.

What it needs stays allowed (memory, threads, clocks, reading files, its channel); what reaches other processes, the
network, the kernel's wider interfaces or a file's content is refused with EPERM. A list of refusals, not of permissions:
Python, torch and OpenMP use other calls on every version and architecture, and the other walls stand beside this one.
"""

from __future__ import annotations

import errno
import functools
import os
from typing import Any


@functools.cache
def library() -> Any:
    """pyseccomp, or why it cannot be had, as text. Asked for before any wall stands, and once for all children of a fork
    server: it looks for libseccomp by running other programs."""
    try:
        import pyseccomp
    except (ImportError, RuntimeError, OSError) as failure:
        return str(failure)
    return pyseccomp


_OUTSIDE = (
    "socket", "socketpair", "connect", "bind", "listen", "accept", "accept4",
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp",
    "pidfd_open", "pidfd_getfd", "pidfd_send_signal", "perf_event_open", "bpf", "userfaultfd",
    "io_uring_setup", "io_uring_enter", "io_uring_register",
    "mount", "umount2", "move_mount", "open_tree", "fsopen", "fsmount", "pivot_root", "chroot", "unshare", "setns",
    "name_to_handle_at", "open_by_handle_at", "fanotify_init", "keyctl", "add_key", "request_key",
    "shmget", "shmat", "msgget", "semget", "mq_open",
    "setpriority", "ioprio_set", "sched_setscheduler", "sched_setparam", "sched_setattr",
    "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct",
    "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "capset", "personality",
    "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "syslog", "quotactl",
)  # fmt: skip
"""Refused to compilers and candidates."""

_RUNNER = (
    "execve", "execveat", "fork", "vfork", "kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
    "memfd_create", "memfd_secret", "ftruncate", "truncate", "fallocate",
    "creat", "openat2", "unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir",
    "link", "linkat", "symlink", "symlinkat", "mknod", "mknodat", "chmod", "fchmod", "fchmodat", "fchmodat2",
    "chown", "fchown", "lchown", "fchownat", "utime", "utimes", "utimensat", "futimesat", "setxattr", "lsetxattr",
    "fsetxattr", "removexattr", "lremovexattr", "fremovexattr", "setsid", "setpgid", "sendmsg", "sendmmsg", "recvmsg", "recvmmsg",
)  # fmt: skip
"""Refused to candidates only: new processes, signals, any change of a file system, passing descriptors."""

_CLONE_THREAD = 0x10000


def restrict(*, compiles: bool, opens: bool = False) -> None:
    """Refuse them to this process and its children, for good. Raises OSError where libseccomp or the kernel cannot. With
    `opens` files may be opened for writing, which a device's are: Landlock alone then says which."""
    seccomp = library()
    if isinstance(seccomp, str):
        raise OSError(f"libseccomp is not there ({seccomp}); Debian and Ubuntu: apt install libseccomp2")
    refused = seccomp.ERRNO(errno.EPERM)
    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    for name in _OUTSIDE if compiles else (*_OUTSIDE, *_RUNNER):
        _add(seccomp, rules, refused, name)
    if not compiles:
        _add(seccomp, rules, seccomp.ERRNO(errno.ENOSYS), "clone3")  # its flags lie in memory; glibc then uses clone
        _add(seccomp, rules, refused, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, _CLONE_THREAD, 0))
        for name, flags in () if opens else (("open", 1), ("openat", 2)):
            for mode in (os.O_WRONLY, os.O_RDWR):
                _add(seccomp, rules, refused, name, seccomp.Arg(flags, seccomp.MASKED_EQ, os.O_ACCMODE, mode))
        _add(seccomp, rules, refused, "prlimit64", seccomp.Arg(0, seccomp.NE, 0))
    rules.load()


def _add(seccomp: Any, rules: Any, action: Any, name: str, *arguments: Any) -> None:
    """One rule; a call that this libseccomp or this architecture does not have needs none."""
    try:
        if seccomp.resolve_syscall(seccomp.Arch.NATIVE, name) >= 0:
            rules.add_rule(action, name, *arguments)
    except (OSError, ValueError):
        return
