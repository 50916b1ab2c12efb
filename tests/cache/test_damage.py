"""Every read is untrusted: a damaged entry is a miss, one warning, quarantine; the next put heals it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from accelopt_cache import Store
from accelopt_cache.durable import sha256
from tests.cache.samples import TARGET, experience, winner, workload


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def bad_utf8(path: Path) -> None:
    path.write_bytes(b'{"a": "\xff\xfe"}')


def empty(path: Path) -> None:
    path.write_bytes(b"")


def huge(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(100 << 20)


def nested(path: Path) -> None:
    path.write_bytes(b"[" * 200_000 + b"]" * 200_000)


def deep_object(path: Path) -> None:
    path.write_bytes(b'{"a":' * 500 + b"1" + b"}" * 500)


def link_out(path: Path) -> None:
    outside = path.parents[len(path.parts) - 3] / f"outside-{os.getpid()}"
    outside.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(outside)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def not_an_object(path: Path) -> None:
    path.write_bytes(b"[1, 2]")


DAMAGE = [truncate, flip_a_bit, bad_utf8, empty, huge, nested, deep_object, link_out, directory, fifo, not_an_object]

Damage = Callable[[Path], None]


def only(directory: Path, pattern: str = "*") -> Path:
    (path,) = [p for p in directory.rglob(pattern) if p.is_file()]
    return path


def one_warning(caplog: pytest.LogCaptureFixture, path: Path) -> None:
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert 1 == len(warnings), warnings
    assert path.name in warnings[0]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", ["records", "blobs", "workloads"])
def test_a_damaged_kernel_is_a_miss_and_heals(
    store: Store, root: Path, caplog: pytest.LogCaptureFixture, damage: Damage, kind: str
) -> None:
    """For each file of an entry and each kind of damage: `verify_entry` says so, the read misses once with one warning,
    and putting the record again serves it."""
    name = store.put(winner(), workload())
    path = only(root / "v1" / kind)
    damage(path)
    assert store.verify_entry(name)
    assert not caplog.records
    fresh = Store.open(root)
    for _ in range(2):
        if kind == "workloads":
            assert fresh.workload(workload().digest) is None
        else:
            assert () == fresh.winners(workload().digest, TARGET)
    one_warning(caplog, path)
    assert any((root / "v1" / "quarantine").iterdir())
    fresh.put(winner(), workload())
    assert (winner(),) == Store.open(root).winners(workload().digest, TARGET)
    assert workload() == Store.open(root).workload(workload().digest)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_put_heals_damage_that_nobody_read(store: Store, root: Path, damage: Damage) -> None:
    """Not even the same name and size stop a put from repairing a file."""
    store.put(winner(), workload())
    for kind in ("records", "blobs", "workloads"):
        damage(only(root / "v1" / kind))
    store.put(winner(), workload())
    assert (winner(),) == Store.open(root).winners(workload().digest, TARGET)
    assert workload() == Store.open(root).workload(workload().digest)


@pytest.mark.parametrize("damage", DAMAGE)
def test_other_documents_are_a_miss_and_heal(store: Store, root: Path, caplog: pytest.LogCaptureFixture, damage: Damage) -> None:
    """Graphs, progress, experiences and builds follow the same rule."""
    built = root / "kernel.so"
    built.write_bytes(b"\x7fELF" + b"x" * 100)

    def fill() -> None:
        store.put_graph("g", {"regions": [1, 2]})
        store.save_progress("w", TARGET, {"round": 3})
        store.add_experience(experience())
        store.put_built(TARGET, "key", built)

    fill()
    paths = [
        *(root / "v1" / "graphs").glob("*"),
        only(root / "v1" / "runs"),
        *(root / "v1" / "memory").glob("*"),
        only(root / "v1" / "builds", "*.so"),
    ]
    for path in paths:
        damage(path)
    for _ in range(2):
        assert (None, None, (), None) == (
            store.graph("g"),
            store.load_progress("w", TARGET),
            store.experiences("cpp"),
            store.built(TARGET, "key"),
        )
    assert len(paths) == len([r for r in caplog.records if r.levelname == "WARNING"])
    fill()
    assert {"regions": [1, 2]} == store.graph("g")
    assert {"round": 3} == store.load_progress("w", TARGET)
    assert (experience(),) == store.experiences("cpp")
    assert store.built(TARGET, "key") is not None


def test_a_readonly_store_skips_a_damaged_entry(store: Store, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where we may not write nothing is moved; the warning still comes once."""
    store.put(winner(), workload())
    path = only(root / "v1" / "records")
    truncate(path)
    again = Store.open(root, readonly=True)
    for _ in range(3):
        assert () == again.winners(workload().digest, TARGET)
    one_warning(caplog, path)
    assert path.exists()
    again.put(winner(), workload())
    assert (winner(),) == again.winners(workload().digest, TARGET)


