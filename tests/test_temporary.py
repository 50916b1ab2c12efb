"""Temporary folders: gone with their process, however it ended, and never under one that lives."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from accelopt_compile import temporary

MAKES = "from accelopt_compile import temporary; kept = temporary.Folder('search'); print(kept.name, flush=True);"
LONG_AGO = (time.time() - 3600,) * 2


def process(top: Path, code: str) -> subprocess.Popen[str]:
    """A process that has made a folder below `top` and does `code`."""
    environment = {**os.environ, "TMPDIR": str(top)}
    return subprocess.Popen(
        [sys.executable, "-c", MAKES + code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def left(top: Path) -> list[str]:
    return [path.name for path in top.iterdir()]


def test_a_process_that_ends_leaves_nothing(tmp_path: Path) -> None:
    made = process(tmp_path, "")
    told, _ = made.communicate(timeout=60)
    assert tmp_path == Path(told.strip()).parents[1]
    assert [] == left(tmp_path)


@pytest.mark.parametrize("ended", ["kill", "os._exit"])
def test_the_next_process_removes_what_one_left_that_could_not(tmp_path: Path, ended: str) -> None:
    """What a process has that lives stays, and so does what is too young to have its lock."""
    lives = process(tmp_path, "input()")
    assert lives.stdout is not None
    kept = Path(lives.stdout.readline().strip())
    killed = process(
        tmp_path, f"import os; os.kill(os.getpid(), {signal.SIGKILL})" if ended == "kill" else "import os; os._exit(0)"
    )
    gone = Path(killed.communicate(timeout=60)[0].strip())
    young = tmp_path / "accelopt-run-young"
    young.mkdir()
    for path in (kept.parent, gone.parent):
        os.utime(path, LONG_AGO)
    try:
        assert gone.is_dir()
        process(tmp_path, "").communicate(timeout=60)
        assert sorted([kept.parent.name, young.name]) == sorted(left(tmp_path))
        assert kept.is_dir()
    finally:
        lives.kill()
        lives.wait()


def test_a_fork_that_ends_leaves_its_parent_s_folder(tmp_path: Path) -> None:
    """Nor does it give up the lock of it."""
    code = "import os; child = os.fork();\nif child: os.waitpid(child, 0); print('ended', flush=True); input()"
    parent = process(tmp_path, code)
    assert parent.stdout is not None
    try:
        kept = Path(parent.stdout.readline().strip())
        assert "ended" == parent.stdout.readline().strip()
        assert [kept.parent.name] == left(tmp_path)
        os.utime(kept.parent, LONG_AGO)
        process(tmp_path, "").communicate(timeout=60)
        assert [kept.parent.name] == left(tmp_path)
    finally:
        parent.kill()
        parent.wait()


def test_a_fork_that_drops_a_folder_leaves_it_to_its_parent(tmp_path: Path) -> None:
    """As every worker of a loader does with the fork server's."""
    code = "import os; child = os.fork();\nif child: os.waitpid(child, 0); print(os.path.isdir(kept.name))\ndel kept"
    told, _ = process(tmp_path, code).communicate(timeout=60)
    assert "True" == told.splitlines()[-1]
    assert [] == left(tmp_path)


def test_links_and_files_of_that_name_are_left_alone(tmp_path: Path) -> None:
    elsewhere, top = tmp_path / "elsewhere", tmp_path / "top"
    for folder in (elsewhere, top):
        folder.mkdir()
    (top / "accelopt-run-link").symlink_to(elsewhere)
    (top / "accelopt-run-file").touch()
    os.utime(elsewhere, LONG_AGO)
    process(top, "").communicate(timeout=60)
    assert ["accelopt-run-file", "accelopt-run-link"] == sorted(left(top))
    assert [] == left(elsewhere)


def test_a_folder_that_was_cleaned_away_is_made_anew() -> None:
    """What sweeps /tmp of old things takes it from under a process that has been running for weeks."""
    first = temporary.Folder("search")
    shutil.rmtree(Path(first.name).parent)
    with temporary.Folder("search") as second:
        assert Path(second).is_dir()
