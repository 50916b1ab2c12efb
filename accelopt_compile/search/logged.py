"""Whether a search can go on from a log: a file is foreign until it was read, so its events are checked before any is used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from accelopt_compile.errors import DamagedEntry, InvalidRecord
from accelopt_compile.events import Event
from accelopt_compile.records import source_from_json
from accelopt_compile.search.state import experience_from, plan_from, verdict_from


def check(events: Iterable[Event]) -> None:
    """Raises DamagedEntry for the first event that a search would read and cannot."""
    for number, event in enumerate(events):
        reader = _READERS.get(event["kind"]) if isinstance(event["kind"], str) else None
        try:
            if reader is not None:
                _texts(event, "search")
                reader(event)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, InvalidRecord) as failure:
            told = f"{type(failure).__name__}: {failure}"
            raise DamagedEntry(f"event {number} is not a {event['kind']} that a search wrote ({told:.200})") from failure


def _verdict(event: Event) -> None:
    _texts(event, "key")
    seconds = event["seconds"]
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"it took {seconds!r:.40} seconds")
    verdict_from(event["verdict"])


def _plans(event: Event) -> None:
    _texts(event, "call")
    for plan in _list(event["reply"]):
        plan_from(plan)


def _attempts(event: Event) -> None:
    _texts(event, "call")
    for attempt in _list(event["reply"]):
        if "no_source" not in attempt:
            source_from_json(attempt)


def _fix(event: Event) -> None:
    _texts(event, "call")
    if event["reply"] is not None:
        source_from_json(event["reply"])


def _lesson(event: Event) -> None:
    _texts(event, "call")
    if event["reply"] is not None:
        experience_from(event["reply"])


def _fill(event: Event) -> None:
    for name in ("round", "parents"):
        if type(event[name]) is not int or event[name] < 0:
            raise ValueError(f"its {name} is {event[name]!r:.40}")


def _texts(event: Event, name: str) -> None:
    if not isinstance(event[name], str):
        raise TypeError(f"its {name} is {event[name]!r:.40}")


def _list(reply: Any) -> list[Any]:
    if not isinstance(reply, list):
        raise TypeError(f"its reply is {reply!r:.40}")
    return reply


_READERS: Mapping[str, Callable[[Event], None]] = {
    "verdict": _verdict,
    "plans": _plans,
    "attempts": _attempts,
    "fix": _fix,
    "lesson": _lesson,
    "fill": _fill,
}
