"""The user's precompiled headers, as far as the children that compile baselines get to see them."""

from __future__ import annotations

import getpass
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock

from accelopt_compile.evaluate.sandbox.headers import lend_headers


@pytest.fixture
def user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of headers, with one in it that is built and one that is not yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    folder = tmp_path / "tmp" / f"torchinductor_{getpass.getuser()}" / "precompiled_headers"
    folder.mkdir(parents=True)
    for name in ("built.h", "built.h.gch", "planned.h"):
        (folder / name).write_text(name)
    return folder


def lent(tmp_path: Path) -> Path:
    return tmp_path / "baselines" / f"torchinductor_{getpass.getuser()}" / "precompiled_headers"


def test_what_is_built_is_lent_as_the_same_file(user_s: Path, tmp_path: Path) -> None:
    assert {"LOGNAME": getpass.getuser()} == lend_headers(str(tmp_path / "baselines"))
    assert {"built.h", "built.h.gch"} == {path.name for path in lent(tmp_path).iterdir()}
    assert (user_s / "built.h.gch").samefile(lent(tmp_path) / "built.h.gch")


def test_a_cache_that_the_user_clears_takes_nothing_away(user_s: Path, tmp_path: Path) -> None:
    lend_headers(str(tmp_path / "baselines"))
    shutil.rmtree(user_s)
    lend_headers(str(tmp_path / "baselines"))
    assert "built.h.gch" == (lent(tmp_path) / "built.h.gch").read_text()


def test_a_header_of_its_own_stays(user_s: Path, tmp_path: Path) -> None:
    lent(tmp_path).mkdir(parents=True)
    (lent(tmp_path) / "built.h.gch").write_text("own")
    lend_headers(str(tmp_path / "baselines"))
    assert "own" == (lent(tmp_path) / "built.h.gch").read_text()


def test_what_somebody_is_writing_is_not_lent(user_s: Path, tmp_path: Path) -> None:
    (user_s / "locks").mkdir()
    with FileLock(user_s / "locks" / "built.lock"):
        lend_headers(str(tmp_path / "baselines"))
        assert not (lent(tmp_path) / "built.h.gch").exists()
    lend_headers(str(tmp_path / "baselines"))
    assert (lent(tmp_path) / "built.h.gch").exists()


def test_without_a_folder_of_the_user_s_nothing_is_lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    lend_headers(str(tmp_path / "baselines"))
    assert not lent(tmp_path).exists()


@pytest.mark.thorough
def test_a_header_that_was_cut_short_costs_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GCC refuses it, wherever it ends; Inductor takes it for whole for ever. It is dropped, and the baseline compiled."""
    store, tmp = tmp_path / "store", tmp_path / "tmp"
    (tmp / f"torchinductor_{getpass.getuser()}" / "precompiled_headers").mkdir(parents=True)
    for name, value in (("ACCELOPT_CACHE_DIR", store), ("TMPDIR", tmp)):
        monkeypatch.setenv(name, str(value))
    baseline = """
import sys, torch
from pathlib import Path
from accelopt_compile.evaluate.sandbox import forkserver
from accelopt_compile.evaluate.sandbox.surroundings import baselines_folder
from accelopt_compile.evaluate import open_evaluator
from accelopt_backends.cpp import CppBackend
from tests.backends.seeds import regions_of

built = list(Path(baselines_folder()).glob("*/precompiled_headers/*.gch"))
for header in built:
    header.write_bytes(header.read_bytes()[:4096])
size = int(sys.argv[1])
((workload, binding),) = regions_of(lambda x: (x * 2).tanh(), torch.randn(9, size))
with open_evaluator(workload, binding, backend=CppBackend(), threads=1, seed=0, workdir=sys.argv[2]) as evaluator:
    print(len(built), *evaluator.baselines())
"""
    for size, told in ((64, "0 eager inductor"), (72, "1 eager inductor")):
        command = [sys.executable, "-c", baseline, str(size), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
        assert told in done.stdout, done.stderr
