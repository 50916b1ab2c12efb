"""What the client asks, asks again, remembers, and never says."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from accelopt_compile.errors import InvalidOption
from accelopt_compile.llm.address import is_loopback, normalised
from accelopt_compile.llm.client import Reply, Request
from accelopt_compile.llm.openai_client import Models, OpenAIClient, key_from_environment
from accelopt_compile.llm.retrying import Policy
from tests.llm.faulty_server import Behaviour, FaultyServer, Received, answer, hang, ok

REQUEST = Request(role="executor", model="m", system="You write kernels.", user="Write one.", max_tokens=64, effort="high")
KEY = "sk-secret-0123456789"


class Simulated:
    """A clock that only waits move on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def error(message: str, **more: object) -> dict[str, object]:
    return {"error": {"message": message, **more}}


def asked(*behaviours: Behaviour, **given: Any) -> tuple[Reply, Simulated, FaultyServer]:
    time_ = Simulated()
    with FaultyServer(*behaviours) as server:
        client = OpenAIClient(server.base_url, KEY, clock=time_, sleep=time_.sleep, **given)
        return client.ask(REQUEST), time_, server


# ---------------------------------------------------------------- trying again


def test_a_server_that_recovers_is_waited_for() -> None:
    """Two failures and an answer are an answer, after growing waits, and the reply says how many tries it took."""
    reply, time_, server = asked(answer(503, b""), answer(429, error("slow")), ok())
    assert ("hello", 3, 3) == (reply.text, reply.tries, len(server.received))
    first, second = time_.waits
    assert 0.25 <= first <= 0.5 <= second <= 1.0
    assert sum(time_.waits) == reply.seconds


def test_waits_are_the_same_for_the_same_seed() -> None:
    """Jitter comes from the seed and the request, so that a run can be repeated."""
    script = (answer(500, b""), answer(500, b""), ok())
    assert asked(*script, seed=3)[1].waits == asked(*script, seed=3)[1].waits
    assert asked(*script, seed=3)[1].waits != asked(*script, seed=4)[1].waits


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((("retry-after", "7"),), [7.0]),
        ((("retry-after", "3600"),), [60.0]),
        ((("retry-after-ms", "1500"), ("retry-after", "7")), [1.5]),
        ((("retry-after", "Sat, 28 Nov 2026 10:00:09 GMT"), ("date", "Sat, 28 Nov 2026 10:00:00 GMT")), [9.0]),
    ],
)
def test_retry_after_is_honoured(headers: tuple[tuple[str, str], ...], expected: list[float]) -> None:
    """The server's own wait is taken, up to a minute; a date counts from the server's clock."""
    assert expected == asked(answer(429, error("slow"), headers), ok())[1].waits


@pytest.mark.parametrize("value", ["soon", "-5", "nan", "inf", "1e999", ""])
def test_a_senseless_retry_after_is_none(value: str) -> None:
    """Anything that is no time leaves the client's own wait."""
    (wait,) = asked(answer(429, error("slow"), (("retry-after", value),)), ok())[1].waits
    assert 0.25 <= wait <= 0.5


def test_a_storm_ends_at_the_deadline() -> None:
    """Refused for ever with waits of a minute, the call ends before its deadline: a wait that reaches it is not begun."""
    reply, time_, _ = asked(answer(429, error("slow"), (("retry-after", "50"),)), deadline_s=120.0)
    assert ("rate_limit", 3, [50.0, 50.0]) == (reply.problem, reply.tries, time_.waits)
    assert time_.now < 120


def test_tries_end_without_a_deadline_in_sight() -> None:
    """The number of tries is bounded too."""
    assert 10 == asked(answer(500, b""), deadline_s=1e6)[0].tries


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_asking_again_cannot_change_is_asked_once(status: int) -> None:
    """A refusal of the request, the key or the model ends the call at once."""
    reply, time_, _ = asked(answer(status, error("no")))
    assert (1, []) == (reply.tries, time_.waits)


# ---------------------------------------------------------------- parameters


def test_chat_is_asked_with_what_the_request_says() -> None:
    """Off OpenAI's own endpoint it is chat completions, and nothing is sent that was not asked for."""
    _, _, server = asked(ok())
    (received,) = server.received
    assert ("POST", "/v1/chat/completions") == (received.method, received.path)
    messages = [{"role": "system", "content": "You write kernels."}, {"role": "user", "content": "Write one."}]
    assert {"model": "m", "messages": messages, "max_completion_tokens": 64, "reasoning_effort": "high"} == received.body
    assert f"Bearer {KEY}" == received.headers["authorization"]


