"""Numbers and foreign text as people read them."""

from __future__ import annotations

from urllib.parse import urlsplit

from accelopt_compile.records import Basis
from accelopt_compile.wording import times_text, visible


def time_unit(seconds: float) -> float:
    """The seconds of the unit that a time is best told in: 1, 60 or 3600."""
    return 1.0 if seconds < 120 else 60.0 if seconds < 7200 else 3600.0


def seconds_text(seconds: float) -> str:
    """90 -> '90 s', 600 -> '10 min', 9000 -> '2.5 h'."""
    unit = time_unit(seconds)
    name = {1.0: "s", 60.0: "min", 3600.0: "h"}[unit]
    return f"{seconds / unit:.3g} {name}"


def dollars_text(usd: float) -> str:
    """0.5 -> '$0.50', 0.002 -> '$0.002'."""
    return f"${usd:.2f}" if usd >= 0.1 or usd == 0 else f"${usd:.2g}"


def tokens_text(tokens: int) -> str:
    """1234567 -> '1.23M', 12345 -> '12.3k'."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1e3:.3g}k" if tokens < 999_500 else f"{tokens / 1e6:.3g}M"


def money_text(usd: float | None, *, calls: int, unpriced: int) -> str:
    """Dollars, or that nobody knows them: '-' without calls, 'unknown' where no price is, 'at least $1.00' in between."""
    if calls == 0:
        return "-"
    if usd is None or unpriced == calls:
        return "unknown"
    return ("at least " if unpriced else "") + dollars_text(usd)


def status_text(outcome: str, speedup: object, basis: Basis = "measured") -> str:
    """An outcome in a few words: 'winner 1.42x', 'candidate, estimated 1.42x'."""
    if not isinstance(speedup, int | float) or outcome not in ("winner", "candidate"):
        return visible(outcome)
    return f"winner {times_text(speedup)}" if outcome == "winner" else f"candidate, {times_text(speedup, basis)}"


def choices_text(choices: object) -> str:
    """{'TILE': 16} -> 'TILE=16'."""
    pairs = sorted(choices.items()) if isinstance(choices, dict) else []
    return " ".join(f"{name}={value}" for name, value in pairs)


def endpoint_text(url: str) -> str:
    """A URL without what may be a key in it: user, password and query."""
    try:
        parts = urlsplit(url)
        place = f"{parts.hostname or ''}:{parts.port}" if parts.port else parts.hostname or ""
    except ValueError:
        return "(not a URL)"
    return f"{parts.scheme}://{place}{parts.path}"
