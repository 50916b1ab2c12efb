"""`accelopt runs ...`: the searches of this store, what each found and cost, and how to go on with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from accelopt_compile.cli.lookup import open_store
from accelopt_compile.cli.output import CacheDirOption, JsonOption, Output, QuietOption, VerboseOption, YesOption, confirm, plain
from accelopt_compile.wording import times_text

if TYPE_CHECKING:
    from accelopt_compile.report.model import Report

app = typer.Typer(no_args_is_help=True, help="Look at the searches that were run, what they found and what they cost.")

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, the first characters of it, or `last` (see `accelopt runs ls`).")
]

LESSONS_SHOWN = 8
"""Lessons that `show` prints, the first ones, unless it is to be verbose."""


@app.command("ls")
def ls(
    as_json: JsonOption = False, cache_dir: CacheDirOption = None, quiet: QuietOption = False, verbose: VerboseOption = 0
) -> None:
    """List all runs, the newest first. A damaged one is named on stderr and left out.

    Examples: accelopt runs ls   |   accelopt runs ls --json
    """
    from dataclasses import asdict

    from accelopt_cache.run_store import NO_RUNS
    from accelopt_compile.errors import DamagedEntry
    from accelopt_compile.report.summary import summarize
    from accelopt_compile.report.wording import money_text, seconds_text, status_text, tokens_text
    from accelopt_compile.wording import visible

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    store = open_store()
    found = []
    for run in store.runs.list():
        try:
            found.append(summarize(run))
        except DamagedEntry as damage:
            out.note(f"left out: {damage}")
    out.result([asdict(summary) for summary in found])
    rows = [
        [
            s.id,
            visible(s.created[:19].replace("T", " ")),
            visible(s.name) or "-",
            visible(" ".join((s.proposer, *s.models))),
            status_text(s.outcome, s.speedup, s.basis),
            s.evaluated,
            tokens_text(s.tokens),
            money_text(s.usd, calls=s.calls, unpriced=s.unpriced),
            seconds_text(s.seconds),
        ]
        for s in found
    ]
    if rows:
        out.table(["id", "created (UTC)", "what", "by", "status", "candidates", "tokens", "cost", "time"], rows)
    else:
        out.line(f"{NO_RUNS} {store.files.root.named}", level=0)


@app.command("show")
def show(
    run_id: RunArgument,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Show one run: settings, best kernel, verdicts, rounds, cost by role, lessons, how to go on with it.

    Examples: accelopt runs show last   |   accelopt runs show 20261128-09 --json
    """
    from accelopt_compile.wording import visible

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    report = load_report(run_id)
    out.result(document(report))
    for name, value in describe(report, lessons=None if verbose else LESSONS_SHOWN):
        out.line(f"{visible(name) + ':':14} {visible(value)}")


def load_report(run_id: str) -> Report:
    """The report of a run of the environment's store. Raises UsageError and DamagedEntry."""
    from accelopt_compile.cli.explaining import abridged
    from accelopt_compile.cli.lookup import operators
    from accelopt_compile.report.model import report_of
    from accelopt_compile.report.reading import read_run

    store = open_store()
    run = store.runs.open(run_id)
    return report_of(read_run(run), operators=operators(store.workload(run.about["workload"])), shown=abridged)


def document(report: Report) -> dict[str, Any]:
    """A report's JSON without its long parts: no texts of kernels, no single trials, no answers."""
    from dataclasses import asdict, replace

    data = asdict(replace(report, dots=(), steps=(), calls=(), best=None))
    data = {name: value for name, value in data.items() if name not in ("dots", "steps", "calls")}
    data["usd"] = None if report.calls and report.unpriced == len(report.calls) else report.usd
    data["costs"] = [cost | ({"usd": None} if cost["unpriced"] == cost["calls"] else {}) for cost in data["costs"]]
    best = report.best
    data["best"] = best and {
        "candidate": best.id,
        "plan": best.plan,
        "tunables": dict(best.tunables),
        "timing": best.timing.to_json(),
        "confirmed": best.confirmed,
        "source_digest": best.source.digest,
    }
    return data | {"resumable": report.resumable}


