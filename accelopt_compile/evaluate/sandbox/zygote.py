"""The fork server: imports torch once, then forks a child per request in milliseconds.

It never runs a parallel region and never compiles, because a forked child of a process that used OpenMP hangs in its
own first parallel region; and it never learns a seed, a right answer or a key, because its children inherit its memory.
Started as `python -m accelopt_compile.evaluate.sandbox.zygote FD`; serves the host at FD (`forks.serve`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any


def unknown(request: dict[str, Any]) -> dict[str, Any]:
    return {"error": f"unknown request {sorted(request)}"}


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the host decides when to stop
    host = os.getppid()
    control = socket.socket(fileno=int(sys.argv[1]))

    import torch
    import torch._inductor.codegen.cpp
    import torch._inductor.compile_fx
    import torch._inductor.config
    import torch._inductor.cpu_vec_isa

    import accelopt_compile.evaluate.referee
    import accelopt_compile.evaluate.sandbox.nursery
    import accelopt_compile.evaluate.sandbox.runner  # noqa: F401
    from accelopt_compile.evaluate.sandbox import forks, syscalls

    # If memory runs out, a search goes before the program that it is for. All children inherit that.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    syscalls.library()
    torch.set_num_threads(1)
    # Inductor builds and loads a program for each set of instructions that the processor has, 2 to 12 s in a new store; forked
    # children inherit the answer. Where the compiler does not know the instructions after all, `Baselines` has it ask.
    if torch._inductor.config.cpp.vec_isa_ok is None:
        torch._inductor.config.cpp.vec_isa_ok = True
    torch._inductor.cpu_vec_isa.pick_vec_isa()
    control.sendall(b'{"ready":true}\n')
    forks.serve(control, lambda: os.getppid() == host, unknown)


if __name__ == "__main__":
    main()
