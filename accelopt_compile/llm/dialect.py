"""The parameters that one endpoint takes for one model, and what a refusal teaches about them. Pure.

OpenAI's newer models refuse `max_tokens`, older servers know nothing else; some refuse `store`, an effort, or an answer as
long as was asked for. An endpoint that says so is asked again without; what it said holds for its every later call.
The bound on the answer is never dropped: the budget rests on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from accelopt_compile.llm.client import Request
from accelopt_compile.llm.replies import Answer, error_of, says_context_length, says_model_missing

Api = Literal["chat", "responses"]

_REFUSALS = re.compile(
    r"(?i)unsupported|not support|unknown|unrecogni[sz]ed|unexpected|extra (?:inputs?|fields?|keys?)|not permitted|forbidden"
    r"|not allowed|deprecated|invalid|does not exist|not (?:a )?valid|no such|additional propert"
)
_AT_MOST = re.compile(r"(?i)(?:at most|less than or equal to|maximum (?:is|of|value(?: is)?)|up to|<=)\s*:?\s*(\d{2,7})")
_BOUNDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How to ask. `bound` is the name of the answer's bound in chat; `most_tokens` the largest that the model takes."""

    api: Api
    bound: str = "max_completion_tokens"
    renamed: bool = False
    dropped: frozenset[str] = frozenset()
    most_tokens: int | None = None


def parameters(dialect: Dialect, request: Request) -> dict[str, Any]:
    """The keyword arguments of the SDK's `create`."""
    most = min(request.max_tokens, dialect.most_tokens or request.max_tokens)
    if dialect.api == "responses":
        given: dict[str, Any] = {
            "model": request.model,
            "instructions": request.system,
            "input": [{"role": "user", "content": request.user}],
            "max_output_tokens": most,
            # The prompts hold users' models; the default would keep them for 30 days.
            "store": False,
        }
        if request.effort is not None:
            given["reasoning"] = {"effort": request.effort}
    else:
        messages = [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}]
        given = {"model": request.model, "messages": messages if request.system else messages[1:], dialect.bound: most}
        if request.effort is not None:
            given["reasoning_effort"] = request.effort
    return {name: value for name, value in given.items() if name not in dialect.dropped}


def learned(dialect: Dialect, request: Request, answer: Answer) -> Dialect | None:
    """The dialect to ask again in, or None where the answer teaches nothing: then it is the answer.

    Always another dialect than the one given, and each step is taken once, so that learning ends.
    """
    message, code, parameter = error_of(answer)
    if dialect.api == "responses" and answer.status in (404, 405, 501) and not says_model_missing(message, code):
        return Dialect(api="chat")
    if answer.status not in (400, 422) or says_context_length(message, code):
        return None
    sent = parameters(dialect, request)
    refused = _refused(sent, message, parameter)
    if refused in _BOUNDS:
        return _other_bound(dialect, sent[refused], message)
    return replace(dialect, dropped=dialect.dropped | {refused}) if refused else None


def _refused(sent: dict[str, Any], message: str, parameter: str) -> str:
    """The parameter that the endpoint does not take, "" where it names none that can be done without."""
    optional = [name for name in sent if name not in ("model", "messages", "input", "instructions")]
    for name in optional:
        if parameter == name or parameter.startswith(f"{name}."):
            return name
    if _REFUSALS.search(message) is None and _AT_MOST.search(message) is None:
        return ""
    return next((name for name in optional if re.search(rf"(?<![\w]){name}(?![\w])", message)), "")


def _other_bound(dialect: Dialect, asked: int, message: str) -> Dialect | None:
    limit = _AT_MOST.search(message)
    if limit is not None and 0 < int(limit[1]) < asked:
        return replace(dialect, most_tokens=int(limit[1]))
    if dialect.api == "chat" and not dialect.renamed:
        return replace(dialect, bound="max_tokens", renamed=True)
    return None
