"""The memory on disk: slow-fast pairs and their lessons, one immutable file each, shared by all runs and models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from accelopt_cache import durable, layout
from accelopt_cache.files import Files
from accelopt_compile.errors import DamagedEntry, InvalidRecord
from accelopt_compile.records import Experience, canonical_json

EXPERIENCE_VERSION = 1


class ExperienceStore:
    """Experiences by content. The same experience found twice is stored once."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def add(self, experience: Experience) -> str:
        """Store an experience; its id. Raises InvalidRecord for one that could not be read back."""
        data = asdict(_experience(asdict(experience)))
        sha = _digest(data)
        name = layout.experience(sha)
        if self.files.read(name, lambda found: _parse(found, sha)) is None:
            created = datetime.now(timezone.utc).isoformat(timespec="microseconds")
            self.files.write(name, durable.encode({"version": EXPERIENCE_VERSION, "created": created, "experience": data}))
        return sha

    def find(self, backend: str, family: str | None = None, arch: str | None = None) -> tuple[Experience, ...]:
        """The experiences of a backend, newest first; of one operator family and one architecture where given."""
        found = []
        for name in self.files.names(layout.MEMORY):
            sha = name.removesuffix(".json")
            item = self.files.read(f"{layout.MEMORY}/{name}", lambda data, sha=sha: _parse(data, sha))  # type: ignore[misc]
            if item is not None and _matches(item[1], backend, family, arch):
                found.append((*item[:1], sha, item[1]))
        found.sort(key=lambda entry: entry[:2], reverse=True)
        return tuple(experience for _, _, experience in found)


def _matches(experience: Experience, backend: str, family: str | None, arch: str | None) -> bool:
    return experience.backend == backend and family in (None, experience.family) and arch in (None, experience.arch)


def _digest(data: Mapping[str, Any]) -> str:
    try:
        return durable.sha256(canonical_json(data).encode())
    except (TypeError, ValueError) as failure:
        raise InvalidRecord(f"not an experience: {failure}") from failure


def _parse(data: bytes, sha: str) -> tuple[str, Experience]:
    """(created, experience) of a file. Raises DamagedEntry or InvalidRecord."""
    value = durable.parse_object(data)
    if value.get("version") != EXPERIENCE_VERSION:
        raise DamagedEntry(f"its version is {value.get('version')!r}, this version reads {EXPERIENCE_VERSION}")
    if not isinstance(value.get("created"), str) or not isinstance(value.get("experience"), dict):
        raise DamagedEntry("it holds no experience")
    if _digest(value["experience"]) != sha:
        raise DamagedEntry("its digest is not its name")
    return value["created"], _experience(value["experience"])


def _experience(data: Mapping[str, Any]) -> Experience:
    """The experience in `data`, checked field by field. Raises InvalidRecord."""
    try:
        speedup = float(data["speedup"])
        if not math.isfinite(speedup) or speedup <= 0 or not isinstance(data["helped"], bool):
            raise InvalidRecord(f"not an experience: speedup {data['speedup']!r}, helped {data['helped']!r}")
        return Experience(
            **{name: _text(data[name]) for name in ("backend", "family", "arch", "workload", "lesson")},
            slow=_text(data.get("slow", "")),
            fast=_text(data.get("fast", "")),
            change={str(k): str(v) for k, v in data["change"].items()},
            helped=data["helped"],
            speedup=speedup,
            structure={str(k): str(v) for k, v in data.get("structure", {}).items()},
            tunables={str(k): int(v) for k, v in data.get("tunables", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as failure:
        raise InvalidRecord(f"not an experience: {type(failure).__name__} {failure}") from failure


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