def describe(report: Report, *, lessons: int | None = None) -> list[tuple[str, str]]:
    """(name, text) of what a report says, for people; of its lessons, so many."""
    from accelopt_compile.report.wording import choices_text, money_text, seconds_text, tokens_text

    best = report.best
    lines = [("run", report.id), ("outcome", report.outcome + (f" ({report.reason})" if report.reason else ""))]
    lines += [("what", f"{report.family} {report.operators}".strip()), ("measured at", choices_text(report.binding) or "-")]
    lines += [("target", report.target), *((name, fact) for name, fact in report.facts.items() if fact)]
    if best is not None:
        t, how = best.timing, "full evaluation" if best.confirmed else "quick timing"
        told = f"{t.speedup:.3f}x, 95 % between {t.low:.3f}x and {t.high:.3f}x ({how})"
        if t.basis == "estimated":
            proven = "proven in simulation" if best.confirmed else "not proven"
            told = f"{times_text(t.speedup, t.basis, 3)} ({proven}, nothing was timed)"
        lines.append(("best", f"{told}, candidate {best.id}"))
        lines.append(("by", best.plan or "the seed"))
    lines.append(("evaluated", f"{report.evaluated} in {seconds_text(report.seconds)}, {report.duplicates} duplicates"))
    lines += [(stage.stage, f"{stage.count}" + "".join(f"; {r} ({n})" for r, n in stage.reasons)) for stage in report.stages]
    lines += [
        (
            f"round {r.name}",
            f"{r.trials} evaluated, {r.accepted} accepted" + (f", best {times_text(r.best, report.basis, 3)}" if r.best else ""),
        )
        for r in report.rounds
    ]
    lines += [
        (
            cost.role,
            f"{cost.calls} calls ({cost.failed} failed), {tokens_text(cost.prompt)} prompt ({tokens_text(cost.cached)} cached), "
            f"{tokens_text(cost.completion)} answered, {money_text(cost.usd, calls=cost.calls, unpriced=cost.unpriced)}",
        )
        for cost in report.costs
    ]
    lines += [("no kernel", f"{n} answers: {reason}") for reason, n in report.unwritten]
    lines += [("lesson", lesson) for lesson in report.lessons[:lessons]]
    if lessons is not None and len(report.lessons) > lessons:
        lines.append(("lessons", f"{len(report.lessons) - lessons} more, with --verbose"))
    lines.append(("settings", choices_text(dict(report.settings))))
    lines += [(f"env {name}", text) for name, value in sorted(report.environment.items()) if (text := plain(value))]
    return [*lines, ("to go on", resuming(report))]


def resuming(report: Report) -> str:
    """How to go on with a run, or why there is nothing to go on with."""
    if report.outcome == "running":
        return "a process works on it now"
    if report.resumable:
        return "start the same search again, with the same settings and models: it goes on with this run by itself"
    return f"it has ended; `accelopt report {report.id}` draws it"


@app.command("rm")
def rm(
    ids: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run ids or their first characters.")],
    yes: YesOption = False,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Remove runs with their logs. Kernels that they found stay in the store.

    Example: accelopt runs rm 20261128-0904 --yes
    """
    from accelopt_compile.cli.lookup import check_gone
    from accelopt_compile.errors import UsageError

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    store = open_store(readonly=False)
    chosen = {run.id: run for run in map(store.runs.open, ids)}
    for run in chosen.values():
        if run.busy:
            raise UsageError(f"run {run.id} is being worked on; end that process first")
    confirm(f"Remove {len(chosen)} run{'s' if len(chosen) != 1 else ''}?", yes=yes)
    removed = [run.id for run in chosen.values() if store.runs.remove(run)]
    if removed:
        out.line(f"removed {len(removed)}", level=0)
        out.result({"removed": removed})
    check_gone(store, list(chosen), removed)
