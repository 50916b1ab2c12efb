"""What a user can get wrong in MODULE:FACTORY, and what the command line says then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accelopt_compile.cli import run


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_colon", "is not MODULE:FACTORY"),
        ("not_there_at_all:build", "no module 'not_there_at_all'"),
        ("broken_model:build", "cannot be imported"),
        ("good_model:biuld", "it has: build"),
        ("good_model:build", "not a pair (module, inputs)"),
    ],
)
def test_a_wrong_factory_is_a_usage_error(
    name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each mistake ends with exit code 2, one line, and no traceback."""
    (tmp_path / "broken_model.py").write_text("def build(:\n")
    (tmp_path / "good_model.py").write_text("def build():\n    return 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert 2 == run(["prewarm", name])
    error = capsys.readouterr().err
    assert says in error and "Traceback" not in error


def test_help_needs_neither_torch_nor_time() -> None:
    """`accelopt --help` must not import torch."""
    code = "import sys; from accelopt_compile.cli import run; c = run(['--help']); sys.exit(c or 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize(
    "arguments",
    [["doctor"], ["demo"], ["prewarm"], *(["cache", c] for c in ["ls", "show", "explain", "verify", "rm", "dir", "stats", "gc"])],
)
def test_every_command_has_an_example_and_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The help of each command shows at least one example and the --json option."""
    assert 0 == run([*arguments, "--help"])
    text = capsys.readouterr().out
    assert "Example" in text and "--json" in text


def test_an_unknown_command_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, as every command line does."""
    assert 2 == run(["cache", "explode"])
