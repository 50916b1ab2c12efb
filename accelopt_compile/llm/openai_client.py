"""A client for every endpoint that speaks OpenAI's chat completions or Responses API: vLLM, Ollama, OpenRouter, OpenAI.

Covered: one deadline for the whole call, waiting for a free place, retries and their waits included; refused parameters
are left out from then on; every misbehaviour of an endpoint is a `Reply` with a problem. Not covered: streaming, tools,
money (see `spending`). The first call of a process also imports openai (seconds), before its deadline begins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

from accelopt_compile.errors import InvalidOption
from accelopt_compile.llm.address import is_openai, normalised
from accelopt_compile.llm.client import Reply, Request
from accelopt_compile.llm.dialect import Api, Dialect, learned, parameters
from accelopt_compile.llm.redaction import DETAIL_LENGTH, checked_key, key_from_environment, redact, redact_body, redact_reply
from accelopt_compile.llm.replies import Answer, read_answer, read_models
from accelopt_compile.llm.retrying import Policy, retry_after_s, wait_before_retry
from accelopt_compile.llm.transport import Fault, Send, Transport, require_sdk

__all__ = ["Models", "OpenAIClient", "key_from_environment"]


@dataclass(frozen=True, kw_only=True)
class Models:
    """What an endpoint says it serves; `reason` is "" or why it did not say; `problem` is that of an exchange without an
    answer (timeout, connection, ...), "" where the endpoint answered."""

    ids: tuple[str, ...] = ()
    reason: str = ""
    problem: str = ""


class OpenAIClient:
    """Asks one endpoint. `concurrency` calls at most are under way at once; `seed` decides the jitter of waits.

    `clock` and `sleep` count seconds. Raises InvalidOption for an address or key that cannot be one, and
    LanguageModelMissing when openai is not installed; `ask` raises nothing.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str = "",
        *,
        api: Literal["auto", "chat", "responses"] = "auto",
        deadline_s: float = 600.0,
        concurrency: int = 4,
        seed: int = 0,
        policy: Policy | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        require_sdk()
        if api not in ("auto", "chat", "responses"):
            raise InvalidOption(f"api={api!r}: there is no such choice; accepted: 'auto', 'chat', 'responses'")
        if not deadline_s > 0 or concurrency < 1:
            raise InvalidOption(f"deadline_s={deadline_s!r}, concurrency={concurrency!r}: accepted: numbers above 0")
        self.base_url = normalised(base_url)
        self._key = checked_key(api_key)
        self._api: Api = ("responses" if is_openai(self.base_url) else "chat") if api == "auto" else api
        self._deadline_s, self._seed, self._policy = deadline_s, seed, policy or Policy()
        self._clock, self._sleep = clock, sleep
        self._places = threading.BoundedSemaphore(concurrency)
        self._transport = Transport(self.base_url, self._key)
        self._dialects: dict[str, Dialect] = {}

    def ask(self, request: Request) -> Reply:
        """The answer, or what kept it away, within the deadline, and the same again for a place."""
        _import_sdk()
        began = self._clock()
        if not self._places.acquire(timeout=self._deadline_s):
            detail = "all places of the client were taken until the deadline; raise concurrency or ask less at once"
            return Reply(problem="timeout", detail=detail, tries=0, seconds=self._clock() - began)
        try:  # the deadline is the answer's: who waited for a place is not sent with seconds left, and paid for in vain
            reply = self._ask(request, self._clock() + self._deadline_s)
        finally:
            self._places.release()
        return redact_reply(replace(reply, seconds=self._clock() - began), self._key)

    def list_models(self) -> Models:
        """What GET /models says, asked once, within the deadline."""
        _import_sdk()
        got = self._transport.exchange(lambda sdk: sdk.models.with_raw_response.list(), left_s=self._deadline_s)
        listed = got.detail if isinstance(got, Fault) else read_models(self._redacted(got))
        if isinstance(listed, tuple):
            return Models(ids=listed)
        reason = redact(f"{self.base_url}/models: {listed}", self._key)[:DETAIL_LENGTH]
        return Models(reason=reason, problem=got.problem if isinstance(got, Fault) else "")

    def close(self) -> None:
        """Close idle connections; the client stays usable."""
        self._transport.close()

    def _ask(self, request: Request, ends_at: float) -> Reply:
        # Seeded by the request, not by the order in which threads come: a run's waits are the same each time.
        rng = Random(f"{self._seed}:{request.key}")
        tries = failed = 0
        reply = Reply(problem="timeout", detail="the deadline was over before the first try", tries=0)
        while (left_s := ends_at - self._clock()) > 0:
            dialect = self._dialects.get(request.model) or Dialect(api=self._api)
            got = self._transport.exchange(_sending(dialect, request), left_s=left_s)
            tries += 1
            lesson = learned(dialect, request, got) if isinstance(got, Answer) else None
            if lesson is not None:
                self._dialects[request.model] = lesson
                continue
            reply = replace(self._reply(got, request), tries=tries)
            failed += 1
            wait = wait_before_retry(
                reply.problem,
                failed=failed,
                retry_after_s=retry_after_s(got.headers) if isinstance(got, Answer) else None,
                left_s=ends_at - self._clock(),
                rng=rng,
                policy=self._policy,
            )
            if wait is None:
                break
            self._sleep(wait)
        return reply

    def _reply(self, got: Answer | Fault, request: Request) -> Reply:
        if isinstance(got, Answer):
            return read_answer(self._redacted(got), request)
        return Reply(problem=got.problem, detail=f"{self.base_url}: {got.detail}")

    def _redacted(self, answer: Answer) -> Answer:
        return replace(answer, body=redact_body(answer.body, self._key))


def _import_sdk() -> None:
    import openai  # noqa: F401


def _sending(dialect: Dialect, request: Request) -> Send:
    given: dict[str, Any] = parameters(dialect, request)
    if dialect.api == "responses":
        return lambda sdk: sdk.responses.with_raw_response.create(**given)
    return lambda sdk: sdk.chat.completions.with_raw_response.create(**given)
