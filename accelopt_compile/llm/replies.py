"""What an HTTP answer means. Pure: bytes in, a `Reply` out, whatever the bytes are.

Status to problem: 408 timeout; 409 and 500 and above server; 429 rate_limit; 401, 402, 403 and a spent quota
authentication; 404 model_not_found (a wrong address too: neither is cured by asking again); 413 context_length; other
refusals bad_request, unless they say that the prompt is too long, the model unknown or the content filtered. An answer
with status 200 that holds an error is that error.
Usage that is missing, is no number or counts nothing for some text is estimated at four characters a token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from accelopt_compile.llm.client import Reply, Request, Usage

CHARACTERS_PER_TOKEN = 4

_BY_STATUS = {
    400: "bad_request",
    401: "authentication",
    402: "authentication",
    403: "authentication",
    404: "model_not_found",
    408: "timeout",
    409: "server",
    413: "context_length",
    429: "rate_limit",
}
_CONTEXT = re.compile(
    r"(?i)context.?(?:length|window|size)|maximum context|prompt (?:is )?too long|input is too long|too many (?:input )?tokens"
)
_MODEL = re.compile(r"(?i)\bmodel\b.{0,200}?(?:not found|not exist|no such|unknown|not available)|(?:invalid|unknown) model")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One HTTP answer. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def read_answer(answer: Answer, request: Request) -> Reply:
    """The reply that an answer is, in whichever of the two forms it comes. Never raises."""
    if not 200 <= answer.status < 300:
        return _named(_error_reply(answer.status, *error_of(answer)[:2], answer.headers), {}, answer)
    body = _json(answer.body)
    if not isinstance(body, dict):
        return _named(Reply(problem="malformed", detail=_what_it_is(answer)), {}, answer)
    if body.get("error") and not body.get("choices"):
        message, code, _ = error_of(answer)
        status = int(code) if code.isdecimal() and len(code) == 3 else 500
        return _named(_error_reply(status, message, code, answer.headers), body, answer)
    reply, unseen = _responses(body) if "output" in body else _chat(body)
    return _named(replace(reply, usage=_usage(body.get("usage"), request, reply.text + unseen)), body, answer)


def error_of(answer: Answer) -> tuple[str, str, str]:
    """(message, code, parameter) of a refusal, "" where the body does not say; its text where it is no JSON."""
    body = _json(answer.body)
    if not isinstance(body, dict):
        return _excerpt(answer.body), "", ""
    error = body.get("error") or body
    if isinstance(error, str):
        return _clean(error), "", ""
    if not isinstance(error, dict):
        return _excerpt(answer.body), "", ""
    said = next((error[name] for name in ("message", "detail", "msg") if error.get(name)), "")
    message = said if isinstance(said, str) else json.dumps(said)
    code = error.get("code") or error.get("type") or ""
    parameter = error.get("param") or ""
    texts = (value if isinstance(value, str | int) else "" for value in (code, parameter))
    return (_clean(message) or _excerpt(answer.body), *map(str, texts))  # type: ignore[return-value]


def says_context_length(message: str, code: str) -> bool:
    """Whether a refusal is about a prompt that is too long."""
    return _CONTEXT.search(code) is not None or _CONTEXT.search(message) is not None


def says_model_missing(message: str, code: str) -> bool:
    """Whether a refusal is about a model that the endpoint does not have."""
    return code == "model_not_found" or _MODEL.search(message) is not None


def estimated_tokens(text: str) -> int:
    """Four characters a token, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def read_models(answer: Answer) -> tuple[str, ...] | str:
    """The names in an answer to GET /models, or why it has none."""
    body = _json(answer.body)
    if answer.status != 200:
        return f"HTTP {answer.status}: {error_of(answer)[0]}"
    if not isinstance(body, dict):
        return _what_it_is(answer)
    listed = body.get("data")
    if not isinstance(listed, list):
        return "the answer has no list of models"
    return tuple(_clean(entry["id"]) for entry in listed if isinstance(entry, dict) and isinstance(entry.get("id"), str))


# ---------------------------------------------------------------- the two forms


def _chat(body: Mapping[str, Any]) -> tuple[Reply, str]:
    """The reply in a chat completion, and the reasoning text that was paid for but is no answer."""
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(first, dict) or not isinstance(message, dict):
        return Reply(problem="malformed", detail=f"no choices with a message in the answer ({_keys(body)})"), ""
    unseen = next((t for name in ("reasoning_content", "reasoning") if isinstance(t := message.get(name), str)), "")
    text, refusal, ended = _text_of(message.get("content")), message.get("refusal"), first.get("finish_reason")
    if text is None:
        return Reply(problem="malformed", detail=f"the content is a {type(message['content']).__name__}, not text"), unseen
    if isinstance(refusal, str) and refusal:
        return Reply(text=text, problem="refusal", detail=_clean(refusal)), unseen
    if ended == "content_filter":
        return Reply(text=text, problem="refusal", detail="the endpoint's content filter cut the answer off"), unseen
    if ended == "error":
        return Reply(text=text, problem="server", detail="the endpoint failed while it answered"), unseen
    return _finished(text, unseen, cut=ended == "length"), unseen


