"""The address of an endpoint: what a user writes, brought to the one form that the SDK needs. Pure."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit, urlunsplit

from accelopt_compile.errors import InvalidOption

_HOST = re.compile(r"[0-9a-z_-]+(\.[0-9a-z_-]+)*\.?|[0-9a-f:.]+(%\w+)?", re.IGNORECASE)

OPENAI_HOST = "api.openai.com"
_CALLS = ("/chat/completions", "/completions", "/responses", "/models")


def normalised(base_url: str) -> str:
    """The address with scheme and path: /v1 where none is given; a pasted call ("…/v1/chat/completions") is cut back.

    Raises InvalidOption for anything that is no http address, and for one that holds a password or a query.

    >>> normalised("localhost:8000/")
    'http://localhost:8000/v1'
    """
    text = base_url.strip()
    if re.fullmatch(r"[\w-]+", text) and not is_loopback(f"http://{text}"):
        raise _invalid("it is a bare word; write it with http:// or https://, or with its port")
    if "://" not in text:
        text = ("http://" if is_loopback(f"http://{text}") else "https://") + text
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as failure:
        raise _invalid(f"it is no address ({failure})") from failure
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _invalid("it is no http or https address")
    if parts.hostname.isascii() and not _HOST.fullmatch(parts.hostname):
        raise _invalid("its host is no name and no number")
    if parts.username is not None or parts.query:
        raise _invalid("it holds a user or a query; a key belongs in ACCELOPT_API_KEY")
    path = parts.path.rstrip("/")
    for call in _CALLS:
        path = path.removesuffix(call)
    return urlunsplit(SplitResult(parts.scheme, parts.netloc, path or "/v1", "", ""))


def is_loopback(address: str) -> bool:
    """Whether the address names this machine, so that no proxy may stand between."""
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ip = ip_address(host)
    except ValueError:
        return False
    return ip.is_loopback or ip.is_unspecified


def is_openai(address: str) -> bool:
    """Whether this is OpenAI's own endpoint, the only one where the Responses API is the better choice."""
    return urlsplit(address).hostname == OPENAI_HOST


def _invalid(reason: str) -> InvalidOption:
    # Without the value: it may hold a password.
    return InvalidOption(f"base_url: {reason}; accepted: 'https://api.openai.com/v1', 'http://127.0.0.1:8000/v1'")