@pytest.mark.parametrize("field", ["workload", "target", "outcome", "rung", "record_version", "source", "timing", "created"])
def test_a_record_that_speaks_of_something_else_is_a_miss(store: Store, root: Path, field: str) -> None:
    """A file with a right digest and a wrong content: another workload, target or outcome than its place says, a foreign
    version, a source without digest, a timing that is no number."""
    store.put(winner(), workload())
    path = only(root / "v1" / "records")
    wrong = {"record_version": 2, "outcome": "baseline", "source": {"sha256": "../../../etc/passwd"}, "created": "é\ud800"}
    data = {**json.loads(path.read_text()), field: wrong.get(field, "other")}
    text = json.dumps(data).encode()
    path.unlink()
    (path.parent / f"{sha256(text)}.json").write_bytes(text)
    found = store.winners(workload().digest, TARGET)
    assert ("created" == field) == bool(found)


@pytest.mark.parametrize("value", ["1e999", "-1", "null", '"3"', "true", "NaN"])
def test_a_timing_that_cannot_be_compared_is_a_miss(store: Store, root: Path, value: str) -> None:
    """The choice among winners never meets an infinity or a text."""
    store.put(winner(us=12345.5), workload())
    path = only(root / "v1" / "records")
    text = path.read_bytes().replace(b"12345.5", value.encode())
    path.unlink()
    (path.parent / f"{sha256(text)}.json").write_bytes(text)
    assert () == store.winners(workload().digest, TARGET)


def test_fields_of_a_later_minor_version_are_ignored(store: Store, root: Path) -> None:
    """A newer writer may add fields; an older reader serves the record."""
    store.put(winner(), workload())
    path = only(root / "v1" / "records")
    text = json.dumps({**json.loads(path.read_text()), "energy_uj": 3}).encode()
    path.unlink()
    (path.parent / f"{sha256(text)}.json").write_bytes(text)
    assert (winner(),) == store.winners(workload().digest, TARGET)


@pytest.mark.parametrize("part", ["v1", "v1/records", "v1/blobs/sha256", "v1/workloads", "v1/quarantine"])
@pytest.mark.parametrize("shape", ["file", "link"])
def test_what_stands_in_place_of_a_directory_gives_way(store: Store, root: Path, tmp_path: Path, part: str, shape: str) -> None:
    """A file or a link where a directory must be: reads miss, nothing is written through the link, a put heals."""
    store.put(winner(), workload())
    outside = tmp_path / "outside"
    if shape == "file":
        shutil.rmtree(root / part, ignore_errors=True)
        (root / part).write_text("in the way")
    else:
        (root / part).rename(outside) if (root / part).exists() else outside.mkdir()
        (root / part).symlink_to(outside)
    before = sorted(outside.rglob("*"))
    fresh = Store.open(root)
    assert (part in ("v1/workloads", "v1/quarantine")) == bool(fresh.winners(workload().digest, TARGET))
    fresh.workload(workload().digest)
    fresh.put(winner(), workload())
    fresh.quarantine(fresh.put(winner(text="bad")), "bad")
    assert (winner(),) == Store.open(root).winners(workload().digest, TARGET)
    assert workload() == Store.open(root).workload(workload().digest)
    assert before == sorted(outside.rglob("*"))


