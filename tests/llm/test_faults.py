"""Whatever an endpoint does is a reply with a problem, within the deadline; nothing of it is raised."""

from __future__ import annotations

import gzip
import json
import socket
import time

import pytest

from accelopt_compile.llm.client import Reply, Request
from accelopt_compile.llm.openai_client import OpenAIClient
from accelopt_compile.llm.retrying import Policy
from tests.llm.faulty_server import (
    Behaviour,
    FaultyServer,
    answer,
    bomb,
    completion,
    endless,
    hang,
    ok,
    raw,
    reset_after,
    trickle,
)

REQUEST = Request(role="executor", model="m", system="You write kernels.", user="Write one.", max_tokens=64)
ONCE = Policy(tries=1, connection_tries=1)
TOLERANCE_S = 1.5


def error(message: str, **more: object) -> dict[str, object]:
    return {"error": {"message": message, **more}}


def head(length: int, *, status: int = 200, more: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{more}\r\n".encode()


def asked(behaviour: Behaviour, *, deadline_s: float = 20.0, api_key: str = "sk-secret-0123456789") -> Reply:
    with FaultyServer(behaviour) as server:
        client = OpenAIClient(server.base_url, api_key, deadline_s=deadline_s, policy=ONCE)
        reply = client.ask(REQUEST)
        client.close()
        return reply


WHOLE = json.dumps(completion()).encode()
PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

FAULTS: dict[str, tuple[Behaviour, str, str]] = {
    "429": (answer(429, error("slow down")), "rate_limit", "slow down"),
    "429 for a spent quota": (answer(429, error("no quota", code="insufficient_quota")), "authentication", "no quota"),
    "500": (answer(500, error("oops")), "server", "HTTP 500"),
    "500 with HTML": (answer(500, b"<html>Bad</html>", kind="text/html"), "server", "<html>Bad"),
    "503 with nothing": (answer(503, b""), "server", "HTTP 503"),
    "408": (answer(408, error("too slow")), "timeout", "408"),
    "409": (answer(409, error("conflict")), "server", "409"),
    "401": (answer(401, error("bad key")), "authentication", "bad key"),
    "402": (answer(402, error("pay")), "authentication", "pay"),
    "403": (answer(403, {"message": "forbidden"}), "authentication", "forbidden"),
    "404 for a model": (answer(404, error("The model `m` does not exist", code="model_not_found")), "model_not_found", "`m`"),
    "404 for the address": (answer(404, b"404 page not found", kind="text/plain"), "model_not_found", "address"),
    "400 for a model": (answer(400, error("model 'm' not found, try pulling it first")), "model_not_found", "pulling"),
    "413": (answer(413, b"too large"), "context_length", "413"),
    "400 that names nothing": (answer(400, error("bad messages")), "bad_request", "bad messages"),
    "422 detail that names nothing": (
        answer(422, {"detail": [{"loc": ["body", "messages"], "msg": "field required"}]}),
        "bad_request",
        "field required",
    ),
    "detail as text": (answer(400, {"detail": "no way"}), "bad_request", "no way"),
    "error as text": (answer(400, {"error": "no way"}), "bad_request", "no way"),
    "context length, OpenAI": (answer(400, error("x", code="context_length_exceeded")), "context_length", ""),
    "context length, vLLM": (
        answer(400, {"object": "error", "message": "max_tokens=64: maximum context length is 8 tokens", "code": 400}),
        "context_length",
        "maximum context",
    ),
    "HTML with status 200": (answer(200, b"<!doctype html><p>Sign in", kind="text/html"), "malformed", "HTML"),
    "empty body": (answer(200, b""), "malformed", "empty body"),
    "204": (raw(b"HTTP/1.1 204 No Content\r\n\r\n"), "malformed", "empty body"),
    "JSON cut off": (answer(200, WHOLE[: len(WHOLE) // 2]), "malformed", "cut off"),
    "no JSON": (answer(200, b"hello"), "malformed", "hello"),
    "server-sent events": (answer(200, b"data: {}\n\n", kind="text/event-stream"), "malformed", "data:"),
    "JSON that is a list": (answer(200, []), "malformed", ""),
    "JSON nested without end": (answer(200, b"[" * 200_000), "malformed", ""),
    "a number of a million digits": (answer(200, b'{"choices": ' + b"9" * 1_000_000 + b"}"), "malformed", ""),
    "no choices": (answer(200, {"id": "x"}), "malformed", "no choices"),
    "choices null": (answer(200, {"choices": None}), "malformed", "no choices"),
    "choices empty": (answer(200, {"choices": []}), "malformed", "no choices"),
    "choices of numbers": (answer(200, {"choices": [3]}), "malformed", "no choices"),
    "message null": (answer(200, {"choices": [{"message": None}]}), "malformed", "no choices"),
    "content a number": (ok(3), "malformed", "int"),
    "error with status 200": (answer(200, error("upstream died", code=502)), "server", "upstream died"),
    "finish_reason error": (ok("half", finish="error"), "server", ""),
    "content null, reasoning given": (ok(None, reasoning_content="hm"), "empty", "only reasoning"),
    "content empty": (ok(""), "empty", "no text"),
    "content blank": (ok(" \n "), "empty", "no text"),
    "content filter": (ok("par", finish="content_filter"), "refusal", "filter"),
    "refusal": (ok(None, refusal="I will not."), "refusal", "I will not."),
    "redirect": (answer(307, b"", (("location", "https://evil.example/v1?t=1"),)), "bad_request", "evil.example/v1'"),
    "gzip that is none": (answer(200, WHOLE, (("content-encoding", "gzip"),)), "malformed", "gzip"),
    "packed as nobody asked": (answer(200, WHOLE, (("content-encoding", "br"),)), "malformed", "br"),
    "gzip bomb": (answer(200, bomb(64 << 20), (("content-encoding", "gzip"),)), "malformed", "16777216 bytes"),
    "endless body": (endless, "malformed", "16777216 bytes"),
    "closed before a byte": (reset_after(b""), "connection", ""),
    "reset in the headers": (reset_after(b"HTTP/1.1 200 OK\r\ncont"), "connection", ""),
    "reset in the body": (reset_after(head(1000) + b'{"choices'), "connection", ""),
    "no HTTP": (raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "connection", ""),
    "two lengths": (raw(head(5, more="content-length: 7\r\n") + b"hello w"), "connection", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_problem_with_a_reason(fault: str) -> None:
    """Each misbehaviour is told apart, and the reply says what came."""
    behaviour, problem, said = FAULTS[fault]
    reply = asked(behaviour)
    assert (problem, True) == (reply.problem, said in reply.detail), reply


TOLERATED: dict[str, tuple[Behaviour, str]] = {
    "another model's name": (ok("hello"), "hello"),
    "content in parts": (ok(PARTS), "ab"),
    "usage null": (answer(200, {**completion(), "usage": None}), "hello"),
    "usage of a wrong type": (ok(usage="many"), "hello"),
    "NUL and emoji": (ok("a\0b\U0001f600"), "a\0b\U0001f600"),
    "half a surrogate pair": (answer(200, WHOLE.replace(b"hello", b"\\ud83d!")), "?!"),
    "bytes that are no UTF-8": (answer(200, WHOLE.replace(b"hello", b"\xff!")), "�!"),
    "a byte order mark": (answer(200, b"\xef\xbb\xbf" + WHOLE), "hello"),
    "a wrong content type": (answer(200, WHOLE, kind="text/html"), "hello"),
    "headers twice": (answer(200, completion(), (("x-request-id", "a"), ("x-request-id", "b"))), "hello"),
    "honest gzip": (answer(200, gzip.compress(WHOLE), (("content-encoding", "gzip"),)), "hello"),
    "unknown fields": (answer(200, {**completion(), "surprise": [1]}), "hello"),
    "error null": (answer(200, {**completion(), "error": None}), "hello"),
}


@pytest.mark.parametrize("oddity", TOLERATED)
def test_an_oddity_is_no_problem(oddity: str) -> None:
    """What can be understood is understood."""
    behaviour, text = TOLERATED[oddity]
    reply = asked(behaviour)
    assert ("", text) == (reply.problem, reply.text), reply
    reply.text.encode()


HANGS: dict[str, Behaviour] = {
    "before the headers": hang,
    "in the status line": trickle(b"HTTP/1.1"),
    "in the headers": trickle(b"HTTP/1.1 200 OK\r\nx-filler: "),
    "in a body of spaces": trickle(head(10_000_000)),
    "in the body of an error": trickle(head(10_000_000, status=500)),
    "in a body without a length": trickle(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"),
}


@pytest.mark.parametrize("where", HANGS)
def test_no_hang_outlasts_the_deadline(where: str) -> None:
    """A server that is silent, and one that keeps sending a byte for ever, both end at the deadline of the whole call."""
    asked(ok())  # the SDK's first use imports for a second
    began = time.monotonic()
    reply = asked(HANGS[where], deadline_s=0.6)
    assert "timeout" == reply.problem, reply
    assert 0.5 < time.monotonic() - began < 0.6 + TOLERANCE_S


def test_an_abandoned_call_closes_its_connection() -> None:
    """A server that trickles for ever soon finds nobody there, and other calls go on."""
    gone: list[bool] = []

    def behave(connection: socket.socket, received: object) -> None:
        try:
            trickle(head(10_000_000))(connection, received)  # type: ignore[arg-type]
        except OSError:
            gone.append(True)
            raise

    with FaultyServer(behave, ok()) as server:
        client = OpenAIClient(server.base_url, deadline_s=0.6, policy=ONCE)
        assert "timeout" == client.ask(REQUEST).problem
        assert "hello" == client.ask(REQUEST).text
        until = time.monotonic() + 5
        while not gone and time.monotonic() < until:
            time.sleep(0.02)
    assert [True] == gone


def test_a_refused_connection_is_said() -> None:
    """Nobody listening is the problem "connection", after a few tries."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    waits: list[float] = []
    client = OpenAIClient(f"127.0.0.1:{port}", sleep=waits.append)
    reply = client.ask(REQUEST)
    assert ("connection", 4, 3) == (reply.problem, reply.tries, len(waits))
    assert f"http://127.0.0.1:{port}/v1" in reply.detail


def test_a_truncated_answer_keeps_its_text() -> None:
    """An answer that reached its bound is a problem, and its text and usage are there."""
    reply = asked(ok("int ma", finish="length"))
    assert ("truncated", "int ma", 5) == (reply.problem, reply.text, reply.usage.completion)


NO_USAGE: list[object] = [
    None,
    {},
    "many",
    {"prompt_tokens": "10", "completion_tokens": 5},
    {"prompt_tokens": -1, "completion_tokens": 5},
    {"prompt_tokens": True, "completion_tokens": 5.5},
    {"prompt_tokens": 0, "completion_tokens": 0},
]


@pytest.mark.parametrize("usage", NO_USAGE)
def test_missing_usage_is_estimated(usage: object) -> None:
    """Without counts, or with nonsense, four characters are a token, and the usage says that it is a guess."""
    reply = asked(ok("x" * 9, usage=usage))
    assert (7, 3, True) == (reply.usage.prompt, reply.usage.completion, reply.usage.estimated)


def test_details_of_usage_may_be_null() -> None:
    """Cached tokens are read where they are given, and are none where the details are null."""
    counts = {"prompt_tokens": 10, "completion_tokens": 5}
    assert 0 == asked(ok(usage={**counts, "prompt_tokens_details": None})).usage.cached
    assert 8 == asked(ok(usage={**counts, "prompt_tokens_details": {"cached_tokens": 8}})).usage.cached
