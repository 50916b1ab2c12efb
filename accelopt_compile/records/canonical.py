"""One text for one value, and its digest: what every key is made of."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """RFC 8785 form of the JSON that we write: sorted keys, no spaces, ASCII; floats are never in it (see `Literal floats`)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha256_text(text: str) -> str:
    """Hex sha256 of UTF-8 text."""
    return hashlib.sha256(text.encode()).hexdigest()
