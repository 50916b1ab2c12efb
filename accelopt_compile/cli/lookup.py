"""Finding a record by a few characters, and saying why it may be trusted or how far it is from what was asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelopt_cache.layout import QUARANTINE
from accelopt_compile.errors import DamagedEntry, InvalidRecord, UsageError
from accelopt_compile.records import Binding, KernelSource, Record, Workload
from accelopt_compile.wording import plural, said_once, times_text

if TYPE_CHECKING:
    from accelopt_cache.kernel_store import Store
    from accelopt_cache.record_files import Fault


def operators(workload: Workload | None) -> str:
    """The operators of a region, in order, with counts: "mul x3, add, rsqrt"; "?" where the workload is not stored."""
    if workload is None:
        return "?"
    counts = Counter(node.op.split(".")[1] for node in workload.nodes)
    return ", ".join(f"{name} x{n}" if n > 1 else name for name, n in counts.items())


def reference_python(workload: Workload, binding: Binding) -> str:
    """The region as Python that anyone with torch can run, at the sizes it was measured at."""
    from accelopt_compile.evaluate.reference import reference_module

    return f"import torch\nfrom torch import device, inf, nan\n{reference_module(workload, binding).code}"


def empty(store: Store) -> str:
    """What to say of a store without records: where it is, and how it fills."""
    return (
        f"no records in {store.files.root.named}; it fills when a model is compiled with "
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
    """The record with this id or start of an id. Raises UsageError when there is none, DamagedEntry when it is damaged."""
    (wanted,) = full_ids(store, [prefix])
    if faults := store.faults(wanted):
        raise damaged(store, wanted, faults)
    for workload, target, record_id, outcome in store.walk():
        if record_id == wanted and (record := store.peek(workload, target, record_id, outcome)) is not None:
            return record_id, record
    raise DamagedEntry(f"record {wanted[:12]} was taken away while it was read; `accelopt cache ls` lists what is there")


def explain_name(store: Store, name: str) -> dict[str, Any]:
    """What the store knows of a record, a workload, or a file with one: {"lines": text for people, ...}."""
    known = sorted({(workload, record_id) for workload, _, record_id, _ in store.walk()})
    if any(record_id.startswith(name.lower()) for _, record_id in known):
        record_id, record = find_record(store, name)
        return explain_record(store, record_id, record)
    digests = sorted({workload for workload, _ in known if workload.startswith(name.lower())})
    if len(digests) > 1:
        raise UsageError(f"{name!r} is the start of {plural(len(digests), 'workload')}; give more characters")
    if digests:
        ids = sorted(record_id for workload, record_id in known if workload == digests[0])
        faulty = {record_id: faults for record_id in ids if (faults := store.faults(record_id))}
        found = [explain_record(store, *find_record(store, record_id)) for record_id in ids if record_id not in faulty]
        lines = [line for one in found for line in [*one["lines"], ""]]
        lines += [str(damaged(store, record_id, faults)) for record_id, faults in faulty.items()]
        return {"workload": digests[0], "records": found, "damaged": sorted(faulty), "lines": lines}
    if Path(name).is_file():
        return explain_miss(store, read_workload(Path(name)))
    out_of_service(store, name)
    raise none_such(store, f"{name!r} is no file, and no record or workload", len(known))


def read_workload(path: Path) -> Workload:
    """A workload from a JSON file. Raises UsageError."""
    import json

    try:
        return Workload.from_json(json.loads(path.read_text()))
    except (OSError, ValueError, InvalidRecord) as failure:
        raise UsageError(f"{path} holds no workload: {failure}") from failure


def environments() -> Mapping[str, Mapping[str, str]]:
    """What each target whose device is here compares records with."""
    from accelopt_backends.base import Ready
    from accelopt_compile.cli.backends import probes

    ready = [found for found in probes().values() if isinstance(found, Ready) and found.rung == "device"]
    if not ready:
        return {}
    import torch

    from accelopt_compile.pipeline import environment_of

    return {found.target: environment_of(found, torch.get_num_threads()) for found in ready}


def explain_record(store: Store, record_id: str, record: Record) -> dict[str, Any]:
    """Each reason to trust a record, or not to, on this machine."""
    from accelopt_cache.reuse import reuse

    damage = store.verify_entry(record_id)
    here = environments().get(record.target)
    verdict = "never" if here is None else reuse(record.environment, here)
    lines = [f"record {record_id[:12]}: {record.outcome} for {operators(store.workload(record.workload))}"]
    lines.append(f"  contents     {'damaged: ' + damage if damage else 'record, source and workload are what their digests say'}")
    where = "on the real device" if record.rung == "device" else f"on rung {record.rung}, so it is not launched"
    lines.append(f"  proven       {where}")
    if (e := record.errors) is not None:
        lines.append(
            f"  right        worst error {e.worst_share:.2f} of what is allowed, {plural(e.cases, 'case')} against float64"
        )
    if record.outcome != "baseline":
        walls = str(record.provenance.get("walls", "nothing that the record names"))
        screened = str(record.provenance.get("object_screen", "not made"))
        lines.append(f"  judged       behind walls: {walls}; screen of its object: {screened}")
    if record.timing and record.timing.basis == "estimated":
        lines.append(
            f"  fast         nobody knows: {times_text(record.timing.speedup, 'estimated')} the region without fusion, not timed"
        )
    elif record.timing:
        t = record.timing
        lines.append(
            f"  fast         {t.speedup:.2f}x the better of {' and '.join(sorted(t.baselines_us))}; 95 % above {t.low:.2f}x"
        )
    differing = (
        {} if here is None else {n: (record.environment.get(n, "-"), here.get(n, "-")) for n in {*record.environment, *here}}
    )
    differing = {n: pair for n, pair in sorted(differing.items()) if pair[0] != pair[1]}
    meaning = {
        "use": "served as it is",
        "retime": "timed again before it is served",
        "reverify": "proven again before it is served",
        "never": "not for this machine",
    }
    why = (
        f"target {record.target} is not available here"
        if here is None
        else "; ".join(f"{n}: {a} there, {b} here" for n, (a, b) in differing.items())
    )
    if record.outcome == "candidate":
        lines.append(f"  here         never served; {_next_of_candidate(record, here is not None)}")
    else:
        lines.append(f"  here         {meaning[verdict]}" + (f" ({why})" if why else ""))
    lines += [f"  {name:12} {text}" for name, text in end_of_search(record)]
    trusted = damage is None and record.rung == "device" and verdict == "use" and record.outcome == "winner"
    return {
        "id": record_id,
        "outcome": record.outcome,
        "damage": damage,
        "reuse": verdict,
        "differs": differing,
        "trusted": trusted,
        "lines": lines,
    }


def _next_of_candidate(record: Record, device: bool) -> str:
    """What decides on a candidate."""
    if device:
        return "`accelopt cache promote` decides on it, the device is here"
    return f"`accelopt cache promote` on a machine with {record.target} decides on it"


def abridged(source: KernelSource, tunables: Mapping[str, int]) -> str:
    """A kernel as an author reads it: C++ with the library as one line, anything else as it is."""
    if source.language != "cpp" or not set(source.tunables) <= set(tunables):
        return source.text
    from accelopt_backends.cpp.authored import shown

    return shown(source, tunables)


def end_of_search(record: Record) -> list[tuple[str, str]]:
    """(name, text) of why the search ended as it did: with a kernel that says when, and is no reason to trust it."""
    if not record.reason:
        return []
    if record.outcome != "baseline":
        return [("search", f"the search stopped because {said_once(record.reason)}")]
    return [("why none", said_once(record.reason))]


def explain_miss(store: Store, wanted: Workload) -> dict[str, Any]:
    """The stored workloads nearest to one that may not be stored, and the first field in which each differs."""
    digest = wanted.digest
    if store.workload(digest) is not None and any(w == digest for w, *_ in store.walk()):
        return explain_name(store, digest)
    held = {w: store.workload(w) for w in sorted({w for w, *_ in store.walk()})}
    near = sorted((-likeness(wanted, other), w) for w, other in held.items() if other is not None)[:3]
    lines = [f"workload {digest[:12]} ({operators(wanted)}) has no record"]
    found = []
    for score, other_digest in near:
        other = held[other_digest]
        assert other is not None
        field = first_difference(wanted.to_json(), other.to_json())
        found.append({"workload": other_digest, "likeness": round(-score, 3), "differs": field})
        lines.append(f"  nearest {other_digest[:12]} ({operators(other)}): {field}")
    return {"workload": digest, "records": [], "nearest": found, "lines": lines}


def likeness(a: Workload, b: Workload) -> float:
    """Share of operators two workloads have in common (Jaccard index of the multisets), 0 to 1."""
    left, right = (Counter(node.op for node in w.nodes) for w in (a, b))
    return (left & right).total() / max(1, (left | right).total())


def first_difference(a: Any, b: Any, where: str = "") -> str:
    """The first field in which two JSON values differ, as "path: here, there"."""
    if isinstance(a, dict) and isinstance(b, dict):
        pairs = [(f"{where}.{k}".lstrip("."), a.get(k), b.get(k)) for k in sorted({*a, *b})]
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = [(f"{where}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))]
    elif isinstance(a, list) and isinstance(b, list):
        return f"{where} has {plural(len(a), 'entry', 'entries')}, the stored one {len(b)}"
    else:
        return f"{where} is {a!r}, in the stored one {b!r}"
    return next((first_difference(x, y, place) for place, x, y in pairs if x != y), "nothing")
