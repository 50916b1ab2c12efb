"""How tables of results are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def level(result: Mapping[str, Any]) -> str:
    """Which instructions all sides of a result could use: "native" or "avx2"."""
    return str(result["environment"].get("level", "native"))
