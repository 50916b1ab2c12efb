"""HTTP through the openai SDK: one exchange, ended at its deadline and bounded in size. The only file that imports openai.

The SDK's own timeout is per read: a server that sends a byte now and then outlasts it for ever. So each exchange runs in a
thread of its own, is waited for until the deadline, and is then abandoned: its connection is closed under it, which ends
the thread at the next byte, or at the read's own timeout, which is the deadline too. A connection is used by one
exchange at a time, so that closing it harms no other.
Redirects are not followed: the prompts hold users' models. A body may have `most_bytes`, unpacked.
Works with openai 2.47 (httpx) and 3 (httpx2).
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from accelopt_compile.errors import LanguageModelMissing
from accelopt_compile.llm.address import is_loopback, is_openai
from accelopt_compile.llm.replies import Answer

MOST_BYTES = 16 * 1024 * 1024
CONNECT_S = 10.0

Send = Callable[[Any], Any]
"""Makes one call on an `openai.OpenAI` and returns the SDK's raw response."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An exchange without an answer: timeout, connection, malformed or bad_request."""

    problem: str
    detail: str


class Unreadable(Exception):
    """A body that is too large, or packed in a way that cannot be undone."""


def require_sdk() -> None:
    """Raises LanguageModelMissing when openai is not installed. Does not import it: that takes seconds."""
    if importlib.util.find_spec("openai") is None:
        raise LanguageModelMissing(
            "a language model needs the package openai, which is not installed; pip install 'accelopt-compile[openai]', "
            "or leave the model out to search with the built-in proposer"
        )


@dataclass(eq=False)
class _Line:
    """One SDK client with its own connection, and whether whoever used it has gone."""

    sdk: Any = None
    abandoned: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def opened(self, make: Callable[[], Any]) -> Any:
        if self.sdk is None:
            self.sdk = make()
        return self.sdk

    def abandon(self) -> None:
        with self.lock:
            self.abandoned = True
        if self.sdk is not None:
            self.sdk.close()


class Transport:
    """Exchanges with one address. Safe to use from several threads."""

    def __init__(self, base_url: str, api_key: str, *, most_bytes: int = MOST_BYTES) -> None:
        self._base_url, self._api_key, self._most_bytes = base_url, api_key, most_bytes
        self._idle: list[_Line] = []

    def exchange(self, send: Send, *, left_s: float) -> Answer | Fault:
        """The answer, or why there is none, within `left_s` seconds. Never raises."""
        line = self._take()
        done = threading.Event()
        outcome: list[Answer | Fault] = []

        def work() -> None:
            outcome.append(self._one(line, send, left_s))
            with line.lock:
                if not line.abandoned:
                    self._idle.append(line)
            done.set()

        threading.Thread(target=work, name="accelopt-llm", daemon=True).start()
        if done.wait(max(0.0, left_s)):
            return outcome[0]
        line.abandon()
        return Fault(problem="timeout", detail="no whole answer came before the deadline of the call")

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().abandon()

    def _take(self) -> _Line:
        try:
            return self._idle.pop()
        except IndexError:
            return _Line()

    def _one(self, line: _Line, send: Send, left_s: float) -> Answer | Fault:
        import openai

        try:
            httpx = _httpx(openai)
            sdk = line.opened(lambda: self._new_sdk(openai, httpx, line))
            if line.abandoned:
                return Fault(problem="timeout", detail="the call is over")
            timed = sdk.with_options(timeout=httpx.Timeout(left_s, connect=min(CONNECT_S, left_s)))
            return _answer(send(timed).http_response)
        except openai.APIStatusError as refusal:
            return _answer(refusal.response)
        except openai.APITimeoutError as failure:
            return Fault(problem="timeout", detail=f"no answer in time ({type(failure.__cause__).__name__})")
        # What an endpoint can make the SDK raise is not ours to enumerate, and nothing of it may end a search.
        except Exception as failure:
            return _fault(failure, isinstance(failure, openai.APIConnectionError))

    def _new_sdk(self, openai: Any, httpx: Any, line: _Line) -> Any:
        own: dict[str, Any] = {"Accept-Encoding": "identity"}
        if not is_openai(self._base_url):
            # The SDK takes these from the environment; they are nobody else's business.
            own |= {"OpenAI-Organization": openai.omit, "OpenAI-Project": openai.omit}
        hook = _bounding_hook(httpx, line, self._most_bytes)
        return openai.OpenAI(
            base_url=self._base_url,
            api_key=self._api_key,
            max_retries=0,
            default_headers=own,
            http_client=openai.DefaultHttpxClient(
                trust_env=not is_loopback(self._base_url), follow_redirects=False, event_hooks={"response": [hook]}
            ),
        )


def _httpx(openai: Any) -> Any:
    """The library that this SDK speaks HTTP with: both may be installed, and openai 2 knows of httpx2 too."""
    roots = (kind.__module__.partition(".")[0] for kind in openai.DefaultHttpxClient.__mro__)
    return importlib.import_module(next(root for root in roots if root.startswith("httpx")))


def _answer(response: Any) -> Answer:
    headers: Mapping[str, str] = {str(name).lower(): str(value) for name, value in response.headers.items()}
    return Answer(status=int(response.status_code), headers=headers, body=bytes(response.content))


def _fault(failure: BaseException, connecting: bool) -> Fault:
    causes: list[BaseException] = [failure]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and len(causes) < 8:
        causes.append(cause)
    unreadable = next((c for c in causes if isinstance(c, Unreadable) or type(c).__name__ == "DecodingError"), None)
    if unreadable is not None:
        return Fault(problem="malformed", detail=f"the body cannot be read: {unreadable}")
    said = next((str(c) for c in causes[1:] if str(c)), str(failure))
    problem = "connection" if connecting else "bad_request"
    return Fault(problem=problem, detail=f"{type(causes[min(1, len(causes) - 1)]).__name__}: {said}")


def _bounding_hook(httpx: Any, line: _Line, most_bytes: int) -> Callable[[Any], None]:
    """A response hook that puts `_bounded` between the connection and whoever reads the body."""
    base: Any = httpx.SyncByteStream

    class Bounded(base):  # type: ignore[misc]
        def __init__(self, inner: Any, packed: bool) -> None:
            self._inner, self._packed = inner, packed

        def __iter__(self) -> Iterator[bytes]:
            return _bounded(self._inner, line, most_bytes, self._packed)

        def close(self) -> None:
            self._inner.close()

    def hook(response: Any) -> None:
        packing = response.headers.get("content-encoding", "identity").strip().lower()
        if packing not in ("", "identity", "gzip"):
            raise Unreadable(f"it is packed as {packing[:40]!r}, which was not asked for")
        # Unpacked here, where its size is bounded: 16 MB of gzip can hold 16 GB.
        if "content-encoding" in response.headers:
            del response.headers["content-encoding"]
        response.stream = Bounded(response.stream, packing == "gzip")

    return hook


def _bounded(chunks: Iterator[bytes], line: _Line, most_bytes: int, packed: bool) -> Iterator[bytes]:
    seen = 0
    unpack = zlib.decompressobj(wbits=31) if packed else None
    for chunk in chunks:
        if line.abandoned:
            raise Unreadable("the call is over")
        if unpack is not None:
            try:
                chunk = unpack.decompress(chunk, most_bytes + 1)
            except zlib.error as failure:
                raise Unreadable(f"it is not the gzip it says it is ({failure})") from failure
        seen += len(chunk)
        if seen > most_bytes:
            raise Unreadable(f"it has over {most_bytes} bytes")
        yield chunk
