"""The evaluation child: builds, runs, verifies and times kernels for its host, one request at a time.

`python -m accelopt_compile.evaluate.sandbox.child FD LIMITS` where there is no fork server. It may die at any time: a
candidate's crash is its crash. Requests and answers are JSON lines over FD; standard output is only captured.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
from typing import Any

from accelopt_compile.errors import InvalidRecord, ObjectRefused, ToolchainFailed, ToolchainMissing
from accelopt_compile.evaluate.sandbox.channel import Channel
from accelopt_compile.evaluate.sandbox.confine import confine
from accelopt_compile.records import Artifact, Workload, source_from_json


class Server:
    """State of the child: the backend, and once opened, the session that holds golden answers and baselines."""

    def __init__(self, channel: Channel, limits: dict[str, Any]) -> None:
        self._channel = channel
        self._limits = limits
        self._session: Any = None
        self._backends: dict[str, Any] = {}

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        match message["op"]:
            case "build":
                return self.build(message)
            case "open":
                self.open(message)
                return {}
            case "baseline":
                return dict(self._session.baselines.prepare())
            case "verify":
                return dict(self._session.verify(self.kernel(message), message["effort"], message["seeds"]))
            case "time":
                return dict(self._session.time(self.kernel(message), message["effort"], inductor=message["inductor"]))
            case "baselines":
                return {"baselines_us": self._session.baseline_medians(inductor=message["inductor"])}
        return {"error": f"unknown request {message['op']!r}"}

    def open(self, message: dict[str, Any]) -> None:
        from accelopt_compile.evaluate.session import Session

        self._session = Session(
            Workload.from_json(message["workload"]),
            message["binding"],
            threads=message["threads"],
            seed=message["seed"],
            call_s=self._limits["call_s"],
            progress=self._channel.send,
        )

    def backend(self, name: str) -> Any:
        """The backend named "module:Class"."""
        if name not in self._backends:
            module, _, attribute = name.partition(":")
            self._backends[name] = getattr(importlib.import_module(module), attribute)()
        return self._backends[name]

    def build(self, message: dict[str, Any]) -> dict[str, Any]:
        source = source_from_json(message["source"])
        try:
            artifact = self.backend(message["backend"]).build(source, message["tunables"], message["workdir"])
        except ObjectRefused as failure:
            return {"refused": str(failure), "diagnosis": failure.diagnosis}
        except ToolchainFailed as failure:
            return {"failed": str(failure), "diagnosis": failure.diagnosis}
        except ToolchainMissing as failure:
            return {"missing": str(failure)}
        return {
            "artifact": {
                "path": artifact.path,
                "source_digest": artifact.source_digest,
                "tunables": dict(artifact.tunables),
                "features": dict(artifact.features),
                "build_s": artifact.build_s,
            }
        }

    def kernel(self, message: dict[str, Any]) -> Any:
        artifact = Artifact(**message["artifact"])
        self._channel.send({"allow_s": self._limits["call_s"], "note": "loading the kernel"})
        kernel = self.backend(message["backend"]).load(artifact)
        self._channel.send({"allow_s": None})
        return kernel


def serve(channel: Channel, limits: dict[str, Any]) -> None:
    """Answer requests until the host is gone. An exception is answered as {"error": text}; the host decides what it is."""
    server = Server(channel, limits)
    while (message := channel.receive()) is not None:
        try:
            answer = server.answer(message)
        except InvalidRecord as failure:
            answer = {"error": str(failure)}
        except Exception as failure:  # the candidate's Python, or torch on the candidate's data: anything may be raised
            answer = {"error": f"{type(failure).__name__}: {failure}"[:2000]}
        channel.send(answer | {"id": message.get("id")})


def main() -> None:
    limits = json.loads(sys.argv[2])
    confine(limits)
    serve(Channel(socket.socket(fileno=int(sys.argv[1]))), limits)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
