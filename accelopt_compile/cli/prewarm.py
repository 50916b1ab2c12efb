"""`accelopt prewarm MODULE:FACTORY`: fill the store before a model is served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from accelopt_compile.cli.factory import made_by, users_code
from accelopt_compile.cli.lookup import require_store
from accelopt_compile.cli.output import CacheDirOption, JsonOption, Output, QuietOption, VerboseOption, report_error
from accelopt_compile.cli.regions import show_regions
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
    retune: Annotated[bool, typer.Option("--retune", help="Search again where an earlier search kept the baseline.")] = False,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Tune the regions of a model now, so that `mode="apply"` finds them later. Exit code 3 when some kept the baseline.
    It searches whatever mode the environment or pyproject.toml sets: an image that serves with "apply" is filled so.

    Examples: accelopt prewarm benchmarks.workloads.llama_prefill:build --budget-s 300   |   accelopt prewarm my.app:model --json
    """
    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    require_store()
    say_that_it_tunes(out)
    module, inputs = made_by(factory)
    from accelopt_compile import api

    settings = {**out.settings, **({"retune": True} if retune else {})}
    with out.working(f"tuning {factory} for at most {budget_s:.0f} s"), users_code(f"the model of {factory}"):
        found = api.prewarm(module, inputs, budget_s=budget_s, backward=backward, **settings)
    regions = [asdict(region) for region in found.regions]
    out.result({"factory": factory, "hits": found.hits, "graphs": api.explain(structured=True)})
    show_regions(out, regions)
    for hint in hints(regions, budget_s=budget_s, retune=retune):
        out.line(hint, level=0)
    problems = [one.problem for one in found.compiles if one.problem]
    if problems:
        report_error(f"{plural(len(problems), 'graph')} stayed with Inductor alone: {problems[0]}")
        raise typer.Exit(1)  # with --json the document is out already
    if found.hits + found.candidates < len(regions):
        raise typer.Exit(3)


def hints(regions: Sequence[Mapping[str, Any]], *, budget_s: float, retune: bool) -> list[str]:
    """What to do about the regions without a kernel, where something can be done."""
    found = []
    if late := sum(region["outcome"] == "MISS" and any(why in region["reason"] for why in OF_THE_BUDGET) for region in regions):
        step = "the same command goes on, or give a larger --budget-s" if budget_s > 0 else "give a larger --budget-s"
        found.append(f"the budget did not reach {plural(late, 'region')}: {step}")
    if not retune and any(region["outcome"] == "BASELINE" for region in regions):
        found.append("--retune searches again where a search kept the baseline")
    return found


OF_THE_BUDGET = ("budget is spent", "more than the budget has left")
"""Parts of the reasons of regions that a larger budget would reach."""


def say_that_it_tunes(out: Output) -> None:
    """That the mode in force, which a process that serves takes, is not that of this command."""
    from accelopt_compile.config import origins, settings_from

    mode = settings_from().mode
    if mode != "tune":
        out.note(f"mode {mode} ({origins()['mode']}) is for processes that serve; this command tunes")
