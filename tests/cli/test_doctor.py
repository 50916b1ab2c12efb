"""What `accelopt doctor` prints, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accelopt_compile.cli import run
from accelopt_compile.cli.doctor import described
from accelopt_compile.config import describe_settings
from tests.cli.test_unwritable_store import unwritable

pytest.importorskip("torch")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a pyproject.toml, and a store beside it that is not there yet."""
    for name, value in (("ACCELOPT_CACHE_DIR", str(tmp_path / "store")), ("ACCELOPT_LOG", ""), ("ACCELOPT_SEED", "3")):
        monkeypatch.setenv(name, value)
    (tmp_path / "pyproject.toml").write_text('[tool.accelopt]\nmode = "tune"\nrounds = 2\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, tuple[Any, str]]:
    """Value and origin of each setting that is not at its default."""
    run(["doctor", "--json", *options])
    found = json.loads(capsys.readouterr().out)["settings"]
    return {one["name"]: (one["value"], one["source"]) for one in found if one["source"] != "default"}


def test_doctor_makes_no_store(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says that there is none, and whether one can be made."""
    run(["doctor"])
    assert f"{project / 'store'}: not there yet, the first search makes it" in capsys.readouterr().out
    assert not (project / "store").exists()
    with unwritable(project):
        run(["doctor"])
    assert f"{project / 'store'} cannot be written" in capsys.readouterr().out


def test_quiet_doctor_prints_what_is_wrong_and_the_verdict(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No table of what is fine, no settings."""
    (project / "store").write_text("a file where a folder is needed")
    run(["doctor", "-q"])
    *wrong, verdict = capsys.readouterr().out.splitlines()
    assert verdict.startswith("kernels can")
    assert [True] == [f"{project / 'store'} is not a directory" in line for line in wrong if line.startswith("WARN store: ")]
    assert all(line.startswith(("WARN ", "FAIL ")) for line in wrong)


def test_doctor_names_the_true_origin_of_a_setting(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An option, pyproject.toml also where it says what the default is, or the user's variable."""
    file = "pyproject.toml [tool.accelopt]"
    expected = {"mode": ("tune", file), "rounds": (2, file), "seed": (3, "$ACCELOPT_SEED")}
    store = str(project / "store")
    assert {**expected, "cache_dir": (store, "$ACCELOPT_CACHE_DIR")} == settings(capsys)
    given = {"cache_dir": (store, "--cache-dir"), "log": ("quiet", "-q")}
    assert {**expected, **given} == settings(capsys, "-q", "--cache-dir", store)


def test_verbose_doctor_says_what_each_setting_means(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In lines that fit a terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    run(["doctor", "-v"])
    printed = capsys.readouterr().out
    words = " ".join(printed.split())
    assert [] == [name for name, _, _, meaning in describe_settings() if meaning not in words]
    for name, _, value, meaning in describe_settings():
        told = described({"name": name, "value": value, "source": "default", "meaning": meaning})
        assert max(map(len, told.splitlines())) <= 80