def test_strangers_in_the_directories_are_left_alone(store: Store, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is not named like ours is neither read nor moved."""
    store.put(winner(), workload())
    stranger = only(root / "v1" / "records").parent / "README"
    stranger.write_text("hello")
    assert (winner(),) == store.winners(workload().digest, TARGET)
    assert stranger.exists()
    assert not caplog.records


@pytest.mark.parametrize("text", ["", "not json", '{"format": "x"}', "[]", '{"format": 0}'])
def test_a_damaged_format_file_is_written_anew(store: Store, root: Path, text: str) -> None:
    """Losing FORMAT does not lose the store."""
    store.put(winner(), workload())
    (root / "FORMAT").write_text(text)
    assert (winner(),) == Store.open(root).winners(workload().digest, TARGET)
    assert 1 == json.loads((root / "FORMAT").read_text())["format"]


def quarantine_notes(root: Path) -> dict[str, dict[str, str]]:
    """What the note beside each quarantined file says, by the place that the file had."""
    notes = [json.loads(p.read_text()) for p in (root / "v1" / "quarantine").glob("*.note")]
    return {note["was"]: note for note in notes}


@pytest.mark.parametrize("kind", ["records", "blobs", "workloads"])
@pytest.mark.parametrize("damage", [truncate, flip_a_bit, empty, directory, link_out])
def test_what_is_damaged_goes_to_quarantine_with_its_record(store: Store, root: Path, damage: Damage, kind: str) -> None:
    """By id, the record and the source or workload whose bytes are not what its name says; nothing that is sound."""
    name = store.put(winner(), workload())
    record, path = only(root / "v1" / "records"), only(root / "v1" / kind)
    damage(path)
    assert store.quarantine(name, store.verify_entry(name) or "", word="damaged")
    gone = {str(p.relative_to(root)) for p in (record, path)}
    assert gone == set(quarantine_notes(root))
    assert not any(os.path.lexists(p) for p in (record, path))
    store.put(winner(), workload())
    assert store.verify_entry(name) is None


def test_a_sound_source_stays_when_its_record_is_refused(store: Store, root: Path) -> None:
    """Another record may name the same text."""
    store.quarantine(store.put(winner(), workload()), "wrong result", word="numerics")
    assert only(root / "v1" / "blobs") and only(root / "v1" / "workloads")
    assert 1 == len(quarantine_notes(root))


@pytest.mark.parametrize("read", ["winners", "verify"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_note_says_why_and_what_to_do(store: Store, root: Path, damage: Damage, read: str) -> None:
    """However it came there; the file's name carries its old name and one word."""
    name = store.put(winner(), workload())
    damage(only(root / "v1" / "records"))
    if read == "winners":
        assert () == store.winners(workload().digest, TARGET)
    else:
        store.quarantine(name, store.verify_entry(name) or "", word="damaged")
    (note,) = quarantine_notes(root).values()
    assert note["reason"] and note["diagnosis"] and "prewarm" in note["next"]
    ((place, reason),) = store.quarantined(name[:12])
    assert (f"{name}.damaged.json", note["reason"]) == (place.name, reason)


def test_a_name_in_quarantine_is_short_and_its_reason_is_kept_whole(store: Store, root: Path) -> None:
    """Reasons hold paths, digests and what a compiler printed: none of that goes into a name, all of it into the note."""
    reason = "its source v1/blobs/sha256/ab/abc: /tmp/secret" * 20
    name = store.put(winner())
    for word in ("failed", "Not/A Word", "failed"):
        store.put(winner())
        store.quarantine(name, reason, word=word, diagnosis="line 3: use a loop")
    names = sorted(place.name for place, _ in store.quarantined(""))
    assert [f"{name}.damaged.json", f"{name}.failed.json"] == [names[0], names[2]]
    assert names[1].startswith(f"{name}.failed-") and len(names[1]) == len(name) + len(".failed-01234567.json")
    assert {(reason, "line 3: use a loop")} == {(n["reason"], n["diagnosis"]) for n in quarantine_notes(root).values()}


def test_a_source_that_is_no_text_is_a_miss(store: Store, root: Path) -> None:
    """Under its right digest: the digest of bytes says nothing of what they are."""
    store.put(winner(), workload())
    path, blob = only(root / "v1" / "records"), only(root / "v1" / "blobs")
    data = b"\xff\xfe"
    (root / "v1" / "blobs" / "sha256" / sha256(data)[:2]).mkdir(exist_ok=True)
    (root / "v1" / "blobs" / "sha256" / sha256(data)[:2] / sha256(data)).write_bytes(data)
    text = path.read_bytes().replace(blob.name.encode(), sha256(data).encode())
    path.unlink()
    (path.parent / f"{sha256(text)}.json").write_bytes(text)
    assert () == store.winners(workload().digest, TARGET)
