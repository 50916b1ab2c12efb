"""`accelopt tune`: search for a kernel of one region, or of a model's hottest ones, and keep the run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accelopt_compile.cli.factory import made_by, users_code
from accelopt_compile.cli.lookup import require_store
from accelopt_compile.cli.output import CacheDirOption, JsonOption, Output, QuietOption, VerboseOption, binding_text
from accelopt_compile.cli.prewarm import say_that_it_tunes
from accelopt_compile.cli.watching import Watching
from accelopt_compile.errors import AccelOptError, Interrupted, UsageError
from accelopt_compile.wording import plural, times_text

if TYPE_CHECKING:
    from accelopt_compile.config import Settings

RegionOption = Annotated[
    list[str] | None, typer.Option("--region", metavar="DIGEST", help="Only regions whose workload starts so; may be repeated.")
]


def tune(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD|MODULE:FACTORY",
            help="Start of a workload's digest in the store, or a function that returns (module, inputs).",
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="Language model; several with commas take turns. None: the built-in proposer alone.")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="OpenAI-compatible server [default: $OPENAI_BASE_URL, OpenAI's].")] = None,
    proposer: Annotated[str | None, typer.Option(help="builtin, llm or both [default: both with a model].")] = None,
    effort: Annotated[str | None, typer.Option(help="quick, default, full or paper [default: default with a model].")] = None,
    rounds: Annotated[int | None, typer.Option(min=0, help="Rounds at most (T).")] = None,
    budget_s: Annotated[float, typer.Option(min=1, help="Seconds for each region, thinking included.")] = 1800.0,
    budget_usd: Annotated[float | None, typer.Option(min=0, help="Dollars for each region [default: 0.50 where known].")] = None,
    budget_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens for each region, prompts and answers.")] = None,
    prices: Annotated[str | None, typer.Option(metavar="FILE", help="JSON with models' prices, USD per million tokens.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many of a model's regions, hottest first.")] = 1,
    region: RegionOption = None,
    backend: Annotated[str | None, typer.Option(help="Language of the kernels [default: the first that works here].")] = None,
    target: Annotated[
        str | None, typer.Option(help="Device to prepare for; where it is not here, kernels become candidates.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads that kernels are timed with.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search.")] = 0,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Search, and keep the winner, the run and what was learned. Ctrl-C and kills lose nothing: the same command goes on, and
    no recorded answer of the model is paid for again. The key comes from $ACCELOPT_API_KEY or $OPENAI_API_KEY.

    Examples: accelopt tune benchmarks.workloads.llama_prefill:small --budget-s 120   |
    accelopt tune 1f3a --model gpt-oss-120b --base-url http://localhost:8000/v1 --budget-usd 0.50
    """
    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    given = {
        "model": model, "base_url": base_url, "proposer": proposer, "effort": effort, "rounds": rounds, "budget_usd": budget_usd,
        "budget_tokens": budget_tokens, "prices": prices, "backend": backend, "target": target, "threads": threads,
    }  # fmt: skip
    chosen = {name: value for name, value in given.items() if value is not None} | {"mode": "tune"}
    bench = _bench({**out.settings, **chosen, "budget_s": budget_s, "seed": seed})
    require_store()
    say_that_it_tunes(out)
    sites = _sites(what, region or (), top, bench, out)
    results = [_tuned(bench, site, budget_s, out) for site in sites]
    out.result({"regions": results})
    if any(one["outcome"] == "failed" for one in results):
        raise typer.Exit(1)
    if any(one["outcome"] not in ("winner", "candidate") for one in results):
        raise typer.Exit(3)


LISTING_S = 5.0
"""Seconds in which a server has to say what it serves before a search begins."""


def _bench(settings: dict[str, Any]) -> Any:
    """Where the searches run; what cannot work is said before anything is begun."""
    from accelopt_compile.authors import authors_of, kind_of_authors
    from accelopt_compile.config import settings_from
    from accelopt_compile.pipeline import bench_for

    checked = settings_from(call=settings)
    if checked.base_url is not None:
        from accelopt_compile.llm.address import normalised

        normalised(checked.base_url)
    authors_of(checked, calls=None)
    if kind_of_authors(checked) != "builtin":
        reached(checked)
    return replace(bench_for(checked), keep=True)


def reached(settings: Settings) -> None:
    """Ask the server for its list, once. Raises AccelOptError where nothing can be reached there; a server that has no list, or
    is slow, is taken as it is."""
    from accelopt_compile.authors import server_of

    server = server_of(replace(settings, llm_deadline_s=min(settings.llm_deadline_s, LISTING_S)))
    listed = server.list_models()
    server.close()
    if listed.problem == "connection":
        raise AccelOptError(
            f"the language model's server cannot be reached: {listed.reason}; start it or give another --base-url, or search "
            "with --proposer builtin"
        )


