"""Where settings come from, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accelopt_backends.base import Missing
from accelopt_backends.registry import backend_named, classes, is_target
from accelopt_backends.triton.targets import TARGETS
from accelopt_compile.config import Settings, describe_settings, settings_from
from accelopt_compile.errors import InvalidOption, UnknownOption


def project(directory: Path, body: str) -> Path:
    path = directory / "pyproject.toml"
    path.write_text(f"[tool.accelopt]\n{body}\n")
    return path


def test_defaults(tmp_path: Path) -> None:
    """Without anything said, the documented defaults hold."""
    assert Settings() == settings_from(env={}, pyproject=tmp_path / "none.toml")


def test_precedence(tmp_path: Path) -> None:
    """The call wins over options=, options= over pyproject.toml, pyproject.toml over the environment."""
    env = {"ACCELOPT_BUDGET_S": "1", "ACCELOPT_SEED": "1", "ACCELOPT_ROUNDS": "1", "ACCELOPT_WAIT": "true"}
    path = project(tmp_path, "budget_s = 2\nseed = 2\nrounds = 2")
    got = settings_from({"budget_s": 3, "seed": 3}, call={"budget_s": 4}, env=env, pyproject=path)
    assert (4.0, 3, 2, True) == (got.budget_s, got.seed, got.rounds, got.wait)


@pytest.mark.parametrize("where", ["options", "call", "pyproject"])
def test_unknown_name_gives_the_nearest(tmp_path: Path, where: str) -> None:
    """A misspelt setting is an error that names the right one."""
    with pytest.raises(UnknownOption, match="did you mean 'beam_width'"):
        settings_from(
            {"beam_widht": 3} if where == "options" else None,
            call={"beam_widht": 3} if where == "call" else None,
            env={},
            pyproject=project(tmp_path, "beam_widht = 3" if where == "pyproject" else ""),
        )


def test_an_unknown_name_in_a_file_names_the_file(tmp_path: Path) -> None:
    """Nobody looks for it there otherwise."""
    path = project(tmp_path, "budget = 3")
    with pytest.raises(UnknownOption, match=re.escape(f"'budget' (from {path} [tool.accelopt]); did you mean 'budget_s'?")):
        settings_from(env={}, pyproject=path)


@pytest.mark.parametrize(
    "target", ["cpp-aarch64-neon", "cpp-x86_64-avx512-bf16-fp16", "triton-cuda-sm_89", "reference-b", *TARGETS, ""]
)
def test_a_target_of_a_device_that_is_not_here_is_legal(target: str) -> None:
    """Kernels for it become candidates; `doctor` and a search say whether they can be made here."""
    assert target == settings_from({"target": target}, env={}).target


@pytest.mark.parametrize("name", sorted(classes()))
def test_the_target_that_is_here_is_one(name: str) -> None:
    """Whatever a backend answers can be named in settings."""
    answer = backend_named(name).probe()
    assert isinstance(answer, Missing) or is_target(answer.target)


def test_unknown_variable_is_only_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A strange ACCELOPT_ variable may belong to somebody else: it is named in the log once, and nothing fails."""
    for _ in range(3):
        settings_from(env={"ACCELOPT_BUGDET_S": "3"}, pyproject=tmp_path / "none.toml")
    assert 1 == caplog.text.count("did you mean 'ACCELOPT_BUDGET_S'")


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("mode", "tuned", "'off', 'apply', 'tune'"),
        ("mode", 3, "'off' or 'apply' or 'tune'"),
        ("budget_s", -1, "a number >= 0"),
        ("budget_s", "soon", "a number >= 0"),
        ("budget_s", float("nan"), "a number >= 0"),
        ("budget_s", float("inf"), "not finite; accepted: a number >= 0"),
        ("cache_dir", "", "it is empty; accepted: a directory"),
        ("beam_width", 0, "an integer >= 1"),
        ("beam_width", 1.5, "an integer >= 1"),
        ("max_regions", 2.5, "an integer >= 0"),
        ("threads", True, "an integer >= 1"),
        ("target", "xyz", "'cpp-x86_64-avx2'"),
        ("target", "cpp-foo", "of cpp, reference"),
        ("target", "sm_90", "whole name"),
        ("wait", "yes", "True or False"),
        ("inductor", 3, "max_autotune"),
    ],
)
def test_bad_value_says_what_is_accepted(name: str, value: object, accepted: str) -> None:
    """A bad value is an error that names setting, value and what it may be."""
    with pytest.raises(InvalidOption) as refused:
        settings_from({name: value}, env={})
    assert f"{name}={value!r}" in str(refused.value)
    assert accepted in str(refused.value)


def test_bad_environment_names_the_variable() -> None:
    """The message says where the bad value came from."""
    with pytest.raises(InvalidOption, match="ACCELOPT_SEED"):
        settings_from(env={"ACCELOPT_SEED": "many"})


def test_paths_are_text(tmp_path: Path) -> None:
    """A Path serves as cache_dir."""
    assert str(tmp_path) == settings_from({"cache_dir": tmp_path}, env={}).cache_dir


def test_every_setting_is_described() -> None:
    """Each setting has a sentence, a variable and a default for the documentation."""
    rows = describe_settings()
    assert all(doc for _, _, _, doc in rows)
    assert ("budget_s", "ACCELOPT_BUDGET_S", 60.0) == next(r[:3] for r in rows if r[0] == "budget_s")


def test_a_file_that_cannot_be_looked_at_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nor a working directory that may not be searched: the user's program never asked for it."""
    path = tmp_path / ("x" * 300)
    assert Settings() == settings_from(env={}, pyproject=path)
    assert f"{path} is not read" in caplog.text


def test_variables_that_messages_name_are_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The store's refusal tells of ACCELOPT_ALLOW_SHARED."""
    env = {"ACCELOPT_ALLOW_SHARED": "1", "ACCELOPT_NATIVE_LAUNCHER": "0"}
    assert Settings() == settings_from(env=env, pyproject=tmp_path / "none.toml")
    assert "" == caplog.text


def test_inductors_settings_stand_in_a_variable_as_json() -> None:
    """A dict has no other text form; what is none is refused with the form that is taken."""
    assert {"max_autotune": True} == settings_from(env={"ACCELOPT_INDUCTOR": '{"max_autotune": true}'}).inductor
    for text in ("{'max_autotune': True}", "3", "max_autotune"):
        with pytest.raises(InvalidOption, match=r'accepted: \{"max_autotune": true\}'):
            settings_from(env={"ACCELOPT_INDUCTOR": text})


@pytest.mark.parametrize("text", ["[tool]\naccelopt = true\n", "[[tool.accelopt]]\nmode = 'off'\n", "tool = 3\n"])
def test_a_file_without_our_table_is_no_error(tmp_path: Path, text: str) -> None:
    """Whatever stands in its place in the pyproject.toml of a working directory."""
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    assert Settings() == settings_from(env={}, pyproject=path)


def test_a_store_may_lie_in_a_folder_called_none() -> None:
    """The settings name the folder that the store is opened in by the same variable."""
    assert "none" == settings_from(env={"ACCELOPT_CACHE_DIR": "none"}).cache_dir
