"""Finding a record by a few characters, and saying why it may be trusted or how far it is from what was asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelopt_compile.errors import InvalidRecord, UsageError
from accelopt_compile.records import Binding, Record, Workload

if TYPE_CHECKING:
    from accelopt_cache.kernel_store import Store


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


def full_ids(store: Store, prefixes: Sequence[str]) -> list[str]:
    """The record ids that start with these characters, each exactly one. Raises UsageError."""
    known = [record_id for _, _, record_id, _ in store.walk()]
    return matching(known, prefixes, noun="record", where=store.files.root.named, ls="cache ls")


def matching(known: Iterable[str], prefixes: Sequence[str], *, noun: str, where: str, ls: str) -> list[str]:
    """The ids that start with these characters, each exactly one of the known. Raises UsageError, which names `noun`, `where`
    was looked and the command that lists them."""
    ids = sorted(set(known))
    found = []
    for prefix in prefixes:
        hits = [one for one in ids if prefix and one.startswith(prefix.lower())]
        if not hits:
            raise UsageError(f"no {noun} {prefix!r} among the {len(ids)} in {where}; `accelopt {ls}` lists them")
        if len(hits) > 1:
            shown = ", ".join(hit[:12] for hit in hits[:4])
            raise UsageError(f"{prefix!r} is the start of {len(hits)} {noun}s ({shown}); give more characters")
        found.append(hits[0])
    return found


def find_record(store: Store, prefix: str) -> tuple[str, Record]:
    """The record with this id or start of an id. Raises UsageError when there is none, or it is damaged."""
    (wanted,) = full_ids(store, [prefix])
    for record_id, record in store.iter_records():
        if record_id == wanted:
            return record_id, record
    raise UsageError(
        f"record {wanted} is damaged: {store.verify_entry(wanted)}; `accelopt cache verify --quarantine` takes it out of service"
    )


def explain_name(store: Store, name: str) -> dict[str, Any]:
    """What the store knows of a record, a workload, or a file with one: {"lines": text for people, ...}."""
    known = sorted({(workload, record_id) for workload, _, record_id, _ in store.walk()})
    if any(record_id.startswith(name.lower()) for _, record_id in known):
        record_id, record = find_record(store, name)
        return explain_record(store, record_id, record)
    digests = sorted({workload for workload, _ in known if workload.startswith(name.lower())})
    if len(digests) > 1:
        raise UsageError(f"{name!r} is the start of {len(digests)} workloads; give more characters")
    if digests:
        found = [explain_record(store, i, r) for i, r in store.iter_records() if r.workload == digests[0]]
        lines = [line for one in found for line in [*one["lines"], ""]]
        return {"workload": digests[0], "records": found, "lines": lines}
    if Path(name).is_file():
        return explain_miss(store, read_workload(Path(name)))
    raise UsageError(f"{name!r} is no record, workload or file; `accelopt cache ls` lists {len(known)} records")


def read_workload(path: Path) -> Workload:
    """A workload from a JSON file. Raises UsageError."""
    import json

    try:
        return Workload.from_json(json.loads(path.read_text()))
    except (OSError, ValueError, InvalidRecord) as failure:
        raise UsageError(f"{path} holds no workload: {failure}") from failure


def environments() -> Mapping[str, Mapping[str, str]]:
    """What each usable target of this machine compares records with."""
    from accelopt_backends.base import Ready
    from accelopt_compile.cli.backends import probes

    ready = [found for found in probes().values() if isinstance(found, Ready)]
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
    lines.append(f"  proven       on {'the real device' if record.rung == 'device' else record.rung + ', so it is not launched'}")
    if (e := record.errors) is not None:
        lines.append(f"  right        worst error {e.worst_share:.2f} of what is allowed, {e.cases} cases against float64")
    if record.outcome == "winner":
        walls = str(record.provenance.get("walls", "nothing that the record names"))
        screened = str(record.provenance.get("object_screen", "not made"))
        lines.append(f"  judged       behind walls: {walls}; screen of its object: {screened}")
    if record.timing:
        t = record.timing
        lines.append(
            f"  fast         {t.speedup:.2f}x the better of {' and '.join(sorted(t.baselines_us))}; 95 % above {t.low:.2f}x"
        )
    if record.reason:
        lines.append(f"  because      {record.reason}")
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
    lines.append(f"  here         {meaning[verdict]}" + (f" ({why})" if why else ""))
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
        return f"{where} has {len(a)} entries, the stored one {len(b)}"
    else:
        return f"{where} is {a!r}, in the stored one {b!r}"
    return next((first_difference(x, y, place) for place, x, y in pairs if x != y), "nothing")
