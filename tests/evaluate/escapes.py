"""Kernels that try to get out, and what becomes of each. Run as `python escapes.py FOLDER` with this folder on
PYTHONPATH, under any user: prints one JSON object {attack: [stage or "verified", reason]}, what was left behind, and
which walls stood.

A kernel gives the right answer and returns 0 when what it tries is refused, and returns 66 when it succeeds. The backend
here screens nothing: these are the walls alone.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from native_backend import NativeBackend, sample

from accelopt_compile.evaluate import Evaluator, Limits, open_evaluator
from accelopt_compile.evaluate.sandbox import forkserver
from accelopt_compile.evaluate.sandbox.surroundings import baselines_folder
from accelopt_compile.records import Rejected
from tests.evaluate.workloads import softmax_workload

INCLUDES = "".join(
    f"#include <{name}>\n"
    for name in (
        "arpa/inet.h", "cerrno", "csignal", "cstdio", "cstdlib", "fcntl.h", "sys/mman.h", "sys/ptrace.h", "sys/socket.h",
        "sys/syscall.h", "sys/uio.h", "sys/wait.h", "sys/prctl.h", "sys/resource.h", "thread", "unistd.h", "dirent.h", "string",
    )
)  # fmt: skip


def attacks(folder: Path, parent: int) -> dict[str, str]:
    """Bodies that run before an honest softmax. `folder` holds a file "secret"; `parent` is the user's process."""
    secret, mark = folder / "secret", folder / "mark"
    raw = (
        'long r; __asm__ volatile("syscall" : "=a"(r) : "a"({number}L), "D"({a}L), "S"({b}L), "d"({c}L)'
        ' : "rcx", "r11", "memory");'
    )
    return {
        "a socket": "if (socket(AF_INET, SOCK_STREAM, 0) >= 0) return 66;",
        "a datagram socket": "if (socket(AF_INET, SOCK_DGRAM, 0) >= 0) return 66;",
        "a local socket": "if (socket(AF_UNIX, SOCK_STREAM, 0) >= 0) return 66;",
        "a socket by instruction": raw.format(number=41, a=2, b=1, c=0) + " if (r >= 0) return 66;",
        "reads a secret": f'if (open("{secret}", O_RDONLY) >= 0) return 66;',
        "reads a secret by instruction": f'const char* name = "{secret}"; '
        + raw.format(number=2, a="(long)name + 0", b=0, c=0)
        + " if (r >= 0) return 66;",
        "reads the password file": 'if (open("/etc/passwd", O_RDONLY) >= 0) return 66;',
        "lists the home folder": 'if (opendir("/root") || opendir("/home")) return 66;',
        "writes a file": f'if (open("{mark}", O_WRONLY | O_CREAT, 0600) >= 0) return 66;',
        "writes to its own library": 'if (open("/proc/self/exe", O_WRONLY) >= 0) return 66;',
        "removes a file": f'if (unlink("{secret}") == 0) return 66;',
        "renames a file": f'if (rename("{secret}", "{mark}") == 0) return 66;',
        "makes a folder": f'if (syscall(SYS_mkdir, "{mark}", 0700) == 0) return 66;',
        "a secret of the environment": 'if (getenv("ACCELOPT_TEST_SECRET")) return 66;',
        "the environment of the parent": f'if (open("/proc/{parent}/environ", O_RDONLY) >= 0) return 66;',
        "the environment of whoever forked it": 'char p[64]; snprintf(p, 64, "/proc/%d/environ", getppid());'
        " if (open(p, O_RDONLY) >= 0) return 66;",
        "the memory of the parent": f'if (open("/proc/{parent}/mem", O_RDONLY) >= 0) return 66;',
        "kills the parent": f"if (kill({parent}, SIGTERM) == 0) return 66;",
        "stops whoever forked it": "if (kill(getppid(), SIGSTOP) == 0) return 66;",
        "signals everything": "if (kill(-1, SIGTERM) == 0) return 66;",
        "traces the parent": f"if (ptrace(PTRACE_ATTACH, {parent}, 0, 0) == 0) return 66;",
        "reads the parent's memory by call": f"char b[8]; iovec l{{b, 8}}, m{{(void*)0x400000, 8}};"
        f" if (process_vm_readv({parent}, &l, 1, &m, 1, 0) > 0) return 66;",
        "forks": "pid_t p = fork(); if (p == 0) _exit(0); if (p > 0) return 66;",
        "a fork bomb": "for (int i = 0; i < 100000; ++i) if (fork() >= 0) return 66;",
        "starts a program": 'execl("/bin/sh", "sh", "-c", "true", (char*)nullptr);',
        "a shell": 'if (system("true") == 0) return 66;',
        "raises its own limits": "rlimit r{RLIM_INFINITY, RLIM_INFINITY}; if (setrlimit(RLIMIT_DATA, &r) == 0) return 66;",
        "becomes another user": "if (setuid(12345) == 0) return 66;",
        "makes a namespace": "if (syscall(SYS_unshare, 0x10000000) == 0) return 66;",
        "shrinks the shared memory": "for (int fd = 3; fd < 256; ++fd) if (ftruncate(fd, 0) == 0) return 66;",
        "hides memory in a file": 'if (syscall(SYS_memfd_create, "x", 0) >= 0) return 66;',
        "allocates 100 GB": "if (void* p = malloc(100l << 30)) { memset(p, 1, 100l << 30); return 66; }",
        "maps 100 GB": "void* p = mmap(0, 100l << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);"
        " if (p != MAP_FAILED) { memset(p, 1, 100l << 30); return 66; }",
        # these cost the candidate its process
        "an endless loop": "for (volatile int i = 0; i < 1; i = 0) {}",
        "sleeps for ever": "for (;;) pause();",
        "ignores signals and loops": "signal(SIGTERM, SIG_IGN); for (volatile int i = 0; i < 1; i = 0) {}",
        "a segmentation fault": "*(volatile int*)8 = 1;",
        "endless recursion": "struct R { static int f(volatile int* x) { volatile char b[4096]; b[0] = *x;"
        " return f(x) + b[0]; } }; volatile int v = 1; R::f(&v);",
        "aborts": "abort();",
        "forges a success and leaves": "for (int fd = 3; fd < 256; ++fd)"
        ' if (write(fd, "{\\"status\\": 0, \\"id\\": 2}\\n", 24)) {} _exit(0);',
        "forges many successes": "for (int k = 2; k < 200; ++k) { char b[64];"
        ' int n = snprintf(b, 64, "{\\"status\\":0,\\"id\\":%d}\\n", k);'
        " for (int fd = 3; fd < 256; ++fd) if (write(fd, b, n)) {} } return 0;",
        "closes every descriptor": "for (int fd = 0; fd < 256; ++fd) close(fd);",
        "gigabytes on standard output": "static char b[1 << 20];"
        " for (int i = 0; i < 4096; ++i) if (write(1, b, 1 << 20) < 0) break;",
        "gigabytes on every descriptor": "static char b[1 << 20]; for (int i = 0; i < 4096; ++i)"
        " for (int fd = 3; fd < 256; ++fd) if (write(fd, b, 1 << 20)) {}",
        "deep JSON on the channel": "static char b[1 << 20]; memset(b, '[', 1 << 20); b[(1 << 20) - 1] = 10;"
        " for (int fd = 3; fd < 256; ++fd) if (write(fd, b, 1 << 20)) {}",
        "many threads": "for (int i = 0; i < 100000; ++i) std::thread([] { pause(); }).detach();",
        "overwrites the arena": "memset((void*)((uintptr_t)y & ~4095ul), 0, 1 << 16);",
    }


