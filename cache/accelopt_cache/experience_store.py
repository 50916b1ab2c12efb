"""The memory on disk: slow-fast pairs and their lessons, one immutable file each, shared by all runs and models.

A lesson is withdrawn while its fast kernel is out of service (`RecordStore.quarantine` says which kernels are): it stays
on disk for people to look at, and is not given to a search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from accelopt_cache import durable, layout
from accelopt_cache.files import Files
from accelopt_compile.errors import DamagedEntry, InvalidRecord
from accelopt_compile.records import Experience, canonical_json

EXPERIENCE_VERSION = 1

TEXT_LIMIT = 1 << 18
"""Characters of the longest lesson, title or piece of an origin; kernels are limited by the size of the file alone."""

ORIGIN_LIMIT = 256
"""Pairs of the largest origin."""


@dataclass(frozen=True, kw_only=True)
class StoredExperience:
    """An experience as it lies in the store. `created` is ISO 8601 UTC; `withdrawn` says why it is not given out, empty
    where it is."""

    id: str
    created: str
    experience: Experience
    withdrawn: str = ""


class ExperienceStore:
    """Experiences by content. The same experience found twice is stored once, with the origin it was first found with."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def add(self, experience: Experience) -> str:
        """Store an experience; its id. Raises InvalidRecord for one that could not be read back."""
        checked = _experience(asdict(experience), dict(experience.origin))
        data, sha = _content(checked), _digest(_content(checked))
        name = layout.experience(sha)
        if self.files.read(name, lambda found: _parse(found, sha)) is None:
            created = datetime.now(timezone.utc).isoformat(timespec="microseconds")
            document = {"version": EXPERIENCE_VERSION, "created": created, "experience": data}
            if checked.origin:  # beside the experience, not in it: where it was found does not make it another one
                origin = dict(checked.origin)
                document |= {"origin": origin, "origin_sha256": _digest(origin)}
            self.files.write(name, durable.encode(document))
        return sha

    def find(self, backend: str, family: str | None = None, arch: str | None = None) -> tuple[Experience, ...]:
        """The experiences of a backend, newest first; of one operator family and one architecture where given. Withdrawn
        ones are not among them."""
        return tuple(entry.experience for entry in self.entries(backend, family, arch) if not entry.withdrawn)

    def entries(
        self, backend: str | None = None, family: str | None = None, arch: str | None = None
    ) -> tuple[StoredExperience, ...]:
        """All experiences with their ids, newest first, withdrawn ones marked; only the given ones of each name."""
        withdrawn = _Withdrawn(self.files)
        found = []
        for sha in self.ids():
            item = self.files.read(layout.experience(sha), lambda data, sha=sha: _parse(data, sha))  # type: ignore[misc]
            if item is not None and _matches(item[1], backend, family, arch):
                why = withdrawn.reason(item[1])
                found.append(StoredExperience(id=sha, created=item[0], experience=item[1], withdrawn=why))
        return tuple(sorted(found, key=lambda entry: (entry.created, entry.id), reverse=True))

    def ids(self) -> Iterator[str]:
        """The id of every experience, read or not, by listing alone."""
        stems = (name.removesuffix(".json") for name in self.files.names(layout.MEMORY))
        return (stem for stem in stems if layout.is_sha256(stem))

    def remove(self, sha: str) -> bool:
        """Delete an experience; True when there was one and it is gone."""
        return self.files.remove(layout.experience(sha))


class _Withdrawn:
    """Which kernels are out of service, by listing alone; the mark is only read for one that an experience has."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._sources = {name.removesuffix(".json") for name in files.names(layout.WITHDRAWN)}

    def reason(self, experience: Experience) -> str:
        """Why the experience is withdrawn, or nothing. Its own text is looked up beside the digest it names: an origin may
        be missing, and proves nothing."""
        if not self._sources:
            return ""
        named = {durable.sha256(experience.fast.encode())} if experience.fast else set()
        hits = sorted(self._sources & (named | {experience.origin.get("source", "")}))
        if not hits:
            return ""
        try:  # a damaged mark still marks: it is not quarantined
            told = durable.parse_object(self._files.load(layout.withdrawn(hits[0])) or b"{}")
        except DamagedEntry:
            told = {}
        return str(told.get("reason") or "its fast kernel is out of service")


def _matches(experience: Experience, backend: str | None, family: str | None, arch: str | None) -> bool:
    wanted = ((backend, experience.backend), (family, experience.family), (arch, experience.arch))
    return all(given in (None, found) for given, found in wanted)


def _content(experience: Experience) -> dict[str, Any]:
    """What an experience is named by: everything but its origin; an empty title and the basis "measured" are left out, as
    it was before there were titles and estimates."""
    data = asdict(experience)
    del data["origin"]
    if not experience.title:
        del data["title"]
    if experience.basis == "measured":
        del data["basis"]
    return data


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
    origin = value.get("origin", {})
    if not isinstance(origin, dict) or (origin and _digest(origin) != value.get("origin_sha256")):
        raise DamagedEntry("the digest of its origin is wrong")
    return value["created"], _experience(value["experience"], origin)


def _experience(data: Mapping[str, Any], origin: Mapping[str, Any]) -> Experience:
    """The experience in `data`, checked field by field. Raises InvalidRecord."""
    try:
        speedup = data["speedup"]
        if not _number(speedup) or speedup <= 0 or not isinstance(data["helped"], bool):
            raise InvalidRecord(f"not an experience: speedup {str(speedup)[:40]!r}, helped {str(data['helped'])[:40]!r}")
        if data.get("basis", "measured") not in ("measured", "estimated"):
            raise InvalidRecord(f"not an experience: its basis is {str(data['basis'])[:40]!r}")
        if len(origin) > ORIGIN_LIMIT:
            raise InvalidRecord(f"not an experience: an origin of {len(origin)} pairs, more than {ORIGIN_LIMIT}")
        return Experience(
            **{name: _short(data[name]) for name in ("backend", "family", "arch", "workload", "lesson")},
            title=_short(data.get("title", "")),
            slow=_text(data.get("slow", "")),
            fast=_text(data.get("fast", "")),
            change=_texts(data["change"]),
            helped=data["helped"],
            speedup=float(speedup),
            structure=_texts(data.get("structure", {})),
            tunables={_short(k): _integer(v) for k, v in data.get("tunables", {}).items()},
            origin=_texts(origin),
            basis=data.get("basis", "measured"),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as failure:
        raise InvalidRecord(f"not an experience: {type(failure).__name__} {str(failure)[:200]}") from failure


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{str(value)[:80]!r} is not an integer")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:80]!r} is not text")
    value.encode()  # half a surrogate pair is no text: UnicodeEncodeError is a ValueError
    return value


def _short(value: Any) -> str:
    if len(_text(value)) > TEXT_LIMIT:
        raise ValueError(f"a text of {len(value)} characters, more than {TEXT_LIMIT}")
    return str(value)


def _texts(data: Mapping[Any, Any]) -> dict[str, str]:
    return {_short(k): _short(v) for k, v in data.items()}
