"""Records, their sources and their workloads: immutable files named by their content, chosen among at read time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

from accelopt_cache import durable, layout, record_codec
from accelopt_cache.record_files import RecordFiles
from accelopt_cache.reuse import choose
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records import Binding, Record, Workload


class RecordStore(RecordFiles):
    """What was found for each (workload, target): what is put, what is chosen to serve, what is taken out of service."""

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
        admit: Callable[[Record], bool] = lambda _: True,
    ) -> Record | None:
        """The winner to serve at `binding` (rules: `reuse.choose`), or None. With an `environment`, the caller asks
        `reuse(record.environment, environment)` what must be done before it is launched. `admit` is asked of the best, then of
        the next: one that cannot be launched here does not hide the others."""
        found = self._read_all(workload_digest, [target])
        while chosen := choose(found, binding, environment=environment, max_distance=max_distance):
            if admit(chosen[1]):
                break
            found.remove(chosen)
        if chosen is None:
            return None
        record_id, record = chosen
        self._stamp(record_id, record)
        return record

    def stamp(self, record: Record) -> None:
        """Note that a record has decided something, so that pruning keeps it."""
        self._stamp(durable.sha256(record_codec.encode(record)[0]), record)

    def _stamp(self, record_id: str, record: Record) -> None:
        self.files.touch(layout.record(record.workload, record.target, record_id, record.outcome))

    def iter_records(self) -> Iterator[tuple[str, Record]]:
        """Every readable record as (id, record), all workloads and targets."""
        for workload, target, record_id, outcome in self.walk():
            record = self._read(workload, target, record_id, outcome)
            if record is not None:
                yield record_id, record

    def keyset(self, target: str) -> str:
        """A digest over the names of all winners of `target`: it changes exactly when a kernel comes or goes. Only lists
        directories; belongs in the keys of compiled graphs."""
        names = [f"{w}/{i}" for w, _, i, outcome in self.walk(target) if outcome == "winner"]
        return durable.sha256("\n".join(names).encode())

    def snapshot_token(self) -> str:
        """A digest over the names of all records, baselines included: equal tokens mean nothing new to read."""
        return durable.sha256("\n".join("/".join(entry) for entry in self.walk()).encode())

    # ------------------------------------------------------------ out of service

    def remove(self, record_id: str) -> bool:
        """Delete a record and leave a tombstone, so that a copy that comes back is not served; True when there was one and no
        later process finds it."""
        places = self.places(record_id)
        buried = bool(places) and self.files.write(layout.tombstone(record_id), durable.encode({"removed": record_id}))
        removed = [self.files.remove(place) for place in places]
        return bool(places) and (buried or all(removed))

    def quarantine(self, record_id_or_path: str | Path, reason: str, *, word: str = "failed", diagnosis: str = "") -> bool:
        """Take a record (by id), with a source or workload that is not what its name says, or any file of the store (by path)
        out of service; True when there was one and later processes find none. `word` says in the file's name why, a note beside
        it says the rest. The kernel of a readable record is marked, so that nothing learned from it is given out; a damaged one
        says nothing of its kernel."""
        names = self.places(str(record_id_or_path)) or self._inside(record_id_or_path)
        also = [f for f in self.faults(str(record_id_or_path)) if f.file not in names and self.files.exists(f.file)]
        moved = []
        for name in names:
            self._withdraw(name, reason)
            moved.append(self.files.quarantine(name, reason, word=word, diagnosis=diagnosis))
        for fault in also:
            self.files.quarantine(fault.file, fault.reason, quiet=True)
        return bool(moved) and all(moved)

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

    def _inside(self, path: str | Path) -> list[str]:
        """The store's name for a path given absolute, or relative to the root; empty for anything outside or absent."""
        root = self.files.root.path
        if root is None:
            return []
        name = os.path.relpath(os.path.join(root, path), root)
        return [name] if name.startswith("v1/") and ".." not in name.split("/") and self.files.exists(name) else []
