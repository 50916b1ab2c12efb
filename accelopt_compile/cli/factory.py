"""MODULE:FACTORY of a command line: the user's function that makes a model, and what is said where it fails."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import accelopt_compile
from accelopt_compile.errors import AccelOptError, UsageError, UsersCodeFailed

OURS = str(Path(accelopt_compile.__file__).parent) + os.sep


def made_by(name: str) -> tuple[Any, tuple[Any, ...] | dict[str, Any]]:
    """What MODULE:FACTORY makes: (module, inputs). Raises UsageError, and UsersCodeFailed for what it raises."""
    with users_code(name):
        made = find_factory(name)()
    return model_of(name, made)


@contextmanager
def users_code(what: str) -> Iterator[None]:
    """Run what the user wrote; what it prints goes to stderr, since stdout holds the result. Raises UsersCodeFailed with the
    traceback of his code for what it raises, errors of ours as they are."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except AccelOptError:
        raise
    except (Exception, SystemExit) as failure:  # guards against the user's program, which may raise anything
        text = "".join(traceback.format_exception(failure.with_traceback(beyond_us(failure.__traceback__)))).rstrip()
        raise UsersCodeFailed(f"{what} failed: {type(failure).__name__}: {failure}\n{text}") from failure


def beyond_us(frames: TracebackType | None) -> TracebackType | None:
    """A traceback from the first frame on that is neither ours nor the import machinery's; all of it where all is."""
    first = frames
    while first is not None and _of_ours(first.tb_frame.f_code.co_filename):
        first = first.tb_next
    return first or frames


def _of_ours(file: str) -> bool:
    return file.startswith((OURS, "<frozen importlib")) or file == importlib.__file__


def find_factory(name: str) -> Callable[[], Any]:
    """The function that MODULE:FACTORY names, from the working directory or what is installed. Raises UsageError."""
    module_name, colon, function = name.partition(":")
    if not (module_name and colon and function):
        raise UsageError(f"{name!r} is not MODULE:FACTORY, e.g. benchmarks.workloads.llama_prefill:small")
    if module_name.endswith(".py") or "/" in module_name:
        path = Path(module_name).with_suffix("")
        dotted = path.name if path.is_absolute() or ".." in path.parts else ".".join(path.parts)
        raise UsageError(f"{module_name!r} is a file; name the module, {dotted}:{function}, found from here or by PYTHONPATH")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as failure:
        hint = (
            "run from the directory that holds it, or set PYTHONPATH"
            if failure.name and module_name.startswith(failure.name)
            else "install it"
        )
        raise UsageError(f"module {module_name!r} cannot be imported: no module {failure.name!r}; {hint}") from failure
    except SyntaxError as failure:
        raise UsageError(f"module {module_name!r} cannot be imported: {failure}") from failure
    made: Callable[[], Any] | None = getattr(module, function, None)
    if made is None or not callable(made):
        known = factories(module)
        raise UsageError(f"module {module_name!r} has no function {function!r}; it has: {', '.join(known) or 'none'}")
    if needed := required(made):
        raise UsageError(
            f"the factory {name} needs {', '.join(needed)}; a factory takes no arguments: give defaults, or name a function that "
            "calls it"
        )
    return made


def factories(module: ModuleType) -> list[str]:
    """The public functions that a module defines itself and that can be called without arguments."""
    return sorted(
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_") and not required(value)
    )


def required(function: Callable[..., Any]) -> list[str]:
    """The arguments that a function cannot be called without."""
    given = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions do not say
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind not in given]


def model_of(name: str, made: Any) -> tuple[Any, tuple[Any, ...] | dict[str, Any]]:
    """(module, inputs) as the factory should have made them: positional inputs, or a dict of named ones. Raises UsageError."""
    if not isinstance(made, tuple) or len(made) != 2:
        raise UsageError(f"{name} returned {type(made).__name__}, not a pair (module, inputs)")
    if not callable(made[0]):
        raise UsageError(f"{name} returned a pair whose first is {type(made[0]).__name__}, not a module or function to compile")
    module, inputs = made
    if isinstance(inputs, dict):
        return module, inputs
    return module, tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
