"""`accelopt cache ...`: what is in the store, why it may be trusted, and how to get rid of it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from accelopt_compile.cli import exchange, housekeeping, promote, verify
from accelopt_compile.cli.lookup import open_store
from accelopt_compile.cli.output import (
    CacheDirOption,
    JsonOption,
    Output,
    QuietOption,
    VerboseOption,
    binding_text,
    human_us,
    plain,
)
from accelopt_compile.records import OUTCOMES, Timing
from accelopt_compile.wording import plural, times_text

app = typer.Typer(no_args_is_help=True, help="Look at the store of verified kernels, check it, and clean it.")

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="A record's id, or the first characters of it (see `accelopt cache ls`).")
]


@app.command("ls")
def ls(
    target: Annotated[str | None, typer.Option(help="Only records of this target, e.g. cpp-x86_64-avx512.")] = None,
    outcome: Annotated[str | None, typer.Option(help="Only `winner`, `candidate` or `baseline`.")] = None,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """List all records: winners, the fastest first, then candidates by their estimates, then baselines.

    Examples: accelopt cache ls   |   accelopt cache ls --outcome winner --json
    """
    from accelopt_compile.cli.lookup import empty, operators
    from accelopt_compile.errors import InvalidOption

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    if outcome not in (None, *OUTCOMES):
        raise InvalidOption(f"--outcome {outcome!r} does not exist; it is one of: {', '.join(OUTCOMES)}")
    store = open_store()
    nothing = next(store.walk(), None) is None  # asked first: what is damaged is not listed once it was read
    found = [(i, r) for i, r in store.iter_records() if target in (None, r.target) and outcome in (None, r.outcome)]
    found.sort(key=lambda item: (OUTCOMES.index(item[1].outcome), -(item[1].timing.speedup if item[1].timing else 0.0)))
    out.result([{"id": i, **record_line(r), "operators": operators(store.workload(r.workload))} for i, r in found])
    rows = []
    for record_id, record in found:
        timing = record.timing
        result = times_text(timing.speedup) if timing and record.outcome == "winner" else record.outcome
        time = timing_text(timing) if timing else "-"
        names = operators(store.workload(record.workload))
        at, threads = binding_text(record.binding), record.environment.get("threads", "-")
        rows.append([record_id[:12], result, time, threads, record.target, at, record.workload[:12], names])
    if nothing:
        out.line(empty(store), level=0)
    elif rows:
        out.table(["id", "result", "kernel", "threads", "target", "measured at", "workload", "operators"], rows)
    else:
        out.line(no_row(target, outcome), level=0)


def timing_text(timing: Timing) -> str:
    """A kernel's time, and whether anybody measured it."""
    return f"{'estimated ' if timing.basis == 'estimated' else ''}{human_us(timing.kernel_us)}"


def no_row(target: str | None, outcome: str | None) -> str:
    """Why a listing of a store with records shows none: the filters, as they were given, or damage."""
    given = [f"--{name} {value}" for name, value in (("target", target), ("outcome", outcome)) if value is not None]
    if not given:
        return "no record can be read; `accelopt cache verify` says what is damaged"
    return f"no record fits {' '.join(given)}; `accelopt cache ls` alone lists all"


def record_line(record: Any) -> dict[str, Any]:
    """A record's JSON without its source: what a listing shows."""
    data: dict[str, Any] = record.to_json()
    source = data.pop("source", None)
    return data | ({"source_digest": record.source.digest, "language": source["language"]} if source else {})


