"""A store with a kernel for an imported definition, as a search would leave it."""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from accelopt_backends.base import Backend
from accelopt_cache.kernel_store import Store
from accelopt_compile.exchange.importing import Imported, import_definition
from accelopt_compile.exchange.schema import read_definition, read_instances
from accelopt_compile.records import ErrorReport, KernelSource, Record, Timing, Workload

DEFINITIONS = Path(__file__).parent / "definitions"
MEASURED = Timing(
    kernel_us=2.0, baselines_us={"eager": 9.0, "inductor": 3.0}, speedup=1.5, low=1.4, high=1.6, blocks=9, threads=1
)
ESTIMATED = Timing(
    kernel_us=2.0, baselines_us={"unfused": 3.0}, speedup=1.5, low=1.5, high=1.5, blocks=0, threads=1, basis="estimated"
)
_numbers = itertools.count()


def imported_into(store: Store, name: str) -> Imported:
    """The definition `name`, imported."""
    definition = read_definition(DEFINITIONS / f"{name}.json")
    found = import_definition(definition, read_instances(DEFINITIONS / f"{name}.jsonl", definition))
    store.put_graph(definition.digest, found.document())
    return found


def record_of(workload: Workload, source: KernelSource, binding: dict[str, int], *, target: str, rung: Any = "device") -> Record:
    """A winner with this kernel; on a rung below the device a candidate, with an estimate for its time."""
    on_device = rung == "device"
    return Record(
        outcome="winner" if on_device else "candidate",
        workload=workload.digest,
        target=target,
        binding=binding,
        rung=rung,
        source=source,
        tunables=source.defaults(),
        timing=MEASURED if on_device else ESTIMATED,
        errors=ErrorReport(worst_share=0.25, cases=40),
        environment={"torch": "2.13", "device": "a device"},
        created="2026-11-28T12:00:00+00:00",
    )


def seed_record(backend: Backend, found: Imported, *, target: str, rung: Any = "device") -> Record:
    """The backend's seed for the first workload of a definition."""
    link = found.captures[0].whole
    assert link is not None
    binding = link.binding(found.definition, found.captures[0].instances[0].axes)
    return record_of(link.workload, backend.seed(link.workload), binding, target=target, rung=rung)


def solution_module(out: Path, folder: Path) -> ModuleType:
    """The one solution below `out`, its files written to `folder` and its entry file imported: as its users do it."""
    (path,) = out.glob("solutions/*/*/*.json")
    data = json.loads(path.read_text())
    for source in data["sources"]:
        (folder / source["path"]).write_text(source["content"])
    name = f"solution_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(name, folder / data["spec"]["entry_point"].split("::")[0])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reference_of(name: str) -> Callable[..., Any]:
    """The definition's own reference; ours to run, because we wrote it."""
    namespace: dict[str, Any] = {}
    exec(json.loads((DEFINITIONS / f"{name}.json").read_text())["reference"], namespace)
    run: Callable[..., Any] = namespace["run"]
    return run
