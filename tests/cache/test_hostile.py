"""What a store refuses that somebody wrote on purpose: right digests, wrong contents. Damage by accident is in test_damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accelopt_cache import Store
from accelopt_cache.durable import sha256
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records import Workload, evaluate_dim
from tests.cache.samples import TARGET, winner, workload
from tests.cache.test_damage import only


def forged(root: Path, change: Callable[[bytes], bytes]) -> Path:
    """The one record of the store, changed and named by its new digest, as somebody who can write there would do it."""
    path = only(root / "v1" / "records")
    text = change(path.read_bytes())
    path.unlink()
    made = path.parent / f"{sha256(text)}.json"
    made.write_bytes(text)
    return made


def field(name: str, value: Any) -> Callable[[bytes], bytes]:
    """A change of one field, dots for inner ones."""

    def change(data: bytes) -> bytes:
        record = json.loads(data)
        *way, last = name.split(".")
        inner = record
        for step in way:
            inner = inner[step]
        inner[last] = value
        return json.dumps(record).encode()

    return change


FORGERIES: dict[str, Callable[[bytes], bytes]] = {
    "a name twice": lambda data: data.replace(b'"outcome"', b'"outcome": "baseline", "outcome"', 1),
    "an inner name twice": lambda data: data.replace(b'"TILE": 16', b'"TILE": 8, "TILE": 16'),
    "NaN": lambda data: data.replace(b'"worst_share": 0.5', b'"worst_share": NaN'),
    "Infinity": lambda data: data.replace(b'"noise": 0.0', b'"noise": Infinity'),
    "a float beyond a double": lambda data: data.replace(b'"worst_share": 0.5', b'"worst_share": 1e999'),
    "an integer of ten thousand digits": lambda data: data.replace(b'"s0": 64', b'"s0": ' + b"9" * 10_000),
    "a size beyond a machine's": field("binding.s0", 1 << 80),
    "a negative size": field("binding.s0", -1),
    "a size as text": field("binding.s0", "64"),
    "a size with a fraction": field("binding.s0", 64.5),
    "a size that is true": field("binding.s0", True),
    "sizes as a list": field("binding", [64]),
    "a symbol with NUL": field("binding", {"s0\0": 64}),
    "a tunable beyond 32 bits": field("tunables.TILE", 1 << 40),
    "a tunable that the source does not declare": field("tunables.EVIL=1;int x//", 1),
    "a value that the source does not declare": field("tunables.TILE", 17),
    "tunables as text": field("tunables", "TILE"),
    "an error as text": field("errors.worst_share", "small"),
    "blocks as a list": field("timing.blocks", [9]),
    "a climbing workload": field("workload", "../../../../etc/passwd"),
    "a climbing target": field("target", "../../x"),
    "a climbing source": field("source.sha256", "../../../../etc/passwd"),
    "a source by an absolute path": field("source.sha256", "/etc/passwd"),
    "a source with NUL": field("source.sha256", "a\0b"),
    "a timing with more in it": field("timing.code", "import os"),
    "a source as text": field("source", "int kernel;"),
    "text that is not UTF-8": lambda data: data.replace(b"2026-01-01", b"2026\xff\xfe"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_record_is_a_miss_and_goes_to_quarantine(store: Store, root: Path, name: str) -> None:
    """Its digest is right; what it says is refused before anything is chosen, built or evaluated."""
    store.put(winner(), workload())
    path = forged(root, FORGERIES[name])
    fresh = Store.open(root)
    assert fresh.verify_entry(path.stem)
    assert fresh.best(workload().digest, TARGET, {"s0": 64}) is None
    assert not path.exists()
    assert [path.stem[:20]] == [place.name[:20] for place, _ in fresh.quarantined("")]


def test_swapped_sources_are_a_miss(store: Store, root: Path) -> None:
    """Two kernels under each other's names: each file is intact, and neither is what its record names."""
    store.put(winner(text="int one;"), workload())
    store.put(winner(text="int two;"), workload())
    one, two = (p for p in (root / "v1" / "blobs").rglob("*") if p.is_file())
    text = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(text)
    assert () == Store.open(root).winners(workload().digest, TARGET)


def test_a_record_by_hand_in_another_place_is_a_miss(store: Store, root: Path) -> None:
    """A winner of one workload copied beside another's: a verdict is not replayed for other shapes."""
    store.put(winner(), workload())
    store.put(winner(workload(16)), workload(16))
    mine, other = sorted((root / "v1" / "records").rglob("*.json"), key=lambda p: workload(16).digest in str(p))
    (other.parent / mine.name).write_bytes(mine.read_bytes())
    assert (winner(workload(16)),) == Store.open(root).winners(workload(16).digest, TARGET)


def changed(**fields: Any) -> dict[str, Any]:
    return {**workload().to_json(), **fields}


NODE = workload().to_json()["nodes"][0]
CODE = "__import__('os').system('true')"


@pytest.mark.parametrize(
    "data",
    [
        changed(symbols=[f"s0={CODE}"]),
        changed(symbols=["s0, *rest"]),
        changed(inputs=[["f32", ["9**9**9**9", 8], [8, 1]]]),
        changed(inputs=[["f32", ["(" * 600 + "s0" + ")" * 600, 8], [8, 1]]]),
        changed(inputs=[["f32", ["s0.__class__", 8], [8, 1]]]),
        changed(nodes=[[NODE[0], NODE[1], {f"x={CODE}, y": 1}, NODE[3]]]),
        changed(nodes=[[f"os.system.{CODE}", NODE[1], {}, NODE[3]]]),
        changed(nodes=[[NODE[0], [{"dtype": CODE}], {}, NODE[3]]]),
        changed(nodes=[[NODE[0], [{"sym": CODE}], {}, NODE[3]]]),
    ],
    ids=["symbol", "star", "power", "parentheses", "attribute", "keyword", "operator", "dtype", "expression"],
)
def test_a_workload_that_carries_code_is_refused(data: dict[str, Any]) -> None:
    """Parts of a workload become Python (layouts, references): each is arithmetic, a name or an operator, or refused."""
    with pytest.raises(InvalidRecord):
        Workload.from_json(data)


def test_a_power_is_not_evaluated() -> None:
    """It could take for ever."""
    with pytest.raises(InvalidRecord):
        evaluate_dim("s0**s0**s0", {"s0": 9})
