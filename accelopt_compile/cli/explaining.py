"""Saying why a record may be trusted, or how far the nearest is from what was asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelopt_compile.cli.lookup import damaged, find_record, none_such, operators, out_of_service
from accelopt_compile.errors import InvalidRecord, UsageError
from accelopt_compile.records import Binding, KernelSource, Record, Timing, Workload
from accelopt_compile.wording import plural, said_once, times_text

if TYPE_CHECKING:
    from accelopt_cache.kernel_store import Store


def reference_python(workload: Workload, binding: Binding) -> str:
    """The region as Python that anyone with torch can run, at the sizes it was measured at."""
    from accelopt_compile.evaluate.reference import reference_module

    return f"import torch\nfrom torch import device, inf, nan\n{reference_module(workload, binding).code}"


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


MEANING = {
    "use": "served as it is",
    "retime": "timed again before it is served",
    "reverify": "proven again before it is served",
    "never": "not for this machine",
}


def explain_record(store: Store, record_id: str, record: Record) -> dict[str, Any]:
    """Each reason to trust a record, or not to, on this machine."""
    from accelopt_cache.reuse import reuse

    damage = store.verify_entry(record_id)
    here = environments().get(record.target)
    verdict = "never" if here is None else reuse(record.environment, here)
    differing = None if here is None else _differing(record.environment, here)
    lines = [
        f"record {record_id[:12]}: {record.outcome} for {operators(store.workload(record.workload))}",
        f"  contents     {'damaged: ' + damage if damage else 'record, source and workload are what their digests say'}",
        *(f"  {name:12} {text}" for name, text in _proof(record)),
        f"  here         {_served(record, verdict, differing)}",
        *(f"  {name:12} {text}" for name, text in end_of_search(record)),
    ]
    trusted = damage is None and record.rung == "device" and verdict == "use" and record.outcome == "winner"
    return {
        "id": record_id,
        "outcome": record.outcome,
        "damage": damage,
        "reuse": verdict,
        "differs": differing or {},
        "trusted": trusted,
        "lines": lines,
    }


def _differing(there: Mapping[str, str], here: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """What two environments do not agree on: name to (there, here)."""
    pairs = {name: (there.get(name, "-"), here.get(name, "-")) for name in sorted({*there, *here})}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _proof(record: Record) -> Iterator[tuple[str, str]]:
    """What was shown of the kernel where it was judged: (what, how)."""
    where = "on the real device" if record.rung == "device" else f"on rung {record.rung}, so it is not launched"
    yield "searched" if record.outcome == "baseline" else "proven", where
    if (e := record.errors) is not None:
        yield "right", f"worst error {e.worst_share:.2f} of what is allowed, {plural(e.cases, 'case')} against float64"
    if record.outcome != "baseline":
        walls = str(record.provenance.get("walls", "nothing that the record names"))
        screened = str(record.provenance.get("object_screen", "not made"))
        yield "judged", f"behind walls: {walls}; screen of its object: {screened}"
    if (t := record.timing) is None:
        return
    if t.basis == "estimated":
        yield "fast", f"nobody knows: {times_text(t.speedup, 'estimated')} the region without fusion, not timed"
    else:
        rivals = " and ".join(sorted(t.baselines_us))
        yield "fast", f"{t.speedup:.2f}x the better of {rivals}; 95 % above {t.low:.2f}x{_over_inductor(t)}"


def _over_inductor(timing: Timing) -> str:
    """Where eager is the better baseline: what is gained over the code that would run in the kernel's place."""
    return f"; {timing.over_inductor:.2f}x Inductor's code" if timing.inductor_lags > 1.0 else ""


def _served(record: Record, verdict: str, differing: Mapping[str, tuple[str, str]] | None) -> str:
    """What this machine does with the record; `differing` is None where the record's device is not here."""
    if record.outcome == "candidate":
        return f"never served; {_next_of_candidate(record, differing is not None)}"
    if differing is None:
        return f"{MEANING[verdict]} (target {record.target} is not available here)"
    why = "; ".join(f"{name}: {there} there, {here} here" for name, (there, here) in differing.items())
    return MEANING[verdict] + (f" ({why})" if why else "")


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
