"""The nursery: a trusted process that compiles a workload's baseline and then forks runners that have it in memory.

A runner forked here is ready to time in 20 ms instead of loading Inductor's code again for each candidate. Like the fork
server it never runs a parallel region: a child forked after one hangs in its own first.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import torch

from accelopt_compile.evaluate.baseline import Baselines
from accelopt_compile.evaluate.devices import device_named
from accelopt_compile.evaluate.sandbox import forks
from accelopt_compile.records import Workload


class Nursery:
    """Answers {"op": "baseline", "workload", "binding", "threads"} with {"inductor": whether there is one, "why"}; the
    children that are forked next inherit what it compiled last. With a "driver" it fills Inductor's cache for that device."""

    def __init__(self) -> None:
        self.baselines: Baselines | None = None

    def __call__(self, message: dict[str, Any]) -> dict[str, Any]:
        torch.set_num_threads(message["threads"])  # Inductor writes the number into its code
        try:
            device = device_named(message.get("driver", ""))
            if device is not None:
                device.open()  # from here on this process forks nobody
            self.baselines = Baselines(Workload.from_json(message["workload"]), message["binding"], device)
            return self.baselines.prepare()
        except Exception as failure:  # torch on an arbitrary workload: the host then has no baseline but eager
            return {"inductor": False, "why": f"{type(failure).__name__}: {failure}"[:500]}


def serve(control: socket.socket) -> None:
    parent = os.getppid()
    forks.serve(control, lambda: os.getppid() == parent, Nursery())
