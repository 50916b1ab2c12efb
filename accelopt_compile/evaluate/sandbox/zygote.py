"""The fork server: imports torch once, then forks a child per request in milliseconds.

It never runs a parallel region and never compiles, because a forked child of a process that used OpenMP hangs in its
own first parallel region. Started as `python -m accelopt_compile.evaluate.sandbox.zygote FD`; serves the host at FD:
{"fork": {...}} with two descriptors (the child's channel, its output pipe) -> {"pid": n};
{"reap": pid} -> {"status": n}, the raw wait status. It ends when the host closes FD or is gone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from typing import Any

from accelopt_compile.evaluate.sandbox.channel import Channel
from accelopt_compile.evaluate.sandbox.confine import confine


def enter_child(request: dict[str, Any], channel: socket.socket, output: int) -> None:
    """Become the evaluation child; never returns."""
    from accelopt_compile.evaluate.sandbox import child

    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:] = request["path"]
    os.chdir(request["scratch"])
    confine(request["limits"])
    child.serve(Channel(channel), request["limits"])
    os._exit(0)


def fork(request: dict[str, Any], descriptors: list[int], control: socket.socket) -> int:
    """Fork one child; its pid."""
    channel_fd, output = descriptors
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            control.close()
            enter_child(request, socket.socket(fileno=channel_fd), output)
            status = 0
        finally:
            os._exit(status)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def serve(control: socket.socket, host: int) -> None:
    """Serve fork and reap requests until the host is gone (end of file, or our parent changed)."""
    control.sendall(b'{"ready":true}\n')
    while os.getppid() == host:
        if not select.select([control], [], [], 2.0)[0]:
            continue
        data, descriptors, _, _ = socket.recv_fds(control, 1 << 20, 2)
        while data and not data.endswith(b"\n"):
            more = control.recv(1 << 20)
            data = data + more if more else b""
        if not data:
            return
        request = json.loads(data)
        if "fork" in request:
            reply = {"pid": fork(request["fork"], descriptors, control)}
        else:
            reply = {"status": os.waitpid(int(request["reap"]), 0)[1]}
        control.sendall(json.dumps(reply).encode() + b"\n")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the host decides when to stop
    host = os.getppid()
    control = socket.socket(fileno=int(sys.argv[1]))

    import torch
    import torch._inductor.codegen.cpp
    import torch._inductor.compile_fx
    import torch._inductor.cpu_vec_isa

    import accelopt_compile.evaluate.sandbox.child  # noqa: F401

    torch.set_num_threads(1)
    # Builds and runs small programs, 1.5 s; forked children inherit the answer instead of asking again, each of them.
    torch._inductor.cpu_vec_isa.pick_vec_isa()
    serve(control, host)


if __name__ == "__main__":
    main()