REFUSALS = {
    "OpenAI": answer(400, error("Unsupported parameter", param="max_completion_tokens", code="unsupported_parameter")),
    "vLLM": answer(422, {"object": "error", "message": "max_completion_tokens: Extra inputs are not permitted", "code": 422}),
    "FastAPI": answer(422, {"detail": [{"loc": ["body", "max_completion_tokens"], "msg": "Extra inputs are not permitted"}]}),
    "text": answer(400, b"unknown field `max_completion_tokens`", kind="text/plain"),
}


@pytest.mark.parametrize("form", REFUSALS)
def test_a_refused_bound_is_renamed_and_remembered(form: str) -> None:
    """`max_tokens` is tried instead, without a wait, and from the next call on it is what is sent first."""
    with FaultyServer(REFUSALS[form], ok()) as server:
        client = OpenAIClient(server.base_url, sleep=lambda _: pytest.fail("a lesson is no retry"))
        replies = [client.ask(REQUEST), client.ask(REQUEST)]
    assert ["hello", "hello"] == [reply.text for reply in replies]
    assert [None, 64, 64] == [body.get("max_tokens") for body in server.bodies]


def test_a_refused_effort_is_left_out() -> None:
    """An endpoint that knows no effort is asked without; another model of it is still asked with it."""
    with FaultyServer(answer(400, error("reasoning_effort is not supported")), ok()) as server:
        client = OpenAIClient(server.base_url)
        client.ask(REQUEST)
        client.ask(Request(role="planner", model="other", system="", user="u", effort="low"))
    assert ["high", None, "low"] == [body.get("reasoning_effort") for body in server.bodies]


def test_a_bound_that_is_too_high_is_lowered() -> None:
    """A model that answers with fewer tokens at most is asked for as many as it can."""
    _, _, server = asked(answer(400, error("max_completion_tokens is too large: this model supports at most 32 tokens")), ok())
    assert [64, 32] == [body["max_completion_tokens"] for body in server.bodies]


def test_the_bound_is_never_dropped() -> None:
    """An endpoint that takes neither name is refused: without a bound no budget holds. Learning ends."""
    reply, _, server = asked(answer(400, error("unknown parameter: max_tokens, max_completion_tokens")))
    assert ("bad_request", 2) == (reply.problem, len(server.received))


RESPONSE = {
    "id": "resp_1",
    "status": "completed",
    "model": "served",
    "output": [
        {"type": "reasoning", "summary": []},
        {"type": "message", "content": [{"type": "output_text", "text": "hello"}]},
    ],
    "usage": {"input_tokens": 10, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 4}},
}


def test_responses_are_asked_for_nothing_to_be_stored() -> None:
    """The Responses API gets its own names of parameters, and is told not to keep the prompts."""
    reply, _, server = asked(answer(200, RESPONSE), api="responses")
    (body,) = server.bodies
    assert ("/v1/responses", False, 64, {"effort": "high"}) == (
        server.received[0].path,
        body["store"],
        body["max_output_tokens"],
        body["reasoning"],
    )
    usage = reply.usage
    assert ("hello", 10, 4, 5, "resp_1") == (reply.text, usage.prompt, usage.cached, usage.completion, reply.request_id)


