"""The memory on disk: what an experience says of itself, which ones are withdrawn, and which files are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accelopt_cache import Store
from accelopt_cache.durable import sha256
from accelopt_cache.experience_store import TEXT_LIMIT
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records import Experience, canonical_json
from tests.cache.samples import baseline, candidate, experience, winner, workload
from tests.cache.test_damage import only

BAD = "int wrong;"
LESSON = replace(experience(), slow="int slow;", fast=BAD, title="Be wrong", origin={"model": "m", "run": "r"})


def test_title_and_origin_come_back(store: Store, root: Path) -> None:
    """With the id and the time that the listing shows."""
    name = store.add_experience(LESSON)
    (entry,) = Store.open(root).memory()
    assert (name, LESSON, "") == (entry.id, entry.experience, entry.withdrawn)
    assert entry.created.startswith("20")
    assert [name] == store.experience_ids()


def test_the_same_lesson_found_elsewhere_is_stored_once(store: Store) -> None:
    """Where it was found is not part of what it is; the first place stays."""
    first = store.add_experience(LESSON)
    assert first == store.add_experience(replace(LESSON, origin={"run": "another"}))
    assert (LESSON,) == store.experiences("cpp")


def test_experiences_written_before_there_were_titles_are_read(store: Store, root: Path) -> None:
    """And found anew, they keep their name."""
    data = json.loads(
        """{"backend": "cpp", "family": "norm", "arch": "avx2", "workload": "w", "lesson": "vectorise the row loop",
        "helped": true, "speedup": 1.3, "slow": "", "fast": "", "structure": {}, "tunables": {"TILE": 8},
        "change": {"structure.loop": "vector"}}"""
    )
    name = sha256(canonical_json(data).encode())
    (root / "v1" / "memory").mkdir(parents=True)
    old = {"version": 1, "created": "2026-01-01T00:00:00+00:00", "experience": data}
    (root / "v1" / "memory" / f"{name}.json").write_text(json.dumps(old))
    assert (experience(),) == store.experiences("cpp")
    assert name == store.add_experience(experience())


def test_an_experience_can_be_forgotten(store: Store) -> None:
    """Once."""
    name = store.add_experience(LESSON)
    assert [True, False] == [store.remove_experience(name), store.remove_experience(name)]
    assert () == store.memory()


# ---------------------------------------------------------------- withdrawal


def test_a_lesson_is_withdrawn_with_the_record_of_its_kernel(store: Store, root: Path) -> None:
    """It is not given to searches, in any process; people see it with the reason. Lessons of other kernels stay."""
    other = replace(experience("other"), fast="int right;")
    for lesson in (LESSON, other):
        store.add_experience(lesson)
    bad = store.put(winner(text=BAD), workload())
    store.put(winner(text="int right;", us=11.0), workload())
    store.quarantine(bad, "rerun numerics 3 of 8 elements off")
    again = Store.open(root, readonly=True)
    assert (other,) == again.experiences("cpp")
    reasons = {entry.experience.lesson: entry.withdrawn for entry in again.memory()}
    assert {"other": "", LESSON.lesson: "rerun numerics 3 of 8 elements off"} == reasons


def test_a_lesson_that_only_names_its_kernel_is_withdrawn_too(store: Store) -> None:
    """By the digest in its origin, and also when it is learned after the kernel went."""
    store.quarantine(store.put(winner(text=BAD), workload()), "wrong")
    store.add_experience(replace(LESSON, fast="// an excerpt", origin={"source": winner(text=BAD).source.digest}))  # type: ignore[union-attr]
    assert () == store.experiences("cpp")


def test_a_kernel_whose_step_had_hurt_is_no_evidence_of_a_lesson(store: Store) -> None:
    """The slow kernel of a pair may go; what is recommended is the fast one."""
    hurt = replace(LESSON, helped=False, slow=BAD, fast="int right;")
    store.add_experience(hurt)
    store.quarantine(store.put(winner(text=BAD), workload()), "wrong")
    assert (hurt,) == store.experiences("cpp")


def test_damage_to_a_record_says_nothing_of_its_kernel(store: Store, root: Path) -> None:
    """A flipped byte on a disk withdraws no lesson; nor does removing a record by hand, nor a baseline."""
    store.add_experience(LESSON)
    name = store.put(winner(text=BAD), workload())
    only(root / "v1" / "records").write_bytes(b"{}")
    store.quarantine(name, "its digest is not its name")
    store.remove(store.put(winner(text=BAD), workload()))
    store.quarantine(store.put(baseline()), "why not")
    store.quarantine("v1/records", "all of it")
    assert (LESSON,) == store.experiences("cpp")


def test_a_kernel_that_is_proven_again_gives_its_lessons_back(store: Store) -> None:
    """As the put of a record lifts its tombstone. A kernel that did not run on the device proves nothing."""
    store.add_experience(LESSON)
    store.quarantine(store.put(winner(text=BAD), workload()), "wrong")
    store.put(candidate(text=BAD), workload())
    assert () == store.experiences("cpp")
    store.put(winner(text=BAD), workload())
    assert (LESSON,) == store.experiences("cpp")


@pytest.mark.parametrize("mark", [b"", b"{", b'{"reason": 3}', b"[]"])
def test_a_damaged_mark_still_marks(store: Store, root: Path, mark: bytes) -> None:
    """Only its reason is lost."""
    store.add_experience(LESSON)
    store.quarantine(store.put(winner(text=BAD), workload()), "wrong")
    only(root / "v1" / "withdrawn").write_bytes(mark)
    for _ in range(2):
        assert () == store.experiences("cpp")
    assert all(entry.withdrawn for entry in store.memory())


# ---------------------------------------------------------------- hostile files


def forged(root: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The one experience of the store, changed and with its digests put right."""
    path = only(root / "v1" / "memory")
    document = json.loads(path.read_bytes())
    change(document)
    if "origin_sha256" in document:
        document["origin_sha256"] = sha256(canonical_json(document["origin"]).encode())
    path.unlink()
    made = path.with_name(f"{sha256(canonical_json(document['experience']).encode())}.json")
    made.write_text(json.dumps(document))
    return made


