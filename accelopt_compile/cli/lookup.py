"""Finding a record by a few characters."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelopt_cache.layout import QUARANTINE
from accelopt_compile.errors import AccelOptError, DamagedEntry, UsageError
from accelopt_compile.records import Record, Workload
from accelopt_compile.wording import plural

if TYPE_CHECKING:
    from accelopt_cache.kernel_store import Store
    from accelopt_cache.layout import Root
    from accelopt_cache.record_files import Fault


def open_store(*, readonly: bool = True) -> Store:
    """The store of the environment. One that is not there is not created by looking, nor by taking away. Raises AccelOptError
    for one that is to be changed and cannot be."""
    from accelopt_cache.kernel_store import Store

    seen = Store.open(readonly=True)
    return seen if readonly or not_there(seen) else writable_store()


def place_of(root: Root) -> tuple[Path, str]:
    """(the folder that a store lies in or would be made in, why nothing can be written there or ""), found out without making
    one."""
    place = root.path or next(folder for folder in Path(root.named).absolute().parents if folder.is_dir())
    return place, root.why or ("" if os.access(place, os.W_OK | os.X_OK) else "cannot be written")


def can_be_written() -> bool:
    """Whether there is a store, and it takes what is written."""
    from accelopt_cache import layout

    root = layout.examine(None, readonly=True)
    return root.path is not None and not place_of(root)[1]


def writable_store() -> Store:
    """The store of the environment, made where it is not there. Raises AccelOptError where it cannot be written: what a command
    is for would be lost with its process."""
    from accelopt_cache.kernel_store import Store

    store = Store.open()
    if not store.files.root.writable:
        raise unchanged(store.files.root.named, store.files.root.why)
    return store


def require_store() -> None:
    """Raises AccelOptError where a search could keep nothing. Makes no store; above one that others can write lies our own."""
    from accelopt_cache import layout

    root = layout.examine(None, readonly=True)
    if not root.foreign and (why := place_of(root)[1]):
        raise unchanged(root.named, why)


def unchanged(place: str, why: str) -> AccelOptError:
    """The error of a command that could not write what it is for."""
    return AccelOptError(f"nothing was done: the store {place} {why}; name one that you can write with --cache-dir")


def check_gone(store: Store, chosen: Sequence[str], removed: Sequence[str]) -> None:
    """Raises AccelOptError for what was to go and is still there."""
    if left := [one for one in chosen if one not in removed]:
        some = ", ".join(one[:12] for one in left[:4])
        raise AccelOptError(
            f"{len(left)} of {len(chosen)} could not be removed from {store.files.root.named} ({some}): a folder or file there "
            "cannot be written; `ls -l` shows whose it is"
        )


def not_there(store: Store) -> bool:
    """Whether nothing is where the store was looked for."""
    return store.root is None and not store.why


def operators(workload: Workload | None) -> str:
    """The operators of a region, in order, with counts: "mul x3, add, rsqrt"; "?" where the workload is not stored."""
    if workload is None:
        return "?"
    counts = Counter(node.op.split(".")[1] for node in workload.nodes)
    return ", ".join(f"{name} x{n}" if n > 1 else name for name, n in counts.items())


def empty(store: Store) -> str:
    """What to say of a store without records: where it is, or that there is none, and how it fills."""
    what = "store at" if not_there(store) else "records in"
    return (
        f"no {what} {store.files.root.named}; it fills when a model is compiled with "
        'torch.compile(model, backend="accelopt"), by `accelopt prewarm MODULE:FACTORY`, or by `accelopt demo`'
    )


def none_such(store: Store, what: str, known: int) -> UsageError:
    """The error for a name that nothing in the store has."""
    place = store.files.root.named
    return UsageError(
        f"{what} among the {plural(known, 'record')} in {place}; `accelopt cache ls` lists {'it' if known == 1 else 'them'}"
        if known
        else f"{what}: {empty(store)}"
    )


def out_of_service(store: Store, name: str) -> None:
    """Raises DamagedEntry where quarantine holds a record with this id or start of one."""
    if len(name) < 4 or any(c not in "0123456789abcdef" for c in name.lower()):
        return
    held = store.quarantined(name.lower())
    if held:
        place, reason = held[0]
        raise DamagedEntry(
            f"record {place.name.partition('.')[0][:12]} is out of service: {reason or 'its note is lost'}; it lies in {place}. "
            "Next: compile the model once in mode tune, or `accelopt prewarm MODULE:FACTORY`, and its region is searched anew"
        )


def damaged(store: Store, record_id: str, faults: Sequence[Fault]) -> DamagedEntry:
    """The error for a record that is not what its name says: which file, why, and what takes it out of service."""
    where = "; ".join(f"{store.files.path(fault.file) or fault.file}: {fault.reason}" for fault in faults)
    return DamagedEntry(
        f"record {record_id[:12]} is damaged: {where}. It is not used. Next: "
        f"`accelopt cache verify {record_id[:12]} --quarantine` moves it to {store.files.path(QUARANTINE)}, and the next "
        "compile in mode tune searches its region anew"
    )


def full_ids(store: Store, prefixes: Sequence[str]) -> list[str]:
    """The ids of records that start with these characters, each exactly one. Raises UsageError; DamagedEntry for one in
    quarantine."""
    known = sorted({record_id for _, _, record_id, _ in store.walk()})
    for prefix in prefixes:
        if not _starting(known, prefix):
            out_of_service(store, prefix)
            raise none_such(store, f"no record {prefix!r}", len(known))
    return matching(known, prefixes, noun="record", where=store.files.root.named, ls="cache ls")


def matching(known: Iterable[str], prefixes: Sequence[str], *, noun: str, where: str, ls: str) -> list[str]:
    """The ids that start with these characters, each exactly one of the known. Raises UsageError, which names `noun`, `where`
    was looked and the command that lists them."""
    ids = sorted(set(known))
    found = []
    for prefix in prefixes:
        hits = _starting(ids, prefix)
        if not hits:
            raise UsageError(f"no {noun} {prefix!r} among the {plural(len(ids), noun)} in {where}; `accelopt {ls}` lists them")
        if len(hits) > 1:
            some = ", ".join(hit[:12] for hit in hits[:4])
            raise UsageError(f"{prefix!r} is the start of {plural(len(hits), noun)} ({some}); give more characters")
        found.append(hits[0])
    return found


def _starting(ids: Sequence[str], prefix: str) -> list[str]:
    return [one for one in ids if prefix and one.startswith(prefix.lower())]


def find_record(store: Store, prefix: str) -> tuple[str, Record]:
    """The record with this id or start of an id, or the only one of the workload that it is an id of. Raises UsageError when
    there is none, DamagedEntry when it is damaged."""
    (wanted,) = full_ids(store, [_only_record(store, prefix) or prefix])
    if faults := store.faults(wanted):
        raise damaged(store, wanted, faults)
    for workload, target, record_id, outcome in store.walk():
        if record_id == wanted and (record := store.peek(workload, target, record_id, outcome)) is not None:
            return record_id, record
    raise DamagedEntry(f"record {wanted[:12]} was taken away while it was read; `accelopt cache ls` lists what is there")


def _only_record(store: Store, prefix: str) -> str | None:
    """The record of the workload whose digest starts so, which log lines name; None where a record's id does, or no workload's.
    Raises UsageError where there are several."""
    known = sorted({(workload, record_id, outcome) for workload, _, record_id, outcome in store.walk()})
    ids = [(record_id, outcome) for workload, record_id, outcome in known if _starting([workload], prefix)]
    if not ids or _starting([record_id for _, record_id, _ in known], prefix):
        return None
    if len(ids) > 1:
        some = ", ".join(f"{record_id[:12]} ({outcome})" for record_id, outcome in ids[:4])
        raise UsageError(f"{prefix!r} is a workload with {plural(len(ids), 'record')}: {some}; give the record's id")
    return ids[0][0]