def _responses(body: Mapping[str, Any]) -> tuple[Reply, str]:
    """The reply in an answer of the Responses API."""
    output = body.get("output")
    if not isinstance(output, list):
        return Reply(problem="malformed", detail=f"the output is a {type(output).__name__}, not a list"), ""
    items = [item for item in output if isinstance(item, dict) and item.get("type") == "message"]
    parts = [p for item in items if isinstance(c := item.get("content"), list) for p in c if isinstance(p, dict)]
    text = _clean("".join(p["text"] for p in parts if isinstance(p.get("text"), str)))
    refusals = [p["refusal"] for p in parts if isinstance(p.get("refusal"), str)]
    details = body.get("incomplete_details")
    why = details.get("reason") if isinstance(details, dict) else None
    if refusals or why == "content_filter":
        detail = _clean(" ".join(refusals)) or "the endpoint's content filter cut the answer off"
        return Reply(text=text, problem="refusal", detail=detail), ""
    if body.get("status") not in ("completed", "incomplete", None):
        return Reply(text=text, problem="server", detail=f"the endpoint's answer is {body.get('status')!r:.80}"), ""
    return _finished(text, "", cut=body.get("status") == "incomplete"), ""


def _finished(text: str, unseen: str, *, cut: bool) -> Reply:
    if cut:
        where = "" if text.strip() else "; all of it went into reasoning"
        return Reply(text=text, problem="truncated", detail=f"the answer reached its bound on tokens{where}")
    if not text.strip():
        return Reply(problem="empty", detail="only reasoning came, no answer" if unseen else "the answer holds no text")
    return Reply(text=text)


def _text_of(content: object) -> str | None:
    """The text of a message's content, which may be a list of parts; None where it is neither."""
    if content is None:
        return ""
    if isinstance(content, list):
        return _clean("".join(p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str)))
    return _clean(content) if isinstance(content, str) else None


# ---------------------------------------------------------------- small print


def _usage(usage: object, request: Request, text: str) -> Usage:
    names = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
    counts = [_count(usage, *pair) for pair in names]
    prompt, completion = counts
    if not isinstance(usage, dict) or prompt is None or completion is None or (text and not prompt + completion):
        return Usage(prompt=estimated_tokens(request.system + request.user), completion=estimated_tokens(text), estimated=True)
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    return Usage(prompt=prompt, cached=min(prompt, _count(details, "cached_tokens") or 0), completion=completion)


def _count(table: object, *names: str) -> int | None:
    values = [table.get(name) for name in names] if isinstance(table, dict) else []
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v >= 0), None)


def _error_reply(status: int, message: str, code: str, headers: Mapping[str, str]) -> Reply:
    problem = _BY_STATUS.get(status, "server" if status >= 500 else "bad_request")
    if status in (400, 403, 404, 422):
        if says_context_length(message, code):
            problem = "context_length"
        elif says_model_missing(message, code):
            problem = "model_not_found"
        elif code in ("content_filter", "content_policy_violation"):
            problem = "refusal"
    elif status == 429 and code == "insufficient_quota":
        problem = "authentication"
    elif 300 <= status < 400:
        where = headers.get("location", "").partition("?")[0]
        message = f"it redirects to {_clean(where)!r}, which is not followed; set base_url to where it is"
    hint = "; is the address right?" if status == 404 and not says_model_missing(message, code) else ""
    return Reply(problem=problem, detail=f"HTTP {status}: {message}" + hint)


def _named(reply: Reply, body: Mapping[str, Any], answer: Answer) -> Reply:
    ids = (answer.headers.get("x-request-id"), body.get("id"))
    model = body.get("model")
    return replace(
        reply,
        model=_clean(model)[:200] if isinstance(model, str) else "",
        request_id=_clean(next((i for i in ids if isinstance(i, str)), ""))[:200],
    )


def _what_it_is(answer: Answer) -> str:
    if not answer.body.strip():
        return f"HTTP {answer.status} with an empty body"
    if answer.body.lstrip()[:1] == b"<":
        return f"HTML where JSON was expected; is the address right? It begins {_excerpt(answer.body)[:120]!r}"
    return f"no JSON object, or one that was cut off; it begins {_excerpt(answer.body)[:120]!r}"


def _json(body: bytes) -> Any:
    """The parsed body, None for anything else: also for one nested deeper than the parser goes."""
    try:
        return json.loads(body.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return None


def _excerpt(body: bytes) -> str:
    return _clean(" ".join(body[:4000].decode("utf-8", "replace").split()))


def _clean(text: str) -> str:
    """Text that can be encoded: JSON may hold half a surrogate pair."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _keys(body: Mapping[str, Any]) -> str:
    return _clean(f"it has {', '.join(sorted(body)[:8])}" if body else "it is {}")[:200]
