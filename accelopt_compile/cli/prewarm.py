"""`accelopt prewarm MODULE:FACTORY`: fill the store before a model is served."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from types import ModuleType
from typing import Annotated, Any

import typer

from accelopt_compile.cli.output import CacheDirOption, JsonOption, Output, QuietOption, VerboseOption, report_error
from accelopt_compile.cli.regions import show_regions
from accelopt_compile.errors import UsageError
from accelopt_compile.wording import plural


def prewarm(
    factory: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FACTORY",
            help="A function without arguments that returns (module, inputs): a tensor, a tuple, or a dict of named ones.",
        ),
    ],
    budget_s: Annotated[float, typer.Option(min=0, help="Seconds the searches of one graph may take together.")] = 60.0,
    backward: Annotated[bool, typer.Option("--backward", help="Also the backward of the summed outputs, for training.")] = False,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Tune the regions of a model now, so that `mode="apply"` finds them later. Exit code 3 when some kept the baseline.

    Examples: accelopt prewarm benchmarks.workloads.llama_prefill:build --budget-s 300   |   accelopt prewarm my.app:model --json
    """
    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    module, inputs = model_of(factory, find_factory(factory)())
    from accelopt_compile import api

    with out.working(f"tuning {factory} for at most {budget_s:.0f} s"):
        found = api.prewarm(module, inputs, budget_s=budget_s, backward=backward, **out.settings)
    regions = [asdict(region) for region in found.regions]
    out.result({"factory": factory, "hits": found.hits, "graphs": api.explain(structured=True)})
    show_regions(out, regions)
    problems = [one.problem for one in found.compiles if one.problem]
    if problems:
        report_error(f"{plural(len(problems), 'graph')} stayed with Inductor alone: {problems[0]}")
        raise typer.Exit(1)  # with --json the document is out already
    if found.hits + found.candidates < len(regions):
        raise typer.Exit(3)


def find_factory(name: str) -> Callable[[], Any]:
    """The function that MODULE:FACTORY names, from the working directory or what is installed. Raises UsageError."""
    module_name, colon, function = name.partition(":")
    if not (module_name and colon and function):
        raise UsageError(f"{name!r} is not MODULE:FACTORY, e.g. benchmarks.workloads.llama_prefill:small")
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
    return made


def factories(module: ModuleType) -> list[str]:
    """The public functions that a module defines itself and that can be called without arguments."""
    return sorted(
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
        and _without_arguments(value)
    )


def _without_arguments(function: Callable[..., Any]) -> bool:
    given = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not p.empty or p.kind in given for p in inspect.signature(function).parameters.values())


def model_of(name: str, made: Any) -> tuple[Any, tuple[Any, ...] | dict[str, Any]]:
    """(module, inputs) as the factory should have made them: positional inputs, or a dict of named ones. Raises UsageError."""
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[0]):
        raise UsageError(f"{name} returned {type(made).__name__}, not a pair (module, inputs)")
    module, inputs = made
    if isinstance(inputs, dict):
        return module, inputs
    return module, tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
