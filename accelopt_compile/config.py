"""Every setting of AccelOpt Compile: its name, what it means, what it may be, and where its value comes from.

Precedence: options of the call > `torch.compile(options=)` > `[tool.accelopt]` in the working directory's
pyproject.toml > `ACCELOPT_<NAME>` in the environment > the default. An unknown name and a bad value are errors that say
what would be right; nothing is silently ignored.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from accelopt_backends.registry import classes, is_target
from accelopt_compile.errors import InvalidOption, UnknownOption

log = logging.getLogger("accelopt_compile.config")

MODES = ("off", "apply", "tune")
EFFORTS = ("auto", "quick", "default", "full", "paper")
PROPOSERS = ("auto", "builtin", "llm", "both")

_OTHER_VARIABLES = ("ACCELOPT_API_KEY", "ACCELOPT_NATIVE_LAUNCHER", "ACCELOPT_REFERENCE_DEVICE", "ACCELOPT_ALLOW_SHARED")
"""Variables of ours that are not settings."""


TABLE = "[tool.accelopt]"
PYPROJECT = f"pyproject.toml {TABLE}"


def _setting(default: Any, doc: str, *, choices: tuple[str, ...] = (), low: float | None = None) -> Any:
    return field(default=default, metadata={"doc": doc, "choices": choices, "low": low})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of one compile. Make one with `settings_from`, which checks names and values."""

    mode: str = _setting("tune", "off: Inductor alone; apply: use the cache, never search; tune: search on a miss", choices=MODES)
    budget_s: float = _setting(60.0, "seconds that the searches of one compile may take together", low=0)
    cache_dir: str | None = _setting(None, "directory of the kernel store (default: ACCELOPT_CACHE_DIR or the user's cache)")
    backend: str = _setting("auto", "language of the kernels; auto takes the first that works here", choices=("auto", *classes()))
    target: str = _setting(
        "", "device to prepare kernels for, by its target; other than the one here they become candidates (default: the one here)"
    )
    threads: int | None = _setting(None, "threads that kernels are timed with (default: torch.get_num_threads())", low=1)
    seed: int = _setting(0, "seed of the built-in proposer and of the verification inputs", low=0)
    effort: str = _setting(
        "auto", "preset of the search; auto: quick with the built-in proposer, default with a language model", choices=EFFORTS
    )
    beam_width: int | None = _setting(None, "candidates kept a round (B); None: the preset's", low=1)
    plans_per_candidate: int | None = _setting(None, "plans per candidate (N); None: the preset's", low=1)
    attempts_per_plan: int | None = _setting(None, "sources per plan (K); None: the preset's", low=1)
    rounds: int | None = _setting(None, "rounds at most (T); None: the preset's", low=0)
    min_speedup: float = _setting(
        1.03, "a kernel is adopted when its speedup over the better of Inductor and eager exceeds this", low=1
    )
    max_regions: int = _setting(64, "distinct regions tuned in one compile, hottest first", low=0)
    wait: bool = _setting(False, "wait for another process that is tuning the same region, instead of using Inductor now")
    fallback: str = _setting("inductor", "what runs everything else", choices=("inductor", "eager"))
    retune: bool = _setting(False, "search again where an earlier search kept the baseline")
    inductor: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"doc": "Inductor's own options, as torch.compile(options=) takes them", "choices": (), "low": None},
    )
    log: str = _setting(
        "info", "quiet: warnings only; info: one line a region; debug: everything", choices=("quiet", "info", "debug")
    )
    proposer: str = _setting(
        "auto",
        "who proposes kernels: builtin, llm, both (the built-in one while the model thinks); auto: both where a model is set",
        choices=PROPOSERS,
    )
    model: str | None = _setting(None, "language model that proposes kernels, several with commas take turns; None: none")
    planner_model: str | None = _setting(None, "model of the planner (default: model)")
    executor_model: str | None = _setting(None, "model of the executor (default: model)")
    fixer_model: str | None = _setting(None, "model of the fixer (default: model)")
    summarizer_model: str | None = _setting(None, "model of the summarizer (default: model)")
    base_url: str | None = _setting(None, "address of the OpenAI-compatible server (default: OPENAI_BASE_URL, then OpenAI's)")
    api: str = _setting("auto", "which API the server is asked by", choices=("auto", "chat", "responses"))
    budget_usd: float | None = _setting(None, "dollars that one search may cost; None: 0.50 where prices are known", low=0)
    budget_tokens: int | None = _setting(None, "tokens that one search may take, prompts and answers together", low=1)
    prices: str | None = _setting(None, "JSON file with prices of models, in USD per million tokens")
    llm_deadline_s: float = _setting(600.0, "seconds after which a call of the model has failed, retries included", low=1)
    llm_concurrency: int = _setting(4, "calls of the model that may be under way at once", low=1)
    llm_effort: str | None = _setting(None, "the model's reasoning effort, as its server names it")
    keep_texts: bool = _setting(True, "keep prompts and answers in a run's record, not their digests alone")

    @property
    def rewrite_key(self) -> tuple[str, ...]:
        """The settings that change which regions a compiled graph has replaced, as text (part of Inductor's cache key)."""
        target = (self.target,) if self.target else ()
        return (self.backend, *target, str(self.min_speedup), str(self.max_regions))


_FIELDS = {f.name: f for f in fields(Settings)}


def setting_names() -> list[str]:
    """All names, sorted."""
    return sorted(_FIELDS)


def describe_settings() -> list[tuple[str, str, Any, str]]:
    """(name, environment variable, default, meaning) of every setting, in the order of `Settings`."""
    return [
        (
            f.name,
            f"ACCELOPT_{f.name.upper()}",
            f.default_factory() if callable(f.default_factory) else f.default,
            f.metadata["doc"],
        )
        for f in _FIELDS.values()
    ]