def _sites(what: str, wanted: Sequence[str], top: int, bench: Any, out: Output) -> list[Any]:
    """The regions to search, hottest first. Raises UsageError where there is none."""
    from accelopt_compile import api, sites

    if ":" not in what:
        return [_stored(what, bench)]
    module, inputs = made_by(what)
    with out.working(f"capturing {what}"), users_code(f"the model of {what}"):
        compiled = api.prewarm(module, inputs, **_capturing(bench.settings, out)).compiles
    found = [site for one in compiled for site in (sites.from_document(bench.store.graph(one.graph)) or ((), {}))[0]]
    distinct = {site.workload.digest: site for site in sorted(found, key=lambda s: s.cost)}
    hottest = sorted(distinct.values(), key=lambda s: -s.cost)
    usable = [s for s in hottest if bench.backend.supports(s.workload) is None]
    if wanted:
        usable = [s for s in usable if s.workload.digest.startswith(tuple(wanted))]
        top = len(usable)
    if not usable:
        raise UsageError(f"{what} has {plural(len(hottest), 'region')}; {bench.backend.name} can write none that is asked for")
    return usable[:top]


def _capturing(settings: Settings, out: Output) -> dict[str, Any]:
    """Settings of the capture, for the backend whose kernels are sought: which products are regions is its to say. That nothing
    is known of a region yet is no news here."""
    cut = {"backend": settings.backend, "target": settings.target}
    return {**out.settings, **cut, "mode": "apply"} | ({"log": "quiet"} if out.level < 1 else {})


def _stored(prefix: str, bench: Any) -> Any:
    """The region of a stored workload, at the sizes it was met at last. Raises UsageError."""
    from accelopt_compile.sites import from_document

    found = {}
    for digest in bench.store.graphs():
        for site in (from_document(bench.store.graph(digest)) or ((), {}))[0]:
            for one in (site, *site.parts):
                if one.workload.digest.startswith(prefix.lower()):
                    found[one.workload.digest] = one
    if len(found) != 1:
        told = f"it is the start of {plural(len(found), 'workload')}" if found else "no graph in the store has it"
        raise UsageError(f"{prefix!r}: {told}; `accelopt cache ls` lists records, and MODULE:FACTORY captures a model")
    return next(iter(found.values()))


def _tuned(bench: Any, site: Any, budget_s: float, out: Output) -> dict[str, Any]:
    from accelopt_compile.authors import kind_of_authors
    from accelopt_compile.search.budget import Budget
    from accelopt_compile.search.loop import SearchInterrupted
    from accelopt_compile.tuning import tune
    from accelopt_compile.wording import operators

    name = f"{operators(site.workload)} [{binding_text(site.binding)}] {site.workload.digest[:8]}"
    with bench.store.claim(site.workload.digest, bench.target) as mine:
        if not mine:
            raise AccelOptError(f"another process is tuning {name}; try again when it is done")
        asks = kind_of_authors(bench.settings) != "builtin"
        with Watching(out, name, budget_s=budget_s, asks=asks) as watching:
            try:
                found = tune(
                    replace(bench, watch=watching), site.workload, site.binding, Budget(seconds=budget_s, clock=time.monotonic)
                )
            except SearchInterrupted as interrupt:
                raise Interrupted(f"interrupted: {watching.line()}; the same command goes on from here") from interrupt
    outcome = "failed" if found.record is None else found.record.outcome
    timing = None if found.record is None else found.record.timing
    speedup, basis = (0.0, "measured") if timing is None else (timing.speedup, timing.basis)
    gain = "" if timing is None else f"{times_text(timing.speedup, timing.basis)} "
    out.line(f"{outcome.upper()} {gain}{name}: {found.reason}")
    origin = None if found.record is None or found.record.source is None else found.record.source.origin
    for told in filter(None, (watching.of_model(origin), watching.apart(speedup))):
        out.line(f"  {told}", level=0)
    if found.run is not None:
        out.line(f"  run {found.run}: accelopt runs show {found.run}, accelopt report {found.run}", level=0)
    return {
        "workload": site.workload.digest, "binding": dict(site.binding), "outcome": outcome, "speedup": speedup or None,
        "basis": basis, "candidates": found.candidates,
        "reason": found.reason, "run": found.run, "seconds": round(found.seconds, 1), "winner_by": origin, **watching.counts(),
    }  # fmt: skip
