"""What a language model is asked and what comes back. Nothing here knows an endpoint; see `openai_client` for one.

Whatever an endpoint does is data: a `Reply` with a `problem`. A client never raises for it, and never outlasts its deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from accelopt_compile.records import canonical_json, sha256_text

Role = Literal["planner", "executor", "fixer", "summarizer"]
ROLES: tuple[Role, ...] = ("planner", "executor", "fixer", "summarizer")

FATAL = frozenset({"authentication", "model_not_found", "budget", "not_recorded"})
"""Problems that asking again, in this run, will not cure."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One question. `call` names it within its run ("3/0/1": round 3, beam slot 0, plan 1), so that equal prompts asked
    twice stay two requests; `max_tokens` bounds the answer, its reasoning included; `effort` is the endpoint's reasoning
    effort, None leaves it to the endpoint."""

    role: Role
    model: str
    system: str
    user: str
    call: str = ""
    max_tokens: int = 16384
    effort: str | None = None

    @property
    def prompt_digest(self) -> str:
        """sha256 of what the model reads."""
        return sha256_text(canonical_json([self.system, self.user]))

    @property
    def key(self) -> str:
        """sha256 of everything that was asked: what a recorded answer is found by."""
        return sha256_text(canonical_json(asdict(self)))


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of one call. `cached` of `prompt` were read from the endpoint's prompt cache. `estimated`: the endpoint did
    not say, so they are counted at four characters a token."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    estimated: bool = False


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer, or why there is none. `problem` is "" or one word (a reason below); `detail` says it in a sentence and
    never holds a key. A truncated answer keeps its text. `usd` is None where no price is known; `tries` counts HTTP
    requests; `seconds` is the whole call, waits included.

    problem: empty, truncated, refusal, malformed (no JSON, HTML, no choices), rate_limit, server, timeout, connection,
    authentication, model_not_found, bad_request, context_length, budget, not_recorded.
    """

    text: str = ""
    problem: str = ""
    detail: str = ""
    usage: Usage = field(default_factory=Usage)
    usd: float | None = None
    seconds: float = 0.0
    tries: int = 1
    model: str = ""
    request_id: str = ""

    @property
    def fatal(self) -> bool:
        """Whether asking again in this run is pointless."""
        return self.problem in FATAL

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Reply:
        """Inverse of `to_json`. Raises TypeError and KeyError for anything else."""
        return Reply(**{**data, "usage": Usage(**data["usage"])})


class Client(Protocol):
    """Something that answers requests; one may be asked from several threads at once."""

    def ask(self, request: Request) -> Reply:
        """The answer, within the client's deadline."""
