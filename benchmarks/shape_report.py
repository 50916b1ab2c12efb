"""What `check_shapes` found: a file a device, which grows variant by variant over many runs, and how it is told.

A variant is a model in one precision with dynamic or static sizes.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from accelopt_compile.wording import plural
from benchmarks import harness
from benchmarks.shown import markdown

KINDS = ("inference", "training")
SIDES = ("inductor", "accelopt")

Found = Mapping[str, Any]


def path_of(name: str, directory: Path = harness.RESULTS) -> Path:
    """The file of this device."""
    return directory / f"{name}-{harness.device_name()}.json"


def known(path: Path, around: Found) -> dict[str, Found]:
    """The variants of a file, as long as it was made with the versions of `around`."""
    before: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return before["variants"] if harness.alike(before.get("environment", {}), around) else {}


def record(path: Path, variant: str, found: Found) -> None:
    """Put one variant into the file, beside what is there: two runs side by side may share it."""
    around = harness.environment()
    with FileLock(Path(tempfile.gettempdir()) / f"{path.name}.lock"):
        mark = {"commit": around["commit"], "modified": around["modified"], "date": around["date"]}
        variants = {**known(path, around), variant: {**found, **mark}}
        name = path.stem.removesuffix(f"-{harness.device_name()}")
        data = {"format": harness.FORMAT, "benchmark": name, "quick": False, "environment": around, "variants": variants}
        harness.write_whole(path, data)


def is_shown(found: Found | None, shapes: int) -> bool:
    """Whether a variant has been run with as many shapes, as it must be."""
    return found is not None and not failures(found) and found["shapes"] >= shapes


def failures(found: Found) -> list[str]:
    """What is not as it must be in the result of one variant."""
    if "failed" in found:
        return ["the process failed"]
    kinds = {kind: found[kind] for kind in KINDS if kind in found}
    why = [f"{kind}: {len(k['wrong'])} wrong tensors" for kind, k in kinds.items() if k["wrong"]]
    why += [f"{k}: more graphs than Inductor" for k, o in kinds.items() if o["graphs"]["accelopt"] > o["graphs"]["inductor"]]
    why += [f"{kind}: {k['fallbacks']} fallbacks" for kind, k in kinds.items() if k["fallbacks"]]
    why += [f"{kind}: {problem}" for kind, k in kinds.items() for problem in k["problems"]]
    return why if any(k["calls"] for k in kinds.values()) else [*why, "no kernel was launched"]


def line(variant: str, found: Found) -> str:
    """One variant, or the search before it, for the terminal."""
    head = f"{variant:32}{found['seconds']:6.0f} s  "
    if "failed" in found or "regions" in found:
        return head + ("FAILED" if "failed" in found else f"{found['regions']}")
    parts = []
    for kind in [kind for kind in KINDS if kind in found]:
        one = found[kind]
        parts.append(
            f"{kind}: {len(one['wrong'])} wrong of {one['tensors']}, error {one['worst']['accelopt']['l2']:.1e} (Inductor "
            f"{one['worst']['inductor']['l2']:.1e}), graphs {one['graphs']['accelopt']} ({one['graphs']['inductor']}), "
            f"{one['calls']} calls" + (f", {one['fallbacks']} fallbacks" if one["fallbacks"] else "")
        )
    return head + "; ".join(parts)


def table(result: Found) -> str:
    """All variants of one device, a row each."""
    rows = [_row(variant, found) for variant, found in sorted(result["variants"].items())]
    columns = ["variant", "shapes", "wrong of", "error: Inductor / accelopt", "graphs: Inductor / accelopt", "launches", "commit"]
    return markdown(columns, rows)


def _row(variant: str, found: Found) -> list[str]:
    if "failed" in found:
        return [variant, "", "failed", "", "", "", found["commit"]]
    kinds = [found[kind] for kind in KINDS if kind in found]
    wrong, tensors = sum(len(k["wrong"]) for k in kinds), sum(k["tensors"] for k in kinds)
    error = " / ".join(f"{max(k['worst'][side]['l2'] for k in kinds):.1e}" for side in SIDES)
    graphs = " / ".join(str(sum(k["graphs"][side] for k in kinds)) for side in SIDES)
    calls = sum(k["calls"] for k in kinds)
    return [variant, str(found["shapes"]), f"{wrong} of {tensors}", error, graphs, str(calls), found["commit"]]


def sentence(results: Sequence[Found]) -> str:
    """All devices in a line."""
    variants = [(found, result["environment"]["device"]) for result in results for found in result["variants"].values()]
    run = [found for found, _ in variants if "failed" not in found]
    kinds = [found[kind] for found in run for kind in KINDS if kind in found]
    calls = sum(found["shapes"] for found in run for kind in KINDS if kind in found)
    bad = sum(bool(failures(found)) for found, _ in variants)
    where = plural(len({device for _, device in variants}), "processor")
    return (
        "Outputs, losses and gradients at random shapes, by searched kernels or by unproven seeds in every region: "
        f"{len(variants)} variants (model, precision, dynamic or static sizes; "
        f"{where}), {calls:,} calls, {sum(len(k['wrong']) for k in kinds)} of "
        f"{sum(k['tensors'] for k in kinds):,} tensors further off than twice Inductor's error (four times at an element), "
        f"{bad} variants with any fault."
    )
