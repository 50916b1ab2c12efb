"""The user's precompiled headers, as far as the children that compile baselines get to see them."""

from __future__ import annotations

import getpass
import tempfile
from pathlib import Path

import pytest

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


def test_what_is_built_is_read_where_it_lies(user_s: Path, tmp_path: Path) -> None:
    assert {"LOGNAME": getpass.getuser()} == lend_headers(str(tmp_path / "baselines"))
    assert {"built.h", "built.h.gch"} == {path.name for path in lent(tmp_path).iterdir()}
    assert (user_s / "built.h.gch").resolve() == (lent(tmp_path) / "built.h.gch").resolve()


def test_a_header_of_its_own_stays_and_a_link_to_nowhere_goes(user_s: Path, tmp_path: Path) -> None:
    lend_headers(str(tmp_path / "baselines"))
    for name in ("built.h", "built.h.gch"):
        (user_s / name).rename(user_s / f"renewed{name.removeprefix('built')}")
    (lent(tmp_path) / "own.h.gch").write_text("own")
    lend_headers(str(tmp_path / "baselines"))
    assert {"own.h.gch", "renewed.h", "renewed.h.gch"} == {path.name for path in lent(tmp_path).iterdir()}
    assert "own" == (lent(tmp_path) / "own.h.gch").read_text()


def test_without_a_folder_of_the_user_s_nothing_is_lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    lend_headers(str(tmp_path / "baselines"))
    assert not list(lent(tmp_path).iterdir())