def origins() -> dict[str, str]:
    """Where the value of each setting comes from that the environment or ./pyproject.toml gives; the others are at the default.
    Raises as `settings_from` does."""
    found = {name: f"$ACCELOPT_{name.upper()}" for name in _from_environment(os.environ)}
    return found | dict.fromkeys(_from_pyproject(Path("pyproject.toml")), PYPROJECT)


def settings_from(
    options: Mapping[str, Any] | None = None,
    *,
    call: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    pyproject: Path | None = None,
) -> Settings:
    """The settings in force. `call` are a function's own keyword arguments, `options` those of `torch.compile(options=)`.

    `env` defaults to os.environ, `pyproject` to ./pyproject.toml. Raises UnknownOption and InvalidOption.
    """
    values: dict[str, Any] = {}
    values.update(_from_environment(os.environ if env is None else env))
    values.update(_from_pyproject(pyproject or Path("pyproject.toml")))
    for given, where in ((options, "options="), (call, "the call")):
        for name, value in (given or {}).items():
            if name not in _FIELDS:
                raise UnknownOption(str(name), known=setting_names())
            values[name] = _checked(name, value, where)
    return Settings(**values)


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for variable, text in env.items():
        if not variable.startswith("ACCELOPT_") or variable in _OTHER_VARIABLES or text == "":
            continue
        name = variable.removeprefix("ACCELOPT_").lower()
        if name not in _FIELDS:
            # Another program's environment is not this call's mistake: say it, do not fail.
            _say_once(f"environment: {UnknownOption(variable, known=[f'ACCELOPT_{n.upper()}' for n in _FIELDS])}")
            continue
        found[name] = _checked(name, _parsed(name, text), variable)
    return found


@functools.cache
def _say_once(what: str) -> None:
    """One warning a process: settings are read for each graph, and by every part of a command."""
    log.warning("%s", what)


def _from_pyproject(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as failure:  # a working directory that may not be searched is among them
        _say_once(f"{path} is not read: {failure}")
        return {}
    try:
        import tomllib
    except ImportError:  # Python 3.10
        try:
            import tomli as tomllib  # type: ignore[import-not-found,no-redef,unused-ignore]
        except ImportError:
            _say_once(f"{path} is not read: Python 3.10 needs the package tomli for that")
            return {}
    try:
        tools = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as failure:
        _say_once(f"{path} is not read: {failure}")
        return {}
    table = tools.get("accelopt", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        _say_once(f"{path} is not read: {TABLE} is no table")
        return {}
    found: dict[str, Any] = {}
    for name, value in table.items():
        if name not in _FIELDS:
            raise UnknownOption(name, known=setting_names(), where=f"{path} {TABLE}")
        found[name] = _checked(name, value, f"{path} {TABLE}")
    return found


def _parsed(name: str, text: str) -> Any:
    """A value from the environment, where everything is text."""
    kind = str(_FIELDS[name].type)
    lowered = text.strip().lower()
    if name == "inductor":
        try:
            return json.loads(text)
        except ValueError:
            return text  # refused by _checked, which can say why
    if lowered == "none" and "None" in kind and name != "cache_dir":  # a folder may have that name, and the store reads it too
        return None
    if "bool" in kind and lowered in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        return lowered in ("1", "true", "yes", "on")
    try:
        if "int" in kind.split(" | "):
            return int(text)
        if "float" in kind.split(" | "):
            return float(text)
    except ValueError:
        return text  # refused by _checked, which can say why
    return text


def _checked(name: str, value: Any, where: str) -> Any:
    """The value in the setting's type. Raises InvalidOption."""
    setting = _FIELDS[name]
    kinds = str(setting.type).split(" | ")
    choices, low = setting.metadata["choices"], setting.metadata["low"]
    if value is None and "None" in kinds:
        return None
    if name == "inductor":
        if not isinstance(value, Mapping):
            form = '{"max_autotune": true}' if where.startswith("ACCELOPT_") else "{'max_autotune': True}"
            raise _invalid(name, value, where, "it is not a dict", form)
        return dict(value)
    if "bool" in kinds:
        if not isinstance(value, bool):
            raise _invalid(name, value, where, "it is not a bool", "True or False")
        return value
    if "str" in kinds:
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
        if not isinstance(value, str):
            raise _invalid(name, value, where, "it is not text", " or ".join(map(repr, choices)) or "text")
        if name == "cache_dir" and not value:
            raise _invalid(name, value, where, "it is empty", "a directory, or None for the default store")
        if choices and value not in choices:
            raise _invalid(name, value, where, "there is no such choice", ", ".join(map(repr, choices)))
        if name == "target" and value and not is_target(value):  # one of a device that is not here is right
            accepted = f"a target's whole name, as 'cpp-x86_64-avx2', of {', '.join(sorted(classes()))}"
            raise _invalid(name, value, where, "no language has such a target", accepted)
        return value
    whole = "int" in kinds
    kind = "an integer" if whole else "a number"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise _invalid(name, value, where, f"it is not {kind}", f"{kind} >= {low:g}")
    if not math.isfinite(value):
        raise _invalid(name, value, where, "it is not finite", f"{kind} >= {low:g}")
    if low is not None and not value >= low:
        raise _invalid(name, value, where, "it is too small", f"{kind} >= {low:g}")
    return value if whole else float(value)


def _invalid(name: str, value: Any, where: str, reason: str, accepted: str) -> InvalidOption:
    return InvalidOption(f"{name}={value!r} (from {where}): {reason}; accepted: {accepted}")
