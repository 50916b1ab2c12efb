"""Records, their sources and their workloads: immutable files named by their content, chosen among at read time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from accelopt_cache import durable, layout, record_codec
from accelopt_cache.files import Files
from accelopt_cache.reuse import choose
from accelopt_compile.errors import DamagedEntry, InvalidRecord
from accelopt_compile.records import Binding, Record, Workload

USE_STAMP_S = 3600.0
"""A served record is stamped as used at most this often."""


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


class RecordStore:
    """What was found for each (workload, target). Reads never raise for the state of the disk."""

    def __init__(self, files: Files) -> None:
        self.files = files

    # ------------------------------------------------------------ records

    def put(self, record: Record, workload: Workload | None = None) -> str:
        """Store a record, its source and its workload; the record's id. A reader sees all of it or nothing. What the disk
        does not take stays in this process. Raises InvalidRecord for a record that could not be read back."""
        data, source = record_codec.encode(record)
        record_id = durable.sha256(data)
        name = layout.record(record.workload, record.target, record_id, record.outcome)
        on_disk = True
        if workload is not None:
            text = workload.to_text().encode()
            if durable.sha256(text) != record.workload:
                raise InvalidRecord(f"the record is of workload {record.workload}, the workload given is {workload.digest}")
            on_disk = self.files.write(layout.workload(record.workload), text)
        if source is not None:
            on_disk = self.files.write(layout.blob(durable.sha256(source)), source) and on_disk
        self.files.remove(layout.tombstone(record_id))
        if source is not None and record.rung == "device":  # a kernel is put once it is proven; its lessons count again
            self.files.remove(layout.withdrawn(durable.sha256(source)))
        if on_disk:
            self.files.write(name, data)
        else:  # others must not see a record without its source
            self.files.hold(name, data)
        return record_id

    def records(self, workload_digest: str, target: str | None = None) -> tuple[Record, ...]:
        """Every readable record of a workload, oldest first; of one target, or of all."""
        found = self._read_all(workload_digest, [target] if target is not None else self._targets(workload_digest))
        return tuple(record for _, record in sorted(found, key=lambda item: (item[1].created, item[0])))

    def winners(self, workload_digest: str, target: str) -> tuple[Record, ...]:
        """The records that hold a kernel, oldest first."""
        return tuple(r for r in self.records(workload_digest, target) if r.outcome == "winner")

    def candidates(self, workload_digest: str, target: str) -> tuple[tuple[str, Record], ...]:
        """(id, record) of the kernels that wait for the target's device, oldest first. None is ever served."""
        found = [(i, r) for i, r in self._read_all(workload_digest, [target]) if r.outcome == "candidate"]
        return tuple(sorted(found, key=lambda item: (item[1].created, item[0])))

    def best(
        self,
        workload_digest: str,
        target: str,
        binding: Binding,
        *,
        environment: Mapping[str, str] | None = None,
        max_distance: float = 2.0,
    ) -> Record | None:
        """The winner to serve at `binding` (rules: `reuse.choose`), or None. With an `environment`, the caller asks
        `reuse(record.environment, environment)` what must be done before it is launched."""
        chosen = choose(self._read_all(workload_digest, [target]), binding, environment=environment, max_distance=max_distance)
        if chosen is None:
            return None
        record_id, record = chosen
        self.files.touch(layout.record(workload_digest, target, record_id, record.outcome), at_most_every_s=USE_STAMP_S)
        return record

    def iter_records(self) -> Iterator[tuple[str, Record]]:
        """Every readable record as (id, record), all workloads and targets."""
        for workload, target, record_id, outcome in self.walk():
            record = self._read(workload, target, record_id, outcome)
            if record is not None:
                yield record_id, record

    def remove(self, record_id: str) -> bool:
        """Delete a record and leave a tombstone, so that a copy that comes back is not served; True when there was one."""
        places = self.places(record_id)
        if places:
            self.files.write(layout.tombstone(record_id), durable.encode({"removed": record_id}))
        removed = [self.files.remove(place) for place in places]
        return any(removed)

    def quarantine(self, record_id_or_path: str | Path, reason: str, *, word: str = "failed", diagnosis: str = "") -> bool:
        """Take a record (by id), with a source or workload that is not what its name says, or any file of the store (by path)
        out of service; True when there was one. `word` says in the file's name why, a note beside it says the rest. The kernel
        of a readable record is marked, so that nothing learned from it is given out; a damaged one says nothing of its kernel."""
        names = self.places(str(record_id_or_path)) or self._inside(record_id_or_path)
        also = [f for f in self.faults(str(record_id_or_path)) if f.file not in names and self.files.exists(f.file)]
        for name in names:
            self._withdraw(name, reason)
            self.files.quarantine(name, reason, word=word, diagnosis=diagnosis)
        for fault in also:
            self.files.quarantine(fault.file, fault.reason, quiet=True)
        return bool(names)

    def _withdraw(self, name: str, reason: str) -> None:
        place = name.removeprefix(layout.RECORDS + "/").split("/")
        split = layout.split_record(place[-1])
        if len(place) != 4 or split is None:
            return  # not a record
        record = self.peek(place[1], place[2], *split)
        if record is not None and record.source is not None:
            mark = {"reason": reason, "record": split[0], "since": datetime.now(timezone.utc).isoformat(timespec="seconds")}
            self.files.write(layout.withdrawn(record.source.digest), durable.encode(mark))

    def quarantined(self, start: str) -> list[tuple[Path, str]]:
        """(place, reason) of each quarantined file whose record, source or workload has an id with this start."""
        return self.files.quarantined(start)

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
            except _DAMAGE as failure:
                found.append(Fault(file=file, reason=_said(failure), part=part))
        if any(fault.part == "source" for fault in found):
            return found
        try:
            self._decode(data, workload, target, *split, peek=True)
        except _DAMAGE as failure:
            found.insert(0, Fault(file=place, reason=_said(failure)))
        return found

    def _held_workload(self, digest: str) -> None:
        """Raises DamagedEntry or InvalidRecord for a stored workload that is not what its name says."""
        text = self.files.load(layout.workload(digest))
        if text is not None:
            _parse_workload(text, digest)

    # ------------------------------------------------------------ workloads, sources

    def workload(self, digest: str) -> Workload | None:
        """The workload with this digest, or None."""
        try:
            name = layout.workload(digest)
        except InvalidRecord:
            return None
        return self.files.read(name, lambda data: _parse_workload(data, digest))

    # ------------------------------------------------------------ listings

    def keyset(self, target: str) -> str:
        """A digest over the names of all winners of `target`: it changes exactly when a kernel comes or goes. Only lists
        directories; belongs in the keys of compiled graphs."""
        names = [f"{w}/{i}" for w, _, i, outcome in self.walk(target) if outcome == "winner"]
        return durable.sha256("\n".join(names).encode())

    def snapshot_token(self) -> str:
        """A digest over the names of all records, baselines included: equal tokens mean nothing new to read."""
        return durable.sha256("\n".join("/".join(entry) for entry in self.walk()).encode())

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
        except _DAMAGE:
            return None

    def _decode(self, data: bytes, workload: str, target: str, record_id: str, outcome: str, peek: bool = False) -> Record:
        value = record_codec.parse(data, record_id)
        sha = record_codec.source_digest(value)
        text = None if sha is None else self._source(sha, peek)
        return record_codec.decode(value, text, workload=workload, target=target, outcome=outcome)

    def _source(self, sha: str, peek: bool) -> str:
        """The kernel text of a blob. Raises DamagedEntry naming it; unless `peek`, a damaged blob is quarantined."""
        name = layout.blob(sha)
        try:
            return self._blob(sha)
        except DamagedEntry as failure:
            if not peek:
                self.files.quarantine(name, str(failure), quiet=True)
            raise DamagedEntry(f"its source {name}: {failure}") from failure

    def _blob(self, sha: str) -> str:
        """The text of a blob. Raises DamagedEntry."""
        data = self.files.load(layout.blob(sha))
        if data is None:
            raise DamagedEntry("it is missing")
        if durable.sha256(data) != sha:
            raise DamagedEntry("its digest is not its name")
        try:
            return data.decode()
        except UnicodeDecodeError as failure:
            raise DamagedEntry("it is no UTF-8 text") from failure

    def _inside(self, path: str | Path) -> list[str]:
        """The store's name for a path given absolute, or relative to the root; empty for anything outside or absent."""
        root = self.files.root.path
        if root is None:
            return []
        name = os.path.relpath(os.path.join(root, path), root)
        return [name] if name.startswith("v1/") and ".." not in name.split("/") and self.files.exists(name) else []


def _parse_workload(data: bytes, digest: str) -> Workload:
    if durable.sha256(data) != digest:
        raise DamagedEntry("it is empty" if not data else "its digest is not its name")
    return Workload.from_json(durable.parse_object(data))
