"""Writing what is exported: the folders and files of a FlashInfer-Bench dataset, as its `TraceSet.from_path` reads them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from accelopt_backends.base import Backend
from accelopt_cache.kernel_store import Store
from accelopt_compile.errors import AccelOptError
from accelopt_compile.exchange.describing import Unexportable, described
from accelopt_compile.exchange.links import Known, found_link
from accelopt_compile.exchange.solutions import Exported, check_exportable, solution
from accelopt_compile.exchange.traces import instance_of, trace, workload_trace
from accelopt_compile.records import Record


@dataclass(frozen=True, kw_only=True)
class Written:
    """What became of one record: its solution's name and the files, or why it was not exported."""

    record_id: str
    definition: str = ""
    solution: str = ""
    candidate: bool = False
    traced: bool = False
    files: tuple[str, ...] = ()
    why_not: str = ""


def export(records: Iterable[tuple[str, Record]], *, store: Store, backends: Mapping[str, Backend], out: Path) -> list[Written]:
    """Write each record's definition, solution, workload and trace below `out`. A record that the format cannot hold is a
    reason; raises AccelOptError where `out` cannot be written."""
    results = []
    for record_id, record in records:
        try:
            exported, known = exportable(record_id, record, store=store, backends=backends)
            results.append(_written(exported, known, out))
        except Unexportable as reason:
            results.append(Written(record_id=record_id, why_not=str(reason)))
        except OSError as failure:
            raise AccelOptError(f"{out} cannot be written: {failure}; give another folder") from failure
    return results


def exportable(record_id: str, record: Record, *, store: Store, backends: Mapping[str, Backend]) -> tuple[Exported, Known | None]:
    """A record with its definition, an imported one where there is one, and its kernel as plain code. Raises Unexportable."""
    if record.source is None:
        raise Unexportable(f"it has no kernel: {record.reason or 'the baseline was kept'}")
    workload = store.workload(record.workload)
    if workload is None:
        raise Unexportable(f"its workload {record.workload[:12]} is not in the store")
    backend = backends.get(record.source.language)
    if backend is None:
        raise Unexportable(f"no backend here writes {record.source.language}")
    found = found_link(store, record.workload)
    known = None if found is None else found[0]
    definition, link = described(workload) if found is None else (found[0].definition, found[1])
    check_exportable(definition, link)
    try:
        standalone = backend.standalone(record.source, record.tunables, record.target)
    except ValueError as reason:
        raise Unexportable(str(reason)) from reason
    return Exported(record_id=record_id, record=record, definition=definition, link=link, standalone=standalone), known


def _written(exported: Exported, known: Known | None, out: Path) -> Written:
    definition = exported.definition
    kind, name = _file_name(definition.op_type), _file_name(definition.name)
    written = [_put(out, f"definitions/{kind}/{name}.json", json.dumps(dict(definition.raw), indent=2) + "\n")]
    written.append(_put(out, f"solutions/{kind}/{name}/{exported.name}.json", json.dumps(solution(exported), indent=2) + "\n"))
    instance = instance_of(exported, known)
    traced = None if instance is None else trace(exported, instance)
    if instance is not None:
        uuid = _file_name(instance.uuid)
        written.append(_put(out, f"workloads/{kind}/{name}/{uuid}.jsonl", json.dumps(workload_trace(exported, instance)) + "\n"))
    if traced is not None:
        written.append(_put(out, f"traces/{kind}/{name}/{exported.name}.jsonl", json.dumps(traced) + "\n"))
    return Written(
        record_id=exported.record_id,
        definition=definition.name,
        solution=exported.name,
        candidate=exported.candidate,
        traced=traced is not None,
        files=tuple(written),
    )


def _put(out: Path, name: str, text: str) -> str:
    """Write one file whole or not at all; its path."""
    path = out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
    return str(path)


def _file_name(name: str) -> str:
    """A name that stays in its folder: it comes from a definition that somebody else wrote."""
    return re.sub(r"[^0-9A-Za-z_\-]", "_", name)[:120] or "_"