@pytest.mark.parametrize(
    ("change", "problem", "text"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "truncated", "hello"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "refusal", "hello"),
        ({"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]}, "refusal", ""),
        ({"output": []}, "empty", ""),
        ({"output": None}, "malformed", ""),
        ({"output": [None, {"type": "message", "content": None}, 3]}, "empty", ""),
        ({"status": "failed", "error": {"message": "died", "code": "server_error"}}, "server", ""),
        ({"status": "queued"}, "server", "hello"),
    ],
)
def test_responses_go_wrong_in_their_own_way(change: dict[str, Any], problem: str, text: str) -> None:
    """The other form of answer has the same problems."""
    reply, _, _ = asked(answer(200, {**RESPONSE, **change}), api="responses", policy=Policy(tries=1))
    assert (problem, text) == (reply.problem, reply.text)


def test_an_endpoint_without_responses_is_asked_by_chat() -> None:
    """A 404 for the address falls back and is remembered; a refused store is left out; a 404 for the model stays one."""
    with FaultyServer(answer(404, b"not found"), ok()) as server:
        client = OpenAIClient(server.base_url, api="responses")
        assert ["hello", "hello"] == [client.ask(REQUEST).text, client.ask(REQUEST).text]
    assert ["/v1/responses", *["/v1/chat/completions"] * 2] == [received.path for received in server.received]
    _, _, server = asked(answer(400, error("x", param="store")), answer(200, RESPONSE), api="responses")
    assert [False, None] == [body.get("store") for body in server.bodies]
    reply, _, _ = asked(answer(404, error("no", code="model_not_found")), api="responses")
    assert ("model_not_found", 1) == (reply.problem, reply.tries)


# ---------------------------------------------------------------- keys and addresses


@pytest.mark.parametrize("status", [200, 400, 401, 500, 307])
@pytest.mark.parametrize("key", [KEY, "hf_0123456789abcdef", "a.b+c/d=="])
def test_no_key_in_any_reply(key: str, status: int) -> None:
    """A server that echoes the key, bare and as a header, cannot get it into a reply."""

    def echo(connection: Any, received: Received) -> None:
        sent = received.headers["authorization"]
        body = error(f"key {key} in Authorization: {sent}", code=key, param=key)
        answer(status, {"id": key, "model": key, **body}, (("location", f"http://x/{key}"), ("x-request-id", key)))(
            connection, received
        )

    with FaultyServer(echo) as server:
        client = OpenAIClient(server.base_url, key, policy=Policy(tries=1))
        reply, models = client.ask(REQUEST), client.list_models()
    assert "" != reply.problem
    for text in (repr(reply), repr(models), repr(client)):
        assert key not in text


CUTS = {
    "a long message": [answer(400, error("x" * n + "hf_0123456789abcdef")) for n in range(570, 600, 5)],
    "a long text": [answer(400, b"x " * n + b"hf_0123456789abcdef") for n in range(1988, 2000, 2)],
    "the beginning of a text": [answer(200, b"x" * n + b"hf_0123456789abcdef") for n in range(100, 120, 4)],
}


@pytest.mark.parametrize("where", CUTS)
def test_a_key_is_not_cut_in_half_and_shown(where: str) -> None:
    """Where a message is cut, no part of a key is left."""
    for behaviour in CUTS[where]:
        with FaultyServer(behaviour) as server:
            assert "hf_0" not in repr(OpenAIClient(server.base_url, "hf_0123456789abcdef").ask(REQUEST))


def test_no_key_in_an_answer_either() -> None:
    """A recording holds answers, so the key is taken out of those too."""
    assert "it is [key]!" == asked(ok(f"it is {KEY}!"))[0].text


def test_a_masked_key_goes_too() -> None:
    """What begins like a key is taken out, also where it is not ours."""
    detail = asked(answer(401, error("Incorrect API key provided: sk-abcd****wxyz.")))[0].detail
    assert "HTTP 401: Incorrect API key provided: [key]" == detail


def test_keyless_servers_are_sent_a_placeholder() -> None:
    """No key is fine where none is needed, and the environment's organization is nobody else's business."""
    with FaultyServer(ok()) as server:
        assert "hello" == OpenAIClient(server.base_url).ask(REQUEST).text
    assert "Bearer EMPTY" == server.received[0].headers["authorization"]


def test_what_the_environment_holds_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a proxy nor an organization of OpenAI's applies to a server on this machine."""
    for name, value in (("HTTP_PROXY", "http://127.0.0.1:9"), ("OPENAI_ORG_ID", "org-1"), ("OPENAI_PROJECT_ID", "p-1")):
        monkeypatch.setenv(name, value)
    reply, _, server = asked(ok())
    assert "hello" == reply.text
    assert [] == [name for name in server.received[0].headers if name.startswith("openai-")]


def test_the_key_comes_from_the_environment() -> None:
    """Our own variable wins; blank is none."""
    assert "a" == key_from_environment({"ACCELOPT_API_KEY": " a\n", "OPENAI_API_KEY": "b"})
    assert "b" == key_from_environment({"ACCELOPT_API_KEY": " ", "OPENAI_API_KEY": "b"})
    assert "" == key_from_environment({})


def test_a_key_that_no_header_can_hold_is_refused_unseen() -> None:
    """The message says what is wrong without showing the key."""
    with pytest.raises(InvalidOption, match="holds a space") as refused:
        OpenAIClient("localhost:1", "sk-sec\nret")
    assert "sk-sec" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://localhost:8000", "http://localhost:8000/v1"),
        ("127.0.0.1:11434/", "http://127.0.0.1:11434/v1"),
        ("api.openai.com", "https://api.openai.com/v1"),
        ("https://openrouter.ai/api/v1/", "https://openrouter.ai/api/v1"),
        ("http://[::1]:80/v1/chat/completions", "http://[::1]:80/v1"),
    ],
)
def test_an_address_gets_its_path(given: str, expected: str) -> None:
    """/v1 is added where no path is given, and a pasted call is cut back."""
    assert expected == normalised(given)