@app.command("show")
def show(
    record_id: IdArgument,
    source: Annotated[bool, typer.Option("--source", help="The kernel's text alone, the library as one line.")] = False,
    whole: Annotated[bool, typer.Option("--whole", help="The kernel's text with the library, as it is built.")] = False,
    workload: Annotated[bool, typer.Option("--workload", help="The region as runnable Python alone.")] = False,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Show one record: kernel, reference, timing, errors, environment, provenance.

    Examples: accelopt cache show 3fa9 --source --whole > kernel.cpp   |   accelopt cache show 3fa9 --json
    """
    from accelopt_compile.cli.explaining import abridged, reference_python
    from accelopt_compile.cli.lookup import find_record

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    store = open_store()
    full_id, record = find_record(store, record_id)
    held = store.workload(record.workload)
    text = "" if record.source is None else record.source.text if whole else abridged(record.source, record.tunables)
    reference = None if held is None else reference_python(held, record.binding)
    out.result({"id": full_id, **record.to_json(), "workload_json": held and held.to_json(), "reference": reference})
    if source or workload:
        if source:
            out.line(text if record.source else f"no kernel: {record.reason or 'the baseline was kept'}")
        if workload:
            out.line(reference or f"workload {record.workload} is not in the store")
        return
    for name, value in describe(full_id, record):
        out.line(f"{name + ':':14} {value}")
    out.line(f"\n# the region, in eager PyTorch\n{reference}" if reference else "")
    if record.source:
        out.line(f"# the kernel, {record.source.language}\n{text}")


def describe(record_id: str, record: Any) -> list[tuple[str, str]]:
    """(name, text) of everything a record says, for people."""
    from accelopt_compile.cli.explaining import end_of_search

    lines = [("record", record_id), ("outcome", record.outcome), *end_of_search(record)]
    lines += [
        ("workload", record.workload),
        ("target", record.target),
        ("measured at", binding_text(record.binding)),
        ("proven on", "device" if record.rung == "device" else f"{record.rung}: never launched"),
    ]
    if (t := record.timing) is not None:
        estimated = t.basis == "estimated"
        rivals = ", ".join(f"{name} {human_us(us)}" for name, us in sorted(t.baselines_us.items()))
        how = f"{plural(t.threads, 'thread')}, {plural(t.blocks, 'block')}"
        interval = f"{t.speedup:.3f}x, 95 % between {t.low:.3f}x and {t.high:.3f}x"
        lines.append(
            ("time", f"{timing_text(t)} against {rivals}, {'by a model of the device, not timed' if estimated else how}")
        )
        lines.append(("speedup", f"{times_text(t.speedup, t.basis, 3)} the region without fusion" if estimated else interval))
    if (e := record.errors) is not None:
        lines.append(
            (
                "error",
                f"{e.worst_share:.3f} of what is allowed, over {plural(e.cases, 'case')}"
                + (f"; worst: {e.worst_case}" if e.worst_case else ""),
            )
        )
    if record.source:
        chosen = {**record.source.structure, **record.tunables}
        lines.append(("written by", record.source.origin))
        lines.append(("choices", ", ".join(f"{k}={v}" for k, v in sorted(chosen.items())) or "-"))
    lines += [(f"env {name}", value) for name, value in sorted(record.environment.items())]
    lines += [(f"by {name}", text) for name, value in sorted(record.provenance.items()) if (text := plain(value))]
    return [*lines, ("created", record.created or "unknown")]


@app.command("explain")
def explain(
    name: Annotated[
        str, typer.Argument(metavar="WORKLOAD_OR_ID", help="A record id, a workload digest, or a file with a workload's JSON.")
    ],
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Say why a record may be trusted here, or what the nearest entries lack.

    Examples: accelopt cache explain 3fa9   |   accelopt cache explain workload.json
    """
    from accelopt_compile.cli.explaining import explain_name

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    found = explain_name(open_store(), name)
    out.result(found)
    for line in found["lines"]:
        out.line(line)


app.command("dir")(housekeeping.directory)
app.command("stats")(housekeeping.stats)
app.command("rm")(housekeeping.rm)
app.command("gc")(housekeeping.gc)
app.command("verify")(verify.verify)
app.command("import")(exchange.import_)
app.command("export")(exchange.export)
app.command("promote")(promote.promote)
