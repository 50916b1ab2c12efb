"""The files of a run as typed data. Nothing in them is trusted: what is not what it should be raises DamagedEntry, whose
message names file and line. A torn last line (its writer was killed) is left out; kinds of events unknown here are too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from accelopt_cache import durable
from accelopt_cache.run_store import Run
from accelopt_compile.errors import DamagedEntry, InvalidRecord
from accelopt_compile.events import FORMAT
from accelopt_compile.records import Accepted, Verdict, source_from_json
from accelopt_compile.report.contents import (
    Begun,
    Call,
    Event,
    Learned,
    Planned,
    RoundDone,
    RunFiles,
    Stopped,
    Trial,
    What,
    Written,
)
from accelopt_compile.search.state import SearchState, experience_from, plan_from, verdict_from

LOG_LIMIT = 512 << 20
"""Bytes of the longest log that is read."""

_LARGEST = 1e15
"""No time, speed, price or count of a run is that large; sums of smaller ones can be drawn."""

T = TypeVar("T")


def read_run(run: Run) -> RunFiles:
    """The files of a run. Raises DamagedEntry."""
    lines = _lines(run.events_path)
    if lines and (lines[0].get("format"), lines[0].get("kind")) != (FORMAT, "run"):
        raise DamagedEntry(f"{run.events_path}: not a run log of format {FORMAT}")
    events = [e for e in (_each(run.events_path, n, _event, line) for n, line in enumerate(lines) if n > 0) if e is not None]
    return RunFiles(
        id=run.id,
        about=run.about,
        started_s=_each(run.events_path, 0, lambda line: _number(line["at_s"]), lines[0]) if lines else 0.0,
        events=tuple(events),
        calls=read_calls(run),
        state=_state(run),
        result=run.result(),
        running=run.holder is not None,
    )


def read_calls(run: Run) -> tuple[Call, ...]:
    """The recorded calls of a run, oldest first. Raises DamagedEntry."""
    return tuple(_each(run.calls_path, n, _call, line) for n, line in enumerate(_lines(run.calls_path)))


def _state(run: Run) -> SearchState | None:
    data = run.load_state()
    try:
        state = None if data is None else SearchState.from_json(data)
    except InvalidRecord as failure:
        raise DamagedEntry(f"{run.path / 'state.json'}: {failure}") from failure
    for place, candidate in enumerate(state.candidates if state else ()):
        _each(run.path / "state.json", 0, _sound, candidate.verdict)
        # Parents come first: what follows `parent` upwards must end.
        if candidate.id != place or not (candidate.parent is None or 0 <= candidate.parent < place):
            raise DamagedEntry(f"{run.path / 'state.json'}: candidate {candidate.id} is out of order")
    return state


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log; none where there is no file."""
    try:
        content = durable.read_file(path, limit=LOG_LIMIT)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as failure:
        raise DamagedEntry(f"{path}: cannot be read ({failure.strerror})") from failure
    except DamagedEntry as failure:
        raise DamagedEntry(f"{path}: {failure}") from failure
    return [_each(path, number, durable.parse_object, line) for number, line in enumerate(content.split(b"\n")[:-1])]


def _each(path: Path, number: int, parse: Callable[[Any], T], line: Any) -> T:
    try:
        return parse(line)
    except (DamagedEntry, InvalidRecord, KeyError, TypeError, ValueError, AttributeError, OverflowError) as failure:
        raise DamagedEntry(f"{path}: line {number + 1}: {type(failure).__name__} {failure}") from failure


def _event(line: Mapping[str, Any]) -> Event | None:
    parse = _PARSERS.get(str(line["kind"]))
    what = None if parse is None else parse(line)
    return None if what is None else Event(at_s=_number(line["at_s"]), what=what)


def _trial(line: Mapping[str, Any]) -> Trial:
    return Trial(
        effort=str(line["effort"]),
        source=str(line["source"]),
        origin=str(line.get("origin", "")),
        tunables={str(k): int(v) for k, v in line["tunables"].items()},
        verdict=_sound(verdict_from(line["verdict"])),
    )


def _sound(verdict: Verdict) -> Verdict:
    """A verdict whose numbers can be drawn. Raises ValueError and TypeError."""
    if isinstance(verdict, Accepted):
        timing = verdict.timing
        if min(_number(timing.speedup), _number(timing.kernel_us), *map(_number, timing.baselines_us.values())) <= 0:
            raise ValueError("a time that is not positive")
        _number(timing.low), _number(timing.high)
    return verdict


def _planned(line: Mapping[str, Any]) -> Planned:
    plans = tuple(plan_from(plan) for plan in line["reply"])
    recalled = tuple(str(id) for id in line.get("recalled", ()))
    return Planned(call=str(line["call"]), parent=int(line["parent"]), plans=plans, recalled=recalled)


def _attempts(line: Mapping[str, Any]) -> Written:
    sources = tuple(str(s["no_source"]) if "no_source" in s else source_from_json(s) for s in line["reply"])
    return Written(call=str(line["call"]), sources=sources)


def _fix(line: Mapping[str, Any]) -> Written | None:
    return None if line["reply"] is None else Written(call=str(line["call"]), sources=(source_from_json(line["reply"]),))


def _lesson(line: Mapping[str, Any]) -> Learned | None:
    if line["reply"] is None:
        return None
    return Learned(experience=experience_from(line["reply"]), slow=_id(line.get("slow")), fast=_id(line.get("fast")))


def _stop(line: Mapping[str, Any]) -> Stopped:
    told = line.get("lesson")
    lesson = None if told is None else experience_from(told)
    return Stopped(reason=str(line["reason"]), winner=_id(line["winner"]), lesson=lesson)


_PARSERS: Mapping[str, Callable[[Mapping[str, Any]], What | None]] = {
    "verdict": _trial,
    "plans": _planned,
    "attempts": _attempts,
    "fix": _fix,
    "lesson": _lesson,
    "round": lambda e: RoundDone(round=int(e["round"]), best=int(e["best"]), speedup=_number(e["speedup"])),
    "stop": _stop,
    "begun": lambda e: Begun(),
}


def _call(line: Mapping[str, Any]) -> Call:
    request, reply = line["request"], line["reply"]
    usage = reply["usage"]
    return Call(
        at_s=_number(line["at_s"]),
        role=str(request["role"]),
        model=_named(str(request["model"]), str(reply["model"])),
        call=str(request["call"]),
        text=str(reply["text"]),
        problem=str(reply["problem"]),
        detail=str(reply["detail"]),
        prompt=_count(usage["prompt"]),
        cached=_count(usage["cached"]),
        completion=_count(usage["completion"]),
        estimated=bool(usage["estimated"]),
        usd=None if reply["usd"] is None else _number(reply["usd"]),
        seconds=_number(reply["seconds"]),
    )


def _named(asked: str, served: str) -> str:
    """The model that was asked for, and the server's name for it where that is another."""
    return asked if served in ("", asked) else f"{asked} (served as {served})"


def _id(value: Any) -> int | None:
    return None if value is None else int(value)


def _count(value: Any) -> int:
    return int(_number(value))


def _number(value: Any) -> float:
    number = float(value)
    if not abs(number) < _LARGEST:
        raise ValueError(f"{value!r} is no number of a run")
    return number
