"""A root that cannot be used costs one warning, never an exception."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from accelopt_cache import Store, layout
from tests.cache.conftest import Child
from tests.cache.samples import TARGET, winner, workload

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another uid or mount")


def serves_in_memory(root: Path | str, caplog: pytest.LogCaptureFixture, *names: str) -> None:
    """The store at `root` works within the process, and one warning holds every one of `names`."""
    store = Store.open(root)
    store.put(winner(), workload())
    assert (winner(),) == store.winners(workload().digest, TARGET)
    assert workload() == store.workload(workload().digest)
    with store.claim("w", TARGET) as mine:
        assert mine
    assert store.build_dir(TARGET, "key").is_dir()
    Store.open(root).put(winner())
    (message,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    for name in names:
        assert name in message


def test_a_new_root_is_private_and_tagged(store: Store, root: Path) -> None:
    """Cached kernels are code: nobody else may write them. Backup tools see the tag."""
    store.put(winner(), workload())
    assert {0o700} == {p.stat().st_mode & 0o777 for p in (root, *root.rglob("*")) if p.is_dir()}
    assert {0o600} == {p.stat().st_mode & 0o777 for p in root.rglob("*") if p.is_file()}
    assert (root / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert 1 == json.loads((root / "FORMAT").read_text())["format"]


def test_a_root_shared_with_a_group_stays_shared(root: Path) -> None:
    """Directories and files take the permissions of the root."""
    root.mkdir()
    root.chmod(0o2770)
    Store.open().put(winner(), workload())
    assert {0o2770} == {p.stat().st_mode & 0o7777 for p in root.rglob("*") if p.is_dir()}
    assert {0o660} == {p.stat().st_mode & 0o777 for p in (root / "v1").rglob("*") if p.is_file()}


def test_a_file_in_place_of_the_root(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A path that is a file, or lies below one."""
    (tmp_path / "file").write_text("x")
    serves_in_memory(tmp_path / "file" / "below", caplog, str(tmp_path / "file" / "below"))
    caplog.clear()
    serves_in_memory(tmp_path / "file", caplog, str(tmp_path / "file"))
    assert "x" == (tmp_path / "file").read_text()


def test_an_absent_root_is_empty_and_silent_when_only_read(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing to read is no fault."""
    store = Store.open(readonly=True)
    assert () == store.winners(workload().digest, TARGET)
    assert [] == caplog.records
    assert not root.exists()


def test_a_root_writable_by_everyone_is_refused(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write there runs code as us; the variable admits it."""
    Store.open().put(winner(us=3.0), workload())
    root.chmod(0o777)
    serves_in_memory(root, caplog, str(root), "everyone")
    assert () == Store.open(readonly=True).winners(workload().digest, TARGET)
    monkeypatch.setenv("ACCELOPT_ALLOW_SHARED", "1")
    assert (winner(us=3.0),) == Store.open().winners(workload().digest, TARGET)


@as_root
def test_a_root_of_another_user_is_refused(root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for root: its owner could have put anything there."""
    Store.open().put(winner(us=3.0), workload())
    os.chown(root, 65534, 65534)
    serves_in_memory(root, caplog, str(root), "65534")
    monkeypatch.setenv("ACCELOPT_ALLOW_SHARED", "1")
    assert (winner(us=3.0),) == Store.open().winners(workload().digest, TARGET)


def test_a_newer_format_is_left_alone(store: Store, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An older version neither reads nor writes it, and says so."""
    (root / "FORMAT").write_text('{"format": 2}')
    serves_in_memory(root, caplog, str(root), "format 2")
    assert {"FORMAT", "CACHEDIR.TAG"} == {p.name for p in root.iterdir()}


@as_root
def test_an_unwritable_root_is_read_and_kept_as_it_is(store: Store, root: Path, child: Child) -> None:
    """Another user, without permission to write, is served from a root-owned cache; what it finds stays with it."""
    store.put(winner(), workload())
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for path in (root, *root.parents):
        if Path(tempfile.gettempdir()) in path.parents:
            path.chmod(0o755)
    process = child("as-uid", "65534", "read")
    out, err = process.communicate()
    assert "True 2 False" == out.strip(), err
    assert 1 == len(err.strip().splitlines()), err
    assert str(root) in err
    assert (winner(),) == Store.open().winners(workload().digest, TARGET)


@as_root
def test_a_user_without_account_and_home_is_served_from_memory(child: Child) -> None:
    """A container's arbitrary uid has neither; nothing is written to the working directory."""
    process = child("as-uid", "43210", "read", at="", env={"HOME": "", "ACCELOPT_CACHE_DIR": "", "XDG_CACHE_HOME": ""})
    out, err = process.communicate()
    assert "False 1 False" == out.strip(), err
    assert 1 == len(err.strip().splitlines()), err
    assert not Path("~").exists()


def test_a_file_that_does_not_fit_stays_in_memory(child: Child, root: Path) -> None:
    """A limit hit while writing leaves no torn file: the record is served in the process and absent on disk."""
    process = child("fill", 4096)
    out, err = process.communicate()
    assert "1" == out.strip(), err
    assert 1 == len(err.strip().splitlines()), err
    assert () == Store.open().winners(workload().digest, TARGET)
    assert [] == list(root.rglob(".tmp-*"))


@as_root
def test_a_full_disk_keeps_what_is_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """ENOSPC costs one warning; earlier records are still read, and later ones go to disk once there is room."""
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "none", str(disk)], check=False).returncode:
        pytest.skip("cannot mount")
    try:
        store = Store.open(disk)
        store.put(winner(), workload())
        filler = disk / "filler"
        with pytest.raises(OSError, match="space"), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        store.put(winner(text="// " + "y" * 20_000, us=5.0))
        assert 2 == len(store.winners(workload().digest, TARGET))
        assert (winner(),) == Store.open(disk).winners(workload().digest, TARGET)
        assert 1 == len([r for r in caplog.records if r.levelname == "WARNING"])
        filler.unlink()
        store.put(winner(text="// " + "y" * 20_000, us=5.0))
        assert 2 == len(Store.open(disk).winners(workload().digest, TARGET))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_the_default_root_is_under_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The variable first, else XDG_CACHE_HOME; a relative path is taken from the working directory."""
    assert Path("/a/b") == layout.default_root({"ACCELOPT_CACHE_DIR": "/a/b"})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "accelopt" == layout.default_root({})
    monkeypatch.chdir(tmp_path)
    assert tmp_path.resolve() / "relative" == Store.open("relative/").root


def test_the_store_imports_without_torch(child: Child) -> None:
    """A look-up must not cost the import of a framework."""
    out, err = child("modules").communicate()
    assert "False" == out.strip(), err


@as_root
def test_what_cannot_be_read_now_stays(store: Store, root: Path, child: Child) -> None:
    """A source without permission to read, or a process without descriptors, is no damage."""
    store.put(winner(), workload())
    before = {path for path in root.rglob("*") if path.is_file()}
    (source,) = (root / "v1" / "blobs").rglob("*/*/*")
    for path in (root, *root.rglob("*")):
        os.chown(path, 65534, 65534)
    os.chown(source, 0, 0)
    for path in root.parents:
        if Path(tempfile.gettempdir()) in path.parents:
            path.chmod(0o755)
    process = child("as-uid", "65534", "read")
    out, err = process.communicate()
    assert "False 1 True" == out.strip(), err  # not served; the one is what that process added
    assert f"{source} cannot be read" in err
    assert before <= set(root.rglob("*"))
