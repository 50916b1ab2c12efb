"""Keys out of texts. Whatever is shown, logged or recorded about an endpoint goes through here. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from accelopt_compile.errors import InvalidOption
from accelopt_compile.llm.client import Reply

NO_KEY = "EMPTY"
"""What keyless servers are sent; the SDK refuses to send nothing."""

KEY_VARIABLES = ("ACCELOPT_API_KEY", "OPENAI_API_KEY")
MARK = "[key]"
DETAIL_LENGTH = 600

_LIKE_A_KEY = re.compile(r"(?i)(?:\bbearer\s+|authorization\W{1,4}(?:bearer\s+|basic\s+)?)[^\s\"',}]+|\bsk-[\w*.-]{6,}")
_SHORTEST_IN_TEXT = 8
"""A shorter key may be a word of a program, which must not be changed."""


def key_from_environment(env: Mapping[str, str]) -> str:
    """The key, or "" for none: ACCELOPT_API_KEY before OPENAI_API_KEY."""
    return next((env[name].strip() for name in KEY_VARIABLES if env.get(name, "").strip()), "")


def checked_key(key: str) -> str:
    """The key to send. Raises InvalidOption, without showing it, for one that no header can hold."""
    key = key.strip()
    if any(not "!" <= letter <= "~" for letter in key):
        raise InvalidOption("the API key holds a space or a letter outside ASCII; copy it again, without quotes or line ends")
    return key or NO_KEY


def redact(text: str, key: str) -> str:
    """`text` without the key, and without anything else that looks like one."""
    if key and key != NO_KEY:
        text = text.replace(key, MARK)
    return _LIKE_A_KEY.sub(MARK, text)


def redact_reply(reply: Reply, key: str) -> Reply:
    """The reply with no key in it. In the answer itself only this very key is looked for: a kernel is not to be changed."""
    # Cut here, not before: the half of a key that a cut leaves is not found.
    safe = replace(reply, detail=redact(reply.detail, key)[:DETAIL_LENGTH])
    if not _is_long(key):
        return safe
    named = {name: getattr(safe, name).replace(key, MARK) for name in ("text", "model", "request_id")}
    return replace(safe, **named)


def redact_body(body: bytes, key: str) -> bytes:
    """The body of an answer without the key, before any part of it is quoted."""
    return body.replace(key.encode(), MARK.encode()) if _is_long(key) else body


def _is_long(key: str) -> bool:
    return key != NO_KEY and len(key) >= _SHORTEST_IN_TEXT
