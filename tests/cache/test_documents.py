"""Graphs, progress, experiences and builds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from accelopt_cache import Store, builds, durable
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records import Experience
from tests.cache.samples import TARGET, experience


def test_a_graph_document_is_replaced_as_a_whole(store: Store, root: Path) -> None:
    """The last one put is read back by any process."""
    assert store.graph("g1") is None
    store.put_graph("g1", {"regions": ["a"], "n": 1.5})
    store.put_graph("g1", {"regions": ["b"]})
    assert {"regions": ["b"]} == Store.open(root).graph("g1")


def test_progress_lasts_until_it_is_cleared(store: Store, root: Path) -> None:
    """The next run goes on from what an interrupted one saved."""
    store.save_progress("w", TARGET, {"round": 2, 7: (1, 2)})  # type: ignore[dict-item]
    assert {"round": 2, "7": [1, 2]} == Store.open(root).load_progress("w", TARGET)
    assert store.load_progress("w", "other") is None
    store.clear_progress("w", TARGET)
    store.clear_progress("w", TARGET)
    assert store.load_progress("w", TARGET) is None


@pytest.mark.parametrize("value", [float("inf"), object(), "\ud800" * 2_000_000])
def test_what_is_not_json_is_refused_when_it_is_saved(store: Store, value: object) -> None:
    """The caller learns of it at once, and what was there stays."""
    store.save_progress("w", TARGET, {"round": 1})
    with pytest.raises(InvalidRecord):
        store.save_progress("w", TARGET, {"round": value})
    assert {"round": 1} == store.load_progress("w", TARGET)


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a\0b", ".hidden", "x" * 300])
def test_no_name_leaves_its_directory(store: Store, name: str) -> None:
    """A read of an impossible name is a miss, a write is refused."""
    assert store.graph(name) is None
    assert store.workload(name) is None
    assert store.load_progress(name, TARGET) is None
    assert store.built(TARGET, name) is None
    assert () == store.records(name)
    assert store.best(name, name, {}) is None
    with pytest.raises(InvalidRecord):
        store.put_graph(name, {})
    with pytest.raises(InvalidRecord):
        store.build_dir(name, "key")


def test_experiences_come_newest_first_and_once(store: Store, root: Path) -> None:
    """Retrieval is by backend, and by family and architecture where given."""
    first, second = experience("first"), experience("second", family="softmax", arch="neon")
    for item in (first, second, first, experience("other", backend="triton")):
        store.add_experience(item)
    again = Store.open(root)
    assert (second, first) == again.experiences("cpp")
    assert (first,) == again.experiences("cpp", family="norm")
    assert (second,) == again.experiences("cpp", arch="neon")
    assert () == again.experiences("cpp", family="norm", arch="neon")


@pytest.mark.parametrize(
    "wrong",
    [replace(experience(), speedup=float("nan")), replace(experience(), speedup=-1.0), replace(experience(), lesson=3)],  # type: ignore[arg-type]
)
def test_an_experience_that_teaches_nothing_is_refused(store: Store, wrong: Experience) -> None:
    """Nothing goes to disk that could not be read back."""
    with pytest.raises(InvalidRecord):
        store.add_experience(wrong)


def test_a_built_kernel_is_content_named_and_never_rewritten(store: Store) -> None:
    """A process that has the old file mapped keeps it when the artifact is built again."""
    directory = store.build_dir(TARGET, "key")
    (directory / "k.so").write_bytes(b"one")
    first = store.put_built(TARGET, "key", directory / "k.so")
    inode = first.stat().st_ino
    (directory / "k.so").write_bytes(b"two")
    second = store.put_built(TARGET, "key", directory / "k.so")
    assert second == store.built(TARGET, "key") != first
    assert (b"one", inode) == (first.read_bytes(), first.stat().st_ino)
    assert store.built(TARGET, "another key".replace(" ", "-")) is None


def test_a_kernel_built_elsewhere_is_not_used(store: Store, root: Path, tmp_path: Path) -> None:
    """The host is part of what is checked, even when the index is renamed to look like ours."""
    (tmp_path / "k.so").write_bytes(b"elf")
    store.put_built(TARGET, "key", tmp_path / "k.so")
    (index,) = root.rglob("built-*.json")
    document = durable.parse_object(index.read_bytes())
    document["host"] = "0" * 64
    index.write_bytes(durable.encode(document))
    assert store.built(TARGET, "key") is None
    index.with_name("built-0000.json").write_bytes(b"{}")
    store.put_built(TARGET, "key", tmp_path / "k.so")
    assert store.built(TARGET, "key") is not None
    assert 64 == len(builds.host_fingerprint())


def test_builds_work_without_a_writable_root(root: Path, tmp_path: Path) -> None:
    """The files then live in a scratch directory of the process."""
    (tmp_path / "k.so").write_bytes(b"elf")
    store = Store.open(root, readonly=True)
    directory = store.build_dir(TARGET, "key")
    (directory / "probe").write_text("writable")
    kept = store.put_built(TARGET, "key", tmp_path / "k.so")
    assert kept == store.built(TARGET, "key")
    assert b"elf" == kept.read_bytes()
    assert not root.exists()