@pytest.mark.parametrize(
    "address", ["", "ftp://x/v1", "http://", "http://x:port", "http://user:pw@x/v1", "http://x/v1?key=1", "http://[::1"]
)
def test_what_is_no_address_is_an_error(address: str) -> None:
    """The error shows what is accepted, and no password."""
    with pytest.raises(InvalidOption, match="accepted: 'https") as refused:
        normalised(address)
    assert "pw" not in str(refused.value)


def test_loopback() -> None:
    """This machine by name and by number."""
    assert [True, True, True, False] == [
        is_loopback(f"http://{h}/v1") for h in ("localhost", "127.9.9.9", "[::1]", "example.com")
    ]


# ---------------------------------------------------------------- the rest


def test_models_are_listed_or_a_reason_is_given() -> None:
    """The list for error messages and `accelopt doctor`."""
    with FaultyServer(answer(200, {"data": [{"id": "a"}, {"id": 3}, {"id": "b"}]})) as server:
        assert Models(ids=("a", "b")) == OpenAIClient(server.base_url).list_models()
    assert ("GET", "/v1/models") == (server.received[0].method, server.received[0].path)
    refusals = {
        "no list of models": answer(200, {"data": None}),
        "bad key": answer(401, error("bad key")),
        "HTML": answer(200, b"<p>"),
    }
    for said, behaviour in refusals.items():
        with FaultyServer(behaviour) as server:
            models = OpenAIClient(server.base_url).list_models()
        assert ((), True) == (models.ids, said in models.reason), models


def test_places_are_limited_and_waiting_ends() -> None:
    """No more calls are under way than the client may make; one that finds no place until the deadline says so."""
    under_way: list[int] = []
    lock, now = threading.Lock(), [0]

    def slow(connection: Any, received: Received) -> None:
        with lock:
            now[0] += 1
            under_way.append(now[0])
        time.sleep(0.05)
        with lock:
            now[0] -= 1
        ok()(connection, received)

    with FaultyServer(slow) as server, ThreadPoolExecutor(8) as pool:
        client = OpenAIClient(server.base_url, concurrency=2)
        assert ["hello"] * 8 == [reply.text for reply in pool.map(client.ask, [REQUEST] * 8)]
    assert 2 == max(under_way)
    with FaultyServer(hang) as server, ThreadPoolExecutor(2) as pool:
        client = OpenAIClient(server.base_url, concurrency=1, deadline_s=0.5)
        began = time.monotonic()
        replies = list(pool.map(client.ask, [REQUEST] * 2))
        assert ["timeout", "timeout"] == [reply.problem for reply in replies]
        assert time.monotonic() - began < 2.5


def in_a_new_python(source: str) -> str:
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_openai_is_imported_by_the_first_call_only() -> None:
    """Neither the package nor a client imports the SDK, which takes seconds."""
    made = (
        "import sys, accelopt_compile; from accelopt_compile.llm.openai_client import OpenAIClient; OpenAIClient('localhost:1')"
    )
    assert "False" == in_a_new_python(f"{made}; print('openai' in sys.modules)")


def test_a_missing_sdk_says_how_to_get_it() -> None:
    """Without openai, making a client is an error that names the command."""
    said = in_a_new_python(
        "import sys; sys.modules['openai'] = None\n"
        "from accelopt_compile.errors import LanguageModelMissing\n"
        "from accelopt_compile.llm.openai_client import OpenAIClient\n"
        "try: OpenAIClient('localhost:1')\n"
        "except LanguageModelMissing as missing: print(missing)"
    )
    assert "pip install 'accelopt-compile[openai]'" in said
