"""What doctor reads from the system's own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelopt_compile.cli.machine import compiler, filesystem_of, openmp_runtimes

MAPS = """\
7f0 r-xp 0 08:01 1 /usr/lib/libgomp.so.1
7f1 r--p 0 08:01 1 /usr/lib/libgomp.so.1
7f2 r-xp 0 08:01 2 /opt/torch/lib/libgomp-a34.so.1
7f3 r-xp 0
"""


def test_two_openmp_runtimes_are_a_warning_that_names_both() -> None:
    """The same library mapped twice is one; another path is another."""
    found = openmp_runtimes(MAPS)
    assert ("warn", True) == (found.state, "/opt/torch/lib/libgomp-a34.so.1" in found.value and bool(found.advice))
    assert "ok" == openmp_runtimes(MAPS.replace("/opt/torch/lib/libgomp-a34.so.1", "/usr/lib/libc.so")).state


def test_the_file_system_is_that_of_the_longest_mount_point() -> None:
    """A mount below another wins; a mount that only shares letters does not."""
    mounts = "a / ext4 rw 0 0\nb /home nfs rw 0 0\nc /home2 xfs rw 0 0\n"
    assert ["nfs", "xfs", "ext4"] == [filesystem_of(Path(p), mounts) for p in ("/home/me/cache", "/home2/x", "/homestead")]


def test_a_missing_compiler_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiler is a failure with a next step."""
    monkeypatch.delenv("CXX", raising=False)
    found = compiler(candidates=("surely-no-such-compiler",))
    assert ("fail", True) == (found.state, "g++" in found.advice)
