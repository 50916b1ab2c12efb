"""Which records lie under a root, what is in each, and what of it is not what its name says: listings and reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from accelopt_cache import durable, layout, record_codec
from accelopt_cache.files import Files, UnreadableEntry
from accelopt_compile.errors import DamagedEntry, InvalidRecord
from accelopt_compile.records import Record, Workload


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A file that is not what its name says. `part` is empty for the record itself."""

    file: str
    reason: str
    part: str = ""

    def __str__(self) -> str:
        return f"its {self.part} {self.file}: {self.reason}" if self.part else self.reason


_DAMAGE = (DamagedEntry, InvalidRecord, RecursionError, OverflowError)


def _said(failure: BaseException) -> str:
    return str(failure) or type(failure).__name__


class RecordFiles:
    """The files of all records. Reads never raise for the state of the disk."""

    def __init__(self, files: Files) -> None:
        self.files = files

    # ------------------------------------------------------------ listings

    def walk(self, target: str | None = None) -> Iterator[tuple[str, str, str, str]]:
        """(workload, target, record id, outcome) of every record by listing alone, in a fixed order."""
        for shard in self.files.names(layout.RECORDS):
            for workload in self.files.names(f"{layout.RECORDS}/{shard}"):
                targets = [target] if target is not None else self.files.names(f"{layout.RECORDS}/{shard}/{workload}")
                for one in targets:
                    for record_id, outcome in self._listing(workload, one):
                        yield workload, one, record_id, outcome

    def places(self, record_id: str) -> list[str]:
        """Names of the files that hold a record."""
        return [layout.record(w, t, i, outcome) for w, t, i, outcome in self.walk() if i == record_id]

    def _targets(self, workload_digest: str) -> list[str]:
        try:
            return self.files.names(f"{layout.RECORDS}/{layout.safe(workload_digest)[:2]}/{workload_digest}")
        except InvalidRecord:
            return []

    def _listing(self, workload: str, target: str) -> list[tuple[str, str]]:
        try:
            names = self.files.names(layout.record_dir(workload, target))
        except InvalidRecord:
            return []
        found = [split for split in map(layout.split_record, names) if split is not None]
        if not found:
            return []
        buried = set(self.files.names(layout.TOMBSTONES))
        return [split for split in found if f"{split[0]}.json" not in buried]

    # ------------------------------------------------------------ records

    def _read_all(self, workload: str, targets: list[str]) -> list[tuple[str, Record]]:
        found = []
        for target in targets:
            for record_id, outcome in self._listing(workload, target):
                record = self._read(workload, target, record_id, outcome)
                if record is not None:
                    found.append((record_id, record))
        return found

    def _read(self, workload: str, target: str, record_id: str, outcome: str) -> Record | None:
        name = layout.record(workload, target, record_id, outcome)
        return self.files.read(name, lambda data: self._decode(data, workload, target, record_id, outcome))

    def peek(self, workload: str, target: str, record_id: str, outcome: str) -> Record | None:
        """A record as it lies there; None when it is not readable. Changes nothing and warns of nothing."""
        try:
            data = self.files.load(layout.record(workload, target, record_id, outcome))
            return None if data is None else self._decode(data, workload, target, record_id, outcome, peek=True)
        except (*_DAMAGE, UnreadableEntry):
            return None

    def _decode(self, data: bytes, workload: str, target: str, record_id: str, outcome: str, peek: bool = False) -> Record:
        value = record_codec.parse(data, record_id)
        sha = record_codec.source_digest(value)
        text = None if sha is None else self._source(sha, peek)
        return record_codec.decode(value, text, workload=workload, target=target, outcome=outcome)

    def _source(self, sha: str, peek: bool) -> str:
        """The kernel text of a blob. Raises DamagedEntry naming it, and UnreadableEntry; unless `peek`, a damaged blob is
        quarantined."""
        name = layout.blob(sha)
        try:
            return self._blob(sha)
        except DamagedEntry as failure:
            if not peek:
                self.files.quarantine(name, str(failure), quiet=True)
            raise DamagedEntry(f"its source {name}: {failure}") from failure

    def _blob(self, sha: str) -> str:
        """The text of a blob. Raises DamagedEntry, UnreadableEntry."""
        data = self.files.load(layout.blob(sha))
        if data is None and self.files.lies_there(layout.blob(sha)):
            raise UnreadableEntry("it cannot be read")
        if data is None:
            raise DamagedEntry("it is missing")
        if durable.sha256(data) != sha:
            raise DamagedEntry("its digest is not its name")
        try:
            return data.decode()
        except UnicodeDecodeError as failure:
            raise DamagedEntry("it is no UTF-8 text") from failure

    # ------------------------------------------------------------ workloads

    def workload(self, digest: str) -> Workload | None:
        """The workload with this digest, or None."""
        try:
            name = layout.workload(digest)
        except InvalidRecord:
            return None
        return self.files.read(name, lambda data: _parse_workload(data, digest))

    def _held_workload(self, digest: str) -> None:
        """Raises DamagedEntry or InvalidRecord for a stored workload that is not what its name says."""
        text = self.files.load(layout.workload(digest))
        if text is not None:
            _parse_workload(text, digest)

    # ------------------------------------------------------------ faults

    def verify_entry(self, record_id: str) -> str | None:
        """None when record, source and workload are what their digests say, else what is wrong. Changes nothing."""
        faults = self.faults(record_id)
        if faults:
            return f"{record_id}: {faults[0]}"
        return None if self.places(record_id) else f"{record_id}: not in the store"

    def faults(self, record_id: str) -> list[Fault]:
        """Each file of a record that is not what its name says: its own, its source's, its workload's. Changes nothing."""
        return [fault for place in self.places(record_id) for fault in self._faults(place, record_id)]

    def _faults(self, place: str, record_id: str) -> list[Fault]:
        *_, workload, target, name = place.split("/")
        split = layout.split_record(name)
        found = []
        try:
            data = self.files.load(place)
            if split is None or data is None:
                return [Fault(file=place, reason="not readable")]
            value = record_codec.parse(data, record_id)
            sha = record_codec.source_digest(value)
        except _DAMAGE as failure:
            return [Fault(file=place, reason=_said(failure))]
        for part, file, check in (
            ("source", "" if sha is None else layout.blob(sha), lambda: sha is None or self._blob(sha)),
            ("workload", layout.workload(workload), lambda: self._held_workload(workload)),
        ):
            try:
                check()
            except (*_DAMAGE, UnreadableEntry) as failure:
                found.append(Fault(file=file, reason=_said(failure), part=part))
        if any(fault.part == "source" for fault in found):
            return found
        try:
            self._decode(data, workload, target, *split, peek=True)
        except _DAMAGE as failure:
            found.insert(0, Fault(file=place, reason=_said(failure)))
        return found


def _parse_workload(data: bytes, digest: str) -> Workload:
    if durable.sha256(data) != digest:
        raise DamagedEntry("it is empty" if not data else "its digest is not its name")
    return Workload.from_json(durable.parse_object(data))
