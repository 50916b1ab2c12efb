"""Several processes on one root: nothing is lost, torn or blocked, whoever is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from accelopt_cache import Store, collect
from tests.cache.conftest import Child
from tests.cache.samples import TARGET, workload


def test_four_writers_lose_nothing(child: Child, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """4 processes put 50 records each on one workload while this one reads: the union is there, no read sees a torn file."""
    writers = [child("put", f"w{number}", 50) for number in range(4)]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        seen = max(seen, len(Store.open(root).winners(workload().digest, TARGET)))
    for writer in writers:
        _, err = writer.communicate()
        assert 0 == writer.returncode, err
        assert "" == err
    expected = {f"// w{w} {n}" for w in range(4) for n in range(50)}
    found = Store.open(root).winners(workload().digest, TARGET)
    assert expected == {record.source.text for record in found if record.source is not None}
    assert seen <= 200
    assert not caplog.records


def test_a_killed_writer_leaves_a_readable_store(child: Child, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """10 writers killed in the middle of their work: every record that is there reads, and `prune` sweeps what they left."""
    for number in range(10):
        writer = child("put-forever")
        assert writer.stdout is not None
        assert "ready" == writer.stdout.readline().strip()
        time.sleep(0.01 + 0.013 * number)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    left = root / "v1" / "blobs" / "sha256" / ".tmp-killed"
    left.write_bytes(b"half a kernel")
    store = Store.open(root)
    listed = [entry for entry in store.walk() if entry[3] == "winner"]
    assert len(listed) == len(store.winners(workload().digest, TARGET)) > 0
    progress = store.load_progress(workload().digest, TARGET)
    assert progress is None or 100_000 == len(progress["text"])
    assert not caplog.records
    collect(store, grace_s=0.0)
    assert [] == list(root.rglob(".tmp-*"))
    assert len(listed) == len(Store.open(root).winners(workload().digest, TARGET))


def test_a_claim_excludes_and_is_freed_by_sigkill(child: Child, store: Store) -> None:
    """One process searches; others are told who it is, may wait, and follow as soon as it is killed."""
    holder = child("hold")
    assert holder.stdout is not None
    assert "True" == holder.stdout.readline().strip()
    with store.claim("w", TARGET) as mine:
        assert not mine
    with store.claim("w", "other-target") as mine:
        assert mine
    note = store.holder("w", TARGET)
    assert note is not None
    assert holder.pid == note.pid
    assert not store.wait("w", TARGET, 0.1)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert store.wait("w", TARGET, 5.0)
    assert store.holder("w", TARGET) is None
    with store.claim("w", TARGET) as mine:
        assert mine
        assert os.getpid() == store.holder("w", TARGET).pid  # type: ignore[union-attr]


def test_a_waiter_sees_the_end_of_the_claim(store: Store) -> None:
    """Two threads of one process exclude each other too, and waiting ends when the holder is done."""
    done = threading.Event()
    held = threading.Event()

    def hold() -> None:
        with store.claim("w", TARGET) as mine:
            assert mine
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    with store.claim("w", TARGET) as mine:
        assert not mine
    done.set()
    assert store.wait("w", TARGET, 10.0)
    thread.join()


def test_a_claim_is_released_when_the_search_raises(store: Store) -> None:
    """An error in a search does not block the next one."""
    with pytest.raises(ValueError, match="search"), store.claim("w", TARGET):
        raise ValueError("search")
    with store.claim("w", TARGET) as mine:
        assert mine


@pytest.mark.parametrize("obstacle", ["file", "directory", "link"])
def test_an_obstacle_in_place_of_the_lock_does_not_stop_a_search(store: Store, root: Path, tmp_path: Path, obstacle: str) -> None:
    """Where no lock can be made the search goes on; a link is not followed."""
    lock = root / "v1" / "locks" / f"w.{TARGET}.lock"
    target = tmp_path / "precious"
    target.write_text("precious")
    if obstacle == "file":
        (root / "v1").mkdir()
        lock.parent.write_text("in the way")
    else:
        lock.parent.mkdir(parents=True)
        lock.mkdir() if obstacle == "directory" else lock.symlink_to(target)
    with store.claim("w", TARGET) as mine:
        assert mine
    assert "precious" == target.read_text()
