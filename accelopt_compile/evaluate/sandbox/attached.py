"""A runner for a device: opens it, and takes the baseline from Inductor's cache, before the walls rise.

A process that has used a device cannot fork another one that uses it, so no nursery forks these runners: each is forked by
the fork server, which never touches a device. Whatever runs before the last walls is ours and Inductor's; a candidate is loaded
behind them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

from accelopt_backends.base import Attached
from accelopt_compile.evaluate.baseline import Baselines
from accelopt_compile.evaluate.devices import Device, device_named
from accelopt_compile.evaluate.sandbox.channel import Channel
from accelopt_compile.evaluate.sandbox.walls import raise_walls
from accelopt_compile.records import Workload


def serve_runner(channel: Channel, request: Mapping[str, Any], arena: int) -> None:
    """Become the runner of `request` and answer until the host is gone."""
    from accelopt_compile.evaluate.sandbox.child import serve
    from accelopt_compile.evaluate.sandbox.runner import Runner

    attached = Attached(**request["attached"])
    device = device_named(attached.driver)
    assert device is not None
    baselines: list[Baselines] = []

    def open_device() -> None:
        try:
            device.open()
            if request["baseline"] is not None:
                baselines.append(compiled(request["baseline"], device))
        except Exception as failure:  # this process ends then, and the host shows what it printed
            print(f"the device cannot be used: {type(failure).__name__}: {failure}", file=sys.stderr, flush=True)
            raise

    walls = raise_walls(
        "runner",
        request["limits"],
        readable=request["readable"],
        writable=request["writable"],
        attached=attached,
        before_files=open_device,
    )
    torch.set_grad_enabled(False)  # in all of this process
    serve(channel, Runner(arena, baselines[0] if baselines else None, walls, device=device).answer)


def compiled(about: Mapping[str, Any], device: Device | None) -> Baselines:
    """The baselines of {"workload", "binding", "threads"}, compiled here or read from Inductor's cache. Raises RuntimeError where
    the second time is unlike the first: eager must not be timed by Inductor's name."""
    torch.set_num_threads(about["threads"])  # Inductor writes the number into its code
    found = Baselines(Workload.from_json(about["workload"]), about["binding"], device)
    prepared = found.prepare()
    if not prepared["inductor"]:
        raise RuntimeError(f"Inductor's baseline is not there any more: {prepared['why']}")
    return found
