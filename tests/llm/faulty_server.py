"""An HTTP server on loopback that misbehaves as told. Real sockets, raw bytes: what no library would let a server send.

A behaviour is called with the connection once the request is read, and sends what it likes. The last one stays.
"""

from __future__ import annotations

import gzip
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Behaviour = Callable[[socket.socket, "Received"], None]


@dataclass(frozen=True, kw_only=True)
class Received:
    """A request as it came. `closing` is set when the server is closed, so that behaviours that hang can end."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    closing: threading.Event


class FaultyServer:
    """Serves each connection's requests in a thread of its own; a context manager."""

    def __init__(self, *behaviours: Behaviour) -> None:
        self.received: list[Received] = []
        self._behaviours, self._lock, self._closing = list(behaviours), threading.Lock(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> FaultyServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._listener.close()

    @property
    def bodies(self) -> list[Any]:
        return [received.body for received in self.received]

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            try:
                while (received := self._read(file)) is not None:
                    self._next(received)(connection, received)
            except (OSError, ValueError):
                return

    def _next(self, received: Received) -> Behaviour:
        with self._lock:
            self.received.append(received)
            return self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]

    def _read(self, file: Any) -> Received | None:
        first = file.readline().decode("latin-1").split()
        if len(first) < 2:
            return None
        headers = {}
        while (line := file.readline().decode("latin-1").strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = file.read(int(headers.get("content-length", "0")))
        return Received(
            method=first[0], path=first[1], headers=headers, body=json.loads(body) if body else None, closing=self._closing
        )


def raw(data: bytes) -> Behaviour:
    """These bytes, as they are."""
    return lambda connection, _: connection.sendall(data)


def answer(
    status: int = 200, body: Any = None, headers: tuple[tuple[str, str], ...] = (), kind: str = "application/json"
) -> Behaviour:
    """A well-formed answer with any status; `body` is bytes, or JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", f"content-length: {len(data)}", *(f"{n}: {v}" for n, v in headers)]
    return raw("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data)


def completion(content: Any = "hello", *, finish: Any = "stop", usage: Any = ..., **message: Any) -> dict[str, Any]:
    """The body of a chat completion; `usage=None` leaves it out."""
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15} if usage is ... else usage
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "served-model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}],
    }
    return body if counts is None else {**body, "usage": counts}


def ok(content: Any = "hello", **given: Any) -> Behaviour:
    return answer(200, completion(content, **given))


def hang(connection: socket.socket, received: Received) -> None:
    """Nothing, for ever."""
    received.closing.wait(60)


def trickle(head: bytes) -> Behaviour:
    """`head`, then a byte every 50 ms for ever."""

    def behave(connection: socket.socket, received: Received) -> None:
        connection.sendall(head)
        while not received.closing.wait(0.05):
            connection.sendall(b" ")

    return behave


def reset_after(data: bytes) -> Behaviour:
    """`data`, then a TCP reset."""

    def behave(connection: socket.socket, received: Received) -> None:
        connection.sendall(data)
        time.sleep(0.05)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise OSError("reset")

    return behave


def endless(connection: socket.socket, received: Received) -> None:
    """A body that never ends, as fast as it is read."""
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    while not received.closing.is_set():
        connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")


def bomb(size: int) -> bytes:
    """`size` zeros, packed."""
    return gzip.compress(bytes(size))
