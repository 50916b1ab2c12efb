"""What a forked child becomes: a referee, a builder, a runner, a tracer, a nursery or scales. Requests and answers are JSON lines
over one socket; standard output is only captured. A builder or runner may die at any time: a candidate's crash is its crash."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from accelopt_backends.registry import backend_at
from accelopt_compile.errors import InvalidRecord, ObjectRefused, ToolchainFailed, ToolchainMissing
from accelopt_compile.evaluate.sandbox.channel import Channel
from accelopt_compile.evaluate.sandbox.walls import limit, raise_walls
from accelopt_compile.records import source_from_json

Reply = dict[str, Any]
Answer = Callable[[Mapping[str, Any]], Reply]


def enter(request: Mapping[str, Any], descriptors: list[int], baselines: Any = None) -> None:
    """Become the child of `request`; returns when the host is gone. `descriptors`: the channel, the output pipe and, for
    a referee or a runner, the arena. `baselines` is what a nursery compiled."""
    channel_fd, output, *arena = descriptors
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:] = request["path"]
    os.chdir(request["scratch"])
    channel = socket.socket(fileno=channel_fd)
    limits = request["limits"]
    match request["role"]:
        case "referee":
            # Its tensors are large and short-lived: without huge pages a third of its time went into page faults. Not for a
            # runner, which times what the user's process will do.
            os.environ["THP_MEM_ALLOC_ENABLE"] = "1"
            limit(limits)
            serve(Channel(channel), _referee(request, arena[0]))
        case "builder":
            writable = [request["scratch"], *request["writable"]]
            raise_walls("builder", limits, readable=request["readable"], writable=writable)
            serve(Channel(channel), build)
        case "runner" if request["attached"] is not None:
            from accelopt_compile.evaluate.sandbox import attached

            attached.serve_runner(Channel(channel), request, arena[0])
        case "runner":
            import torch

            from accelopt_compile.evaluate.sandbox.runner import Runner
            from accelopt_compile.launch.native import native_module

            launcher = native_module(Path(request["environment"]["TORCHINDUCTOR_CACHE_DIR"]) / "launcher")
            walls = raise_walls("runner", limits, readable=request["readable"], writable=())
            torch.set_grad_enabled(False)  # in all of this process
            serve(Channel(channel), Runner(arena[0], baselines, walls, launcher=launcher).answer)
        case "tracer":
            from accelopt_compile.evaluate.sandbox import tracer

            walls = raise_walls("runner", limits, readable=request["readable"], writable=())
            serve(Channel(channel), lambda message: {**tracer.answer(message), "walls": walls})
        case "scales":
            from accelopt_compile.evaluate.in_context import Scales

            limit(limits)
            serve(Channel(channel), Scales().answer)
        case "nursery":
            from accelopt_compile.evaluate.sandbox import nursery

            limit(limits, attached=request["attached"] is not None)
            nursery.serve(channel)


def serve(channel: Channel, answer: Answer) -> None:
    """Answer requests until the host is gone. An exception is answered as {"error": text}; the host decides what it is."""
    while (message := channel.receive()) is not None:
        try:
            reply = answer(message)
        except InvalidRecord as failure:
            reply = {"error": str(failure)}
        except Exception as failure:  # the candidate's Python, or torch on the candidate's data: anything may be raised
            reply = {"error": f"{type(failure).__name__}: {failure}"[:2000]}
        channel.send(reply | {"id": message.get("id")})


def _referee(request: Mapping[str, Any], arena: int) -> Answer:
    from accelopt_compile.evaluate import referee

    opened: list[referee.Referee] = []

    def answer(message: Mapping[str, Any]) -> Reply:
        if message["op"] == "open":
            opened[:] = [referee.referee(message, arena)]
            return {}
        return referee.answer(opened[0], message)

    return answer


def build(message: Mapping[str, Any]) -> Reply:
    """Build a source. {"artifact"}, {"refused" or "failed", "diagnosis"} or {"missing": why there is no compiler}."""
    if message["op"] != "build":
        return {"error": f"unknown request {message['op']!r}"}
    source = source_from_json(message["source"])
    backend = backend_at(message["backend"])
    try:
        artifact = backend.build(source, message["tunables"], message["workdir"])
    except ObjectRefused as failure:
        return {"refused": str(failure), "diagnosis": failure.diagnosis}
    except ToolchainFailed as failure:
        return {"failed": str(failure), "diagnosis": failure.diagnosis}
    except ToolchainMissing as failure:
        return {"missing": str(failure)}
    return {"artifact": asdict(artifact)}
