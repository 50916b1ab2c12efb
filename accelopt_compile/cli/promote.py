"""`accelopt cache promote`: candidates that were proven in simulation, decided on their device."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accelopt_compile.cli.output import CacheDirOption, JsonOption, Output, QuietOption, VerboseOption, binding_text
from accelopt_compile.wording import is_or_are, plural, times_text

if TYPE_CHECKING:
    from accelopt_cache.kernel_store import Store
    from accelopt_compile.bench import Bench
    from accelopt_compile.promoting import Promoted, Waiting


def promote(
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Candidates, by their ids or first characters.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All candidates on which this device has not decided yet.")] = False,
    budget_s: Annotated[float, typer.Option(min=1, help="Seconds after which no further region is begun.")] = 600.0,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Prove candidates on their device, time them there against Inductor and eager, and make the fastest of a region a winner.

    Exit code 1 where the device is not here or something failed, 3 when a region keeps the baseline, 4 when a kernel is wrong.

    Examples: accelopt cache promote --all   |   accelopt cache promote 3fa9 --json
    """
    from accelopt_compile.cli.lookup import open_store
    from accelopt_compile.errors import UsageError
    from accelopt_compile.promoting import waiting_in

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    if bool(keys) == every:
        raise UsageError("name candidates, or take all of them with --all; `accelopt cache ls --outcome candidate` lists them")
    store = open_store(readonly=False)
    regions = waiting_in(store, named(store, keys or [])) if keys else waiting_in(store)
    if not regions:
        out.line(f"no candidates in {store.files.root.named}; `accelopt tune ... --target TARGET` makes some", level=0)
        out.result({"regions": [], "absent": {}, "left": []})
        return
    benches = {(one.language, one.target): bench_of(one) for one in regions}
    here = [one for one in regions if not isinstance(benches[one.language, one.target], str)]
    absent = {one.target: str(benches[one.language, one.target]) for one in regions if one not in here}
    if not here:
        raise absence(store, regions, absent)
    for target, why in absent.items():
        count = sum(len(one.candidates) for one in regions if one.target == target)
        out.line(f"WAITING {plural(count, 'candidate')} for {target}: {why}", level=0)
    done, left = worked_through(store, here, benches, budget_s=budget_s, again=bool(keys), out=out)
    if left:
        out.line(f"{plural(len(left), 'region')} {is_or_are(len(left))} left: the time is up; the same command goes on", level=0)
    out.result({"regions": done, "absent": absent, "left": [one.workload for one in left]})
    if code := code_of(done):
        raise typer.Exit(code)


WRONG = 4
CODES = {"failed": 1, "undecided": 1, "baseline": 3}
"""The exit code of an outcome, the gravest first; before all of them that of a kernel that is wrong."""


def code_of(done: Sequence[Mapping[str, Any]]) -> int:
    """The exit code of these regions: a kernel that could not be built here, or took too long, is not wrong."""
    from accelopt_compile.promoting import UNSAID

    stages = {refused["stage"] for one in done for refused in one["refused"].values()}
    if stages - {stage.value for stage in UNSAID}:
        return WRONG
    outcomes = {one["outcome"] for one in done}
    return next((code for outcome, code in CODES.items() if outcome in outcomes), 0)


def named(store: Store, prefixes: Sequence[str]) -> list[str]:
    """The candidates with these ids or starts of ids. Raises UsageError for a record that is none."""
    from accelopt_compile.cli.lookup import full_ids
    from accelopt_compile.errors import UsageError

    ids = full_ids(store, prefixes)
    outcomes = {record_id: outcome for _, _, record_id, outcome in store.walk()}
    for record_id in ids:
        if outcomes[record_id] != "candidate":
            raise UsageError(f"record {record_id[:12]} is a {outcomes[record_id]}: only candidates wait for their device")
    return ids


def bench_of(waiting: Waiting) -> Bench | str:
    """Where the candidates can be decided on, or why not here."""
    from dataclasses import replace

    from accelopt_backends.registry import classes
    from accelopt_compile.config import settings_from
    from accelopt_compile.errors import ToolchainMissing
    from accelopt_compile.pipeline import bench_for

    if waiting.language not in classes():
        return f"no backend here writes {waiting.language!r}"
    try:
        bench = bench_for(replace(settings_from(), backend=waiting.language, target=waiting.target))
    except ToolchainMissing as failure:
        return str(failure)
    return bench if bench.rung == "device" else f"no device of that kind is here, only its simulation ({waiting.language})"


def absence(store: Store, regions: Sequence[Waiting], absent: dict[str, str]) -> Exception:
    """The error where no candidate's device is here: what waits for what, what is here, what to do."""
    from accelopt_compile.cli.rerun import targets
    from accelopt_compile.errors import AccelOptError

    count = sum(len(one.candidates) for one in regions)
    why = "; ".join(f"{target}: {reason}" for target, reason in sorted(absent.items()))
    here = ", ".join(sorted(targets())) or "none"
    return AccelOptError(
        f"{plural(count, 'candidate')} cannot be decided here: {why}. Devices here: {here}. Nothing was changed. Next: on a "
        f"machine with that device, `accelopt cache promote --all --cache-dir DIR`, DIR being this "
        f"store, {store.files.root.named}, or a copy of it"
    )


def worked_through(
    store: Store,
    regions: Sequence[Waiting],
    benches: dict[tuple[str, str], Bench | str],
    *,
    budget_s: float,
    again: bool,
    out: Output,
) -> tuple[list[dict[str, Any]], list[Waiting]]:
    """(what became of each region, the regions for which no time was left). Regions on which this device has decided are
    passed over unless `again`."""
    from accelopt_compile.promoting import decided, promote

    ends = time.monotonic() + budget_s
    done: list[dict[str, Any]] = []
    for number, one in enumerate(regions):
        bench = benches[one.language, one.target]
        assert not isinstance(bench, str)
        if not again and (before := decided(bench, one)) is not None:
            out.line(f"decided before: {before.outcome} {named_region(store, one)}", level=1)
            continue
        if time.monotonic() >= ends:
            return done, list(regions[number:])
        with out.working(f"{plural(len(one.candidates), 'candidate')} of {named_region(store, one)} on {one.target}"):
            found = promote(bench, store, one)
        done.append(document(one, found))
        tell(out, named_region(store, one), found)
    return done, []


def tell(out: Output, name: str, found: Promoted) -> None:
    """A region's outcome in a line, and a line for each candidate that was refused."""
    timing = None if found.record is None else found.record.timing
    gain = "" if timing is None else f" {times_text(timing.speedup, timing.basis)}"
    out.line(f"{found.outcome.upper()}{gain} {name}" + (f": {found.reason}" if found.reason else ""))
    for record_id, rejected in found.fallen.items():
        out.line(f"  candidate {record_id[:12]} refused at {rejected.stage.value}: {rejected.reason}", level=0)


def named_region(store: Store, one: Waiting) -> str:
    from accelopt_compile.cli.lookup import operators

    return f"{operators(store.workload(one.workload))} [{binding_text(one.binding)}] {one.workload[:8]}"


def document(one: Waiting, found: Promoted) -> dict[str, Any]:
    """A region's outcome for programs."""
    timing = None if found.record is None else found.record.timing
    return {
        "workload": one.workload,
        "target": one.target,
        "binding": dict(one.binding),
        "candidates": [record_id for record_id, _ in one.candidates],
        "outcome": found.outcome,
        "reason": found.reason,
        "timing": None if timing is None else timing.to_json(),
        "refused": {i: {"stage": r.stage.value, "reason": r.reason, "diagnosis": r.diagnosis} for i, r in found.fallen.items()},
    }
