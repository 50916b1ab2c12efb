"""JSON lines over a socket: the only thing the evaluation child and its host say to each other."""

from __future__ import annotations

import json
import socket
from typing import Any

MESSAGE_BYTES = 8 << 20
"""The longest line either side reads; a workload or a source is far shorter."""


class Channel:
    """One end, blocking. Used by the child and the fork server; the host reads with deadlines of its own."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._file = sock.makefile("rb")

    def send(self, message: dict[str, Any]) -> None:
        self._sock.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """The next message, or None when the other side is gone."""
        line = self._file.readline(MESSAGE_BYTES)
        if not line.endswith(b"\n"):
            return None
        message = json.loads(line)
        return message if isinstance(message, dict) else None
