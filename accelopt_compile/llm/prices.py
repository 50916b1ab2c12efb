"""What models cost: a dated table that ships with the package, and a user's own laid over it.

Form of a file: {"models": {NAME: {"in": USD, "out": USD, "cached": USD}}}, per million tokens, "cached" optional.
Names are those that an endpoint is asked with; whatever stands before the last "/" is a vendor and may be left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelopt_compile.errors import InvalidOption
from accelopt_compile.llm.client import Usage

SHIPPED = Path(__file__).with_name("prices.json")
_ACCEPTED = '{"models": {"my-model": {"in": 0.5, "out": 2.0, "cached": 0.05}}}, in USD per million tokens'


@dataclass(frozen=True, kw_only=True)
class Price:
    """USD per million tokens: of the prompt, of its part that the endpoint had cached, of the answer."""

    prompt: float
    cached: float
    completion: float

    def usd(self, usage: Usage) -> float:
        """What the tokens of `usage` cost."""
        cached = min(usage.cached, usage.prompt)
        return ((usage.prompt - cached) * self.prompt + cached * self.cached + usage.completion * self.completion) / 1e6

    def most_usd(self, prompt: int, completion: int) -> float:
        """The most that this many tokens can cost: none of them cached, or all, whichever is dearer."""
        return (prompt * max(self.prompt, self.cached) + completion * self.completion) / 1e6


@dataclass(frozen=True)
class Prices:
    """Prices by the name of the model."""

    table: Mapping[str, Price]
    date: str = ""

    def of(self, model: str) -> Price | None:
        """The price by the exact name, then by the part after the last "/"; None where none is known."""
        return self.table.get(model) or self.table.get(model.rpartition("/")[2])


def load_prices(own: str | Path | None = None, *, shipped: str | Path = SHIPPED) -> Prices:
    """The shipped table with a user's file, if any, laid over it. Raises InvalidOption for a file that is no such table."""
    table, date = _read(Path(shipped))
    if own is not None:
        over, own_date = _read(Path(own))
        table, date = {**table, **over}, own_date or date
    return Prices(table, date)


def _read(path: Path) -> tuple[dict[str, Price], str]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as failure:
        raise _invalid(path, f"it cannot be read ({failure})") from failure
    models = data.get("models") if isinstance(data, dict) else None
    if not isinstance(models, dict):
        raise _invalid(path, "it has no table of models")
    return {name: _price(path, name, entry) for name, entry in models.items()}, str(data.get("date", ""))


def _price(path: Path, name: str, entry: Any) -> Price:
    if not isinstance(entry, dict) or not {"in", "out"} <= set(entry) <= {"in", "out", "cached"}:
        raise _invalid(path, f"{name!r} needs 'in' and 'out' and may have 'cached', nothing else")
    for key, value in entry.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
            raise _invalid(path, f"{key!r} of {name!r} is {value!r}, not a price")
    return Price(prompt=entry["in"], cached=entry["cached"] if "cached" in entry else entry["in"], completion=entry["out"])


def _invalid(path: Path, reason: str) -> InvalidOption:
    return InvalidOption(f"price table {path}: {reason}; accepted: {_ACCEPTED}")
