"""`accelopt cache verify`: are the records what their digests say, and with --rerun, are the kernels still right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from accelopt_cache.layout import QUARANTINE
from accelopt_compile.cli.output import CacheDirOption, JsonOption, Output, QuietOption, VerboseOption
from accelopt_compile.wording import is_or_are, plural

if TYPE_CHECKING:
    from accelopt_cache.kernel_store import Store

IdsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="Record ids or their first characters; all records when none is given."),
]


def verify(
    ids: IdsArgument = None,
    every: Annotated[bool, typer.Option("--all", help="All records (the same as naming none).")] = False,
    again: Annotated[
        bool, typer.Option("--rerun", help="Also build each kernel and prove it on fresh inputs against the reference.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Kernels proven side by side [default: half of the processors].")
    ] = None,
    quarantine: Annotated[
        bool | None,
        typer.Option("--quarantine/--no-quarantine", help="Take what fails out of service [default: with --rerun only]."),
    ] = None,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Check that records, sources and workloads are what their digests say, and with --rerun that each kernel is right.

    Exit code 4 when one is not, 130 after Ctrl-C (what was found by then is kept).

    Examples: accelopt cache verify   |   accelopt cache verify 3fa9 --quarantine   |   accelopt cache verify --all --rerun
    """
    from accelopt_compile.cli.lookup import can_be_written, empty, full_ids, open_store
    from accelopt_compile.errors import UsageError

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    if ids and every:
        raise UsageError(f"--all and {plural(len(ids), 'id')}: name records or take all of them")
    if jobs is not None and not again:
        raise UsageError(f"--jobs {jobs} is for --rerun: digests are checked one after another")
    take = again and can_be_written() if quarantine is None else quarantine
    store = open_store(readonly=not take)
    chosen = full_ids(store, ids) if ids else [record_id for _, _, record_id, _ in store.walk()]
    if not chosen:
        out.line(empty(store), level=0)
    if again:
        _rerun(store, chosen, jobs=jobs, quarantine=take, out=out)
        return
    damaged = {i: reason for i in chosen if (reason := store.verify_entry(i)) is not None}
    stuck = 0
    for record_id, reason in damaged.items():
        out.line(f"damaged {reason}")
        stuck += take and not store.quarantine(record_id, reason.removeprefix(f"{record_id}: "), word="damaged")
    if chosen:
        intact = len(chosen) - len(damaged)
        out.line(f"{intact} of {plural(len(chosen), 'record')} {is_or_are(intact)} intact", level=0)
    if damaged:
        out.line(_next(store, len(damaged), take, stuck), level=0)
    out.result({"checked": len(chosen), "damaged": damaged, "quarantined": bool(damaged) and take and not stuck})
    if damaged:
        raise typer.Exit(4)


def _rerun(store: Store, chosen: list[str], *, jobs: int | None, quarantine: bool, out: Output) -> None:
    """Prove the records again, report, and exit with the code that says how it went."""
    from accelopt_compile.cli.rerun import default_jobs, rerun
    from accelopt_compile.errors import Interrupted

    work = rerun(store, chosen, jobs=jobs or default_jobs(), quarantine=quarantine, out=out)
    of = {state: [f for f in work.findings if f.state == state] for state in ("proven", "intact", "failed", "skipped")}
    for finding in of["failed"]:
        out.line(finding.line())
        for text in finding.diagnosis.splitlines()[:4]:
            out.line(f"         {text}", level=1)
    for finding in of["skipped"]:
        out.line(finding.line(), level=0)
    counts = ", ".join(f"{len(found)} {state}" for state, found in of.items() if found)
    if simulated := sum(f.reason == "in simulation" for f in of["proven"]):
        counts += f"; {simulated} in simulation, not on {'its device' if simulated == 1 else 'their devices'}"
    if counts:
        out.line(f"{len(work.findings)} of {plural(len(chosen), 'record')}: {counts}", level=0)
    if of["failed"]:
        out.line(_next(store, len(of["failed"]), quarantine, work.stuck), level=0)
    out.result(
        {
            "records": len(chosen),
            "checked": len(work.findings),
            "proven": [f.record_id for f in of["proven"]],
            "intact": [f.record_id for f in of["intact"]],
            "failed": {f.record_id: {"stage": f.stage, "reason": f.reason, "diagnosis": f.diagnosis} for f in of["failed"]},
            "skipped": {f.record_id: f.reason for f in of["skipped"]},
            "quarantined": bool(of["failed"]) and quarantine and not work.stuck,
            "interrupted": work.interrupted,
        }
    )
    if work.interrupted:
        raise Interrupted(
            stopped(len(chosen), {state: len(found) for state, found in of.items()}, quarantine=quarantine and not work.stuck)
        )
    if of["failed"]:
        raise typer.Exit(4)


def stopped(total: int, counts: Mapping[str, int], *, quarantine: bool) -> str:
    """What Ctrl-C left of a rerun: what is done, what is left, that nothing is lost, and what the next run does."""
    done = sum(counts.values())
    each = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    kept = "no record was changed"
    if counts.get("failed") and quarantine:
        kept = "what failed is out of service, no other record was changed"
    return (
        f"interrupted after {done} of {plural(total, 'record')}{f' ({each})' if each else ''}; {total - done} "
        f"{is_or_are(total - done)} left. Nothing is lost: {kept}. Run again, the same command starts from the first record; "
        "name ids to prove only those"
    )


def _next(store: Store, count: int, take: bool, stuck: int) -> str:
    """What becomes of records that failed."""
    if stuck:
        return f"{stuck} of {count} could not be taken out of service: {store.files.root.named} cannot be written"
    if not take:
        return f"--quarantine takes {'it' if count == 1 else 'them'} out of service"
    place = store.files.path(QUARANTINE)
    return f"{plural(count, 'record')} moved to {place}, with a note of why and what to do beside each"
