"""A record as a file: its JSON with the kernel's text replaced by the text's digest, named by the sha256 of its bytes."""

from __future__ import annotations

import math
from typing import Any

from accelopt_cache import durable, layout
from accelopt_compile.errors import DamagedEntry, InvalidRecord
from accelopt_compile.records import Record

RECORD_VERSION = 1
"""Version of the record JSON; a reader ignores fields it does not know and refuses a newer version."""


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """(bytes of the record file, bytes of its source blob or None). Raises InvalidRecord."""
    try:
        data = _checked(durable.plain(record.to_json())).to_json()
        blob = record.source.text.encode() if record.source is not None else None
    except (TypeError, ValueError, RecursionError, OverflowError) as failure:
        raise InvalidRecord(f"not a record: {failure}") from failure
    if blob is not None:
        if len(blob) > durable.READ_LIMIT:
            raise InvalidRecord(f"a kernel source of {len(blob)} bytes, more than {durable.READ_LIMIT}")
        del data["source"]["text"]
        data["source"]["sha256"] = durable.sha256(blob)
    return durable.encode({"record_version": RECORD_VERSION, **data}), blob


def record_id(record: Record) -> str:
    """The name the store gives this record: the sha256 of its file. Raises InvalidRecord."""
    return durable.sha256(encode(record)[0])


def parse(data: bytes, record_id: str) -> dict[str, Any]:
    """The record JSON of a file (still without its source text). Raises DamagedEntry when bytes and name disagree."""
    if durable.sha256(data) != record_id:
        raise DamagedEntry("it is empty" if not data else "its digest is not its name")
    value = durable.parse_object(data)
    version = value.get("record_version")
    if version != RECORD_VERSION:
        raise DamagedEntry(f"record_version is {version!r}, this version reads {RECORD_VERSION}")
    return value


def source_digest(data: dict[str, Any]) -> str | None:
    """The digest of the source a record JSON names, or None when it has none. Raises DamagedEntry."""
    source = data.get("source")
    if source is None:
        return None
    sha = source.get("sha256") if isinstance(source, dict) else None
    if not isinstance(sha, str) or not layout.is_sha256(sha):
        raise DamagedEntry("its source has no digest")
    return sha


def decode(data: dict[str, Any], text: str | None, *, workload: str, target: str, outcome: str) -> Record:
    """The record, its source text filled in. Raises DamagedEntry when it speaks of another place, InvalidRecord else."""
    if text is not None:
        data = {**data, "source": {**data["source"], "text": text}}
    record = _checked(data)
    for name, found, expected in (
        ("workload", record.workload, workload),
        ("target", record.target, target),
        ("outcome", record.outcome, outcome),
    ):
        if found != expected:
            raise DamagedEntry(f"its {name} is {found!r}, its place says {expected!r}")
    return record


def _checked(data: Any) -> Record:
    """`Record.from_json`, and the numbers that choices rest on."""
    record = Record.from_json(data)
    for what, values, low, high in (
        ("binding", data["binding"], 0, 1 << 62),
        ("tunables", data.get("tunables", {}), -(1 << 31), 1 << 31),
    ):
        for name, value in values.items():
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value < high or "\0" in name:
                raise InvalidRecord(f"{what} {name[:40]!r} is {str(value)[:40]}, not an integer from {low} to {high}")
    if record.source is not None:
        for name, value in record.tunables.items():
            if value not in record.source.tunables.get(name, ()):
                raise InvalidRecord(f"tunable {name[:40]}={value}, which its source does not declare")
    timing = record.timing
    if timing is not None:
        numbers = [timing.kernel_us, timing.speedup, timing.low, timing.high, timing.noise, timing.blocks, timing.threads]
        if not isinstance(timing.baselines_us, dict):
            raise InvalidRecord("baselines_us is not a mapping")
        numbers += timing.baselines_us.values()
        if not all(_number(n) for n in numbers):
            raise InvalidRecord("a timing that is not a finite number")
        if timing.kernel_us <= 0:
            raise InvalidRecord(f"a kernel time of {timing.kernel_us} us")
    if record.errors is not None and not (_number(record.errors.worst_share) and _number(record.errors.cases)):
        raise InvalidRecord("errors that are not finite numbers")
    return record


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
