"""What a user can get wrong in MODULE:FACTORY, and what the command line says then."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from accelopt_compile.cli import run
from accelopt_compile.cli.output import Output
from accelopt_compile.cli.prewarm import hints, say_that_it_tunes


def at_home(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules and the store of this test lie in `place`."""
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(place / "store"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_colon", "is not MODULE:FACTORY"),
        ("not_there_at_all:build", "no module 'not_there_at_all'"),
        ("broken_model:build", "cannot be imported"),
        ("good_model:biuld", "it has: build, turned"),
        ("good_model.py:build", "name the module, good_model:build"),
        ("./some/good_model.py:build", "name the module, some.good_model:build"),
        ("/some/good_model.py:build", "name the module, good_model:build"),
        ("good_model:build", "returned int, not a pair (module, inputs)"),
        ("good_model:turned", "returned a pair whose first is int, not a module"),
        ("good_model:sized", "the factory good_model:sized needs width, depth; a factory takes no arguments"),
    ],
)
def test_a_wrong_factory_is_a_usage_error(
    name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each mistake ends with exit code 2, one line, and no traceback."""
    (tmp_path / "broken_model.py").write_text("def build(:\n")
    (tmp_path / "good_model.py").write_text(
        "def build():\n    return 3\n\ndef sized(width, *, depth, bias=True):\n    return 3\n\n"
        "def turned():\n    return 3, print\n"
    )
    at_home(tmp_path, monkeypatch)
    assert 2 == run(["prewarm", name])
    error = capsys.readouterr().err
    assert says in error and "Traceback" not in error
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("command", ["prewarm", "tune"])
@pytest.mark.parametrize(
    ("module", "text", "raised"),
    [
        ("raising_factory", "def build():\n    return {}['weights']\n", "KeyError: 'weights'"),
        ("exiting_factory", "def build():\n    raise SystemExit('no weights')\n", "SystemExit: no weights"),
        ("raising_module", "import math\nmath.sqrt(-1)\ndef build(): ...\n", "ValueError: "),
    ],
)
def test_what_a_users_code_raises_is_shown_without_frames_of_ours(
    command: str,
    module: str,
    text: str,
    raised: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 1, what it raised in the first line, the line of his that did; with --json also as the document."""
    module = f"{command}_{module}"  # a module is imported once
    (tmp_path / f"{module}.py").write_text(text)
    at_home(tmp_path, monkeypatch)
    assert 1 == run([command, f"{module}:build", "--json"])
    said = capsys.readouterr()
    assert raised in said.err.splitlines()[0] and f"accelopt: error: {module}:build failed: " in said.err
    assert f'File "{tmp_path / module}.py", line 2' in said.err and "accelopt_compile" not in said.err
    assert (1, True) == (json.loads(said.out)["exit_code"], raised in json.loads(said.out)["error"])


def test_what_a_users_model_raises_is_an_error_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inputs that do not fit it."""
    (tmp_path / "unfit_model.py").write_text("import torch\ndef build():\n    return torch.nn.Linear(3, 3), torch.ones(2, 5)\n")
    at_home(tmp_path, monkeypatch)
    assert 1 == run(["prewarm", "unfit_model:build", "--json"])
    said = capsys.readouterr()
    assert "the model of unfit_model:build failed: " in json.loads(said.out)["error"]
    assert "accelopt_compile/cli" not in said.err


def test_hints_say_what_to_do_about_regions_without_a_kernel() -> None:
    """A larger budget, or another search; nothing where nothing can be done."""
    late = {"outcome": "MISS", "reason": "the time budget is spent"}
    kept = {"outcome": "BASELINE", "reason": "no candidate was faster"}
    never = {"outcome": "MISS", "reason": "cpp: no such operator"}
    reached = "the budget did not reach 1 region: "
    onwards = f"{reached}the same command goes on, or give a larger --budget-s"
    assert [onwards] == hints([late, never], budget_s=60.0, retune=False)
    assert [f"{reached}give a larger --budget-s"] == hints([late, never], budget_s=0.0, retune=False)
    assert ["--retune searches again where a search kept the baseline"] == hints([kept], budget_s=60.0, retune=False)
    assert [] == hints([kept, never], budget_s=60.0, retune=True)


def test_a_command_that_tunes_says_where_another_mode_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the variable, or by pyproject.toml."""
    at_home(tmp_path, monkeypatch)
    out = Output(as_json=False, level=0)
    say_that_it_tunes(out)
    assert "" == capsys.readouterr().err
    monkeypatch.setenv("ACCELOPT_MODE", "apply")
    say_that_it_tunes(out)
    assert "mode apply ($ACCELOPT_MODE) is for processes that serve; this command tunes\n" == capsys.readouterr().err


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