def field(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["experience"].__setitem__(name, value)


def origin(value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.__setitem__("origin", value)


FORGERIES: dict[str, Callable[[dict[str, Any]], None]] = {
    "a huge lesson": field("lesson", "x" * (TEXT_LIMIT + 1)),
    "a title that is no text": field("title", ["x"]),
    "a lesson that is no text": field("lesson", None),
    "a speedup as text": field("speedup", "1.5"),
    "a speedup that is true": field("speedup", True),
    "a negative speedup": field("speedup", -2),
    "helped as a number": field("helped", 1),
    "a tunable as text": field("tunables", {"TILE": "8"}),
    "tunables that are a list": field("tunables", [1]),
    "a change to a number": field("change", {"structure.loop": 3}),
    "a kernel that is half a character": field("fast", "\ud800"),
    "an origin that is a list": origin(["run"]),
    "an origin with an object in it": origin({"run": {"a": "b"}}),
    "an origin of a thousand pairs": origin({str(n): "x" for n in range(1000)}),
    "an origin with a huge plan": origin({"plan": "x" * (TEXT_LIMIT + 1)}),
}


@pytest.mark.parametrize("name", sorted(FORGERIES))
def test_a_forged_experience_is_skipped_with_a_warning(
    store: Store, root: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """A right digest does not make it sane; the others are read."""
    store.add_experience(LESSON)
    path = forged(root, FORGERIES[name])
    good = replace(LESSON, lesson="sane")
    store.add_experience(good)
    assert (good,) == store.experiences("cpp")
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert path.name in warning and len(warning) < 1000


def test_an_origin_that_was_changed_is_damage(store: Store, root: Path) -> None:
    """It is not part of the name, so it has a digest of its own."""
    store.add_experience(LESSON)
    path = only(root / "v1" / "memory")
    path.write_text(path.read_text().replace('"model": "m"', '"model": "n"'))
    assert () == store.memory()


@pytest.mark.parametrize(
    "wrong",
    [
        replace(LESSON, lesson="x" * (TEXT_LIMIT + 1)),
        replace(LESSON, origin={"plan": "\ud800"}),
        replace(LESSON, origin={"plan": 3}),  # type: ignore[dict-item]
        replace(LESSON, fast="x" * (9 << 20)),
    ],
)
def test_what_could_not_be_read_back_is_not_stored(store: Store, wrong: Experience) -> None:
    """Its author learns of it at once."""
    with pytest.raises(InvalidRecord):
        store.add_experience(wrong)
    assert [] == store.experience_ids()