BUILDS = {
    "a constructor that writes a file": lambda folder: (
        "__attribute__((constructor)) static void c()"
        f' {{ if (open("{folder / "mark"}", O_WRONLY | O_CREAT, 0600) >= 0) _exit(66); }}'
    ),
    "a constructor that ends the process": lambda folder: "__attribute__((constructor)) static void c() { _exit(0); }",
    "includes a secret": lambda folder: f'static const char* s =\n#include "{folder / "secret"}"\n;',
    "embeds a secret by the assembler": lambda folder: f'__asm__(".data\\n.incbin \\"{folder / "secret"}\\"\\n.text");',
    "an endless build": lambda folder: (
        "#define A(x) x x x x x x x x x x\n#define B(x) A(A(A(A(x))))\n#define C(x) B(B(B(x)))\nint endless[] = {C(1,)};"
    ),
    "a huge build": lambda folder: "struct Z { char b[1l << 33]; }; Z z = {1};",
}
"""Sources with something outside the entry point."""


def outcome(evaluator: Evaluator, source: Any) -> list[str]:
    found = evaluator.verify(source, {"WIDTH": 1}, seeds=[1, 2], effort="quick")
    return [found.stage.value, found.reason] if isinstance(found, Rejected) else ["verified", ""]


def main(folder: Path) -> dict[str, Any]:
    (folder / "secret").write_text('"the secret"')
    work = folder / "work"
    work.mkdir()
    os.environ["ACCELOPT_TEST_SECRET"] = "not for kernels"
    limits = Limits(call_s=2.0, build_s=8.0)
    results: dict[str, Any] = {}
    forkserver.shared(limits.start_s, baselines_folder())  # one for the process: it stays
    before = len(os.listdir("/proc/self/fd"))
    workload = softmax_workload()
    with open_evaluator(workload, {"s0": 16}, backend=NativeBackend(), threads=1, seed=1, workdir=str(work), limits=limits) as e:
        for name, body in attacks(folder, os.getpid()).items():
            source = sample(before=f"{{ {body} }}")
            results[name] = outcome(e, type(source)(language="cpp", text=INCLUDES + source.text, tunables=source.tunables))
        for name, text in BUILDS.items():
            source = sample()
            text = INCLUDES + text(folder) + "\n" + source.text
            results[name] = outcome(e, type(source)(language="cpp", text=text, tunables=source.tunables))
        honest = e.verify(sample(), {"WIDTH": 1}, seeds=[1, 2], effort="quick")
        results["honest"] = outcome(e, sample())
        children = e.pids()
    left = {
        "secret": (folder / "secret").exists() and (folder / "secret").read_text() == '"the secret"',
        "mark": (folder / "mark").exists(),
        "descriptors": len(os.listdir("/proc/self/fd")) - before,
        "processes": sum(Path(f"/proc/{pid}").exists() for pid in children),
    }
    walls = {} if isinstance(honest, Rejected) else honest.walls
    return {"user": os.getuid(), "results": results, "left": left, "walls": walls}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
