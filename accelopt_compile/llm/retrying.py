"""Which failed calls are tried again, and when. Pure: the caller waits.

A wait doubles from `first_s` to `longest_s`, less up to a half of it drawn from the caller's generator, so that many
clients do not come back together. A server's own `retry-after` is taken instead, up to `retry_after_s`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from random import Random

RETRIED = frozenset({"rate_limit", "server", "timeout", "connection"})
"""408, 409, 429, 500 and above, no connection, no answer in time. Never what asking again cannot change."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How often and how patiently. `tries` counts requests of one call; one that could not even connect gets fewer, so
    that a wrong address is said within seconds."""

    tries: int = 10
    connection_tries: int = 4
    first_s: float = 0.5
    longest_s: float = 30.0
    retry_after_s: float = 60.0


def wait_before_retry(
    problem: str, *, failed: int, retry_after_s: float | None, left_s: float, rng: Random, policy: Policy
) -> float | None:
    """Seconds to wait before the next try, or None for no further try. `failed` tries have failed so far, the last with
    `problem`; a wait that would reach the deadline, `left_s` away, is not begun."""
    if problem not in RETRIED or failed >= (policy.connection_tries if problem == "connection" else policy.tries):
        return None
    wait = min(policy.longest_s, policy.first_s * 2.0 ** min(failed - 1, 30)) * (1 - rng.random() / 2)
    if retry_after_s is not None:
        wait = min(retry_after_s, policy.retry_after_s)
    return wait if wait < left_s else None


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """What the server asked for, in seconds; None where it asked for nothing, or for nothing that is a time.

    A date is taken relative to the answer's own `date`: this machine's clock may be wrong.
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        until, now = (parsedate_to_datetime(headers.get(name, "")) for name in ("retry-after", "date"))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
