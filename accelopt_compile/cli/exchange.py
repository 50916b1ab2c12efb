"""`accelopt cache import` and `accelopt cache export`: problems and kernels in the formats of others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accelopt_compile.cli.lookup import open_store
from accelopt_compile.cli.output import CacheDirOption, JsonOption, Output, QuietOption, VerboseOption, binding_text
from accelopt_compile.wording import operators, plural

if TYPE_CHECKING:
    from accelopt_compile.exchange.dataset import Written
    from accelopt_compile.exchange.importing import Capture, Imported
    from accelopt_compile.records import Record

FORMATS = ("flashinfer-bench",)
FormatOption = Annotated[str, typer.Option("--format", metavar="FORMAT", help="flashinfer-bench, the one there is.")]


def check_format(name: str) -> None:
    """Raises InvalidOption."""
    from accelopt_compile.errors import InvalidOption

    if name not in FORMATS:
        raise InvalidOption(f"--format {name!r} does not exist; it is {', '.join(FORMATS)}")


def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="DEFINITION WORKLOADS...", help="A definition's JSON, then JSON or JSONL with its workloads."),
    ],
    format_: FormatOption = "flashinfer-bench",
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Trace a definition's reference, without running it, and keep its regions, so that `accelopt tune DIGEST` can search them.

    Exit code 3 when a region had to be cut: then no kernel of ours can be exported as a solution of the whole definition.

    Example: accelopt cache import definitions/rmsnorm_h4096.json workloads/rmsnorm_h4096.jsonl
    """
    from accelopt_compile.cli.lookup import unchanged, writable_store
    from accelopt_compile.errors import UsageError
    from accelopt_compile.exchange.importing import import_definition
    from accelopt_compile.exchange.schema import read_definition, read_instances

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    check_format(format_)
    definition = read_definition(paths[0])
    instances = [one for path in paths[1:] for one in read_instances(path, definition)]
    if not instances:
        raise UsageError(f"no workload of {definition.name} was given: name a file with some after {paths[0]}")
    with out.working(f"tracing {definition.name}"):
        imported = import_definition(definition, instances)
    store = writable_store()
    if not store.put_graph(definition.digest, imported.document()):
        raise unchanged(store.files.root.named, "does not take it")
    out.result(told(imported))
    for capture in imported.captures:
        _show(capture, imported, out)
    if any(capture.whole is None for capture in imported.captures):
        raise typer.Exit(3)


def told(imported: Imported) -> dict[str, Any]:
    """The command's JSON."""
    from accelopt_compile.evaluate.sandbox.walls import described

    captures = []
    for capture in imported.captures:
        links = capture.parts if capture.whole is None else (capture.whole,)
        regions = [
            {
                "workload": link.workload.digest,
                "operators": operators(link.workload),
                "inputs": link.inputs,
                "outputs": link.outputs,
            }
            for link in links
        ]
        uuids = [one.uuid for one in capture.instances]
        captures.append(
            {
                "workloads": uuids,
                "whole": capture.whole is not None,
                "cut": capture.cut,
                "regions": regions,
                "refused": capture.refused,
            }
        )
    return {"definition": imported.definition.name, "captures": captures, "walls": described(imported.walls)}


def _show(capture: Capture, imported: Imported, out: Output) -> None:
    name, many = imported.definition.name, plural(len(capture.instances), "workload")
    if capture.whole is not None:
        workload = capture.whole.workload
        bindings = ", ".join(
            sorted({binding_text(capture.whole.binding(imported.definition, one.axes)) for one in capture.instances})
        )
        out.line(f"WHOLE {name}, {many}: {workload.digest[:12]} {operators(workload)} [{bindings}]")
    else:
        out.line(f"CUT {name}, {many}: {capture.cut}; {plural(len(capture.parts), 'region')}")
        for link in capture.parts:
            out.line(f"  {link.workload.digest[:12]} {operators(link.workload)}")
    for reason, count in sorted(capture.refused.items()):
        out.line(f"  outside regions: {reason} ({plural(count, 'node')})", level=1)


def export(
    out_dir: Annotated[Path, typer.Argument(metavar="OUT", help="A folder; made where it is not there.")],
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Record ids or their first characters; all kernels when none is given."),
    ] = None,
    format_: FormatOption = "flashinfer-bench",
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Write kernels as solutions that run without AccelOpt Compile, with their definitions, workloads and traces.

    A kernel that never ran on its device is exported as a candidate: a solution without a trace. Exit code 3 when some record
    could not be exported.

    Examples: accelopt cache export out   |   accelopt cache export out 3fa9 --format flashinfer-bench
    """
    from dataclasses import asdict

    from accelopt_compile.cli.backends import backends
    from accelopt_compile.cli.lookup import empty
    from accelopt_compile.errors import UsageError
    from accelopt_compile.exchange.dataset import export as write

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    check_format(format_)
    store = open_store()
    known = next(store.walk(), None) is not None
    records = _records(store, ids or ())
    if not records:
        why = "`accelopt cache ls` shows what is there: baselines, or records that cannot be read" if known else empty(store)
        raise UsageError(f"there is no kernel to export; {why}")
    written = write(records, store=store, backends=backends(), out=out_dir)
    out.result({"out": str(out_dir), "records": [asdict(one) for one in written]})
    for one in written:
        out.line(line_of(one))
    if any(one.why_not for one in written):
        raise typer.Exit(3)


def line_of(one: Written) -> str:
    """A record's line for people."""
    if one.why_not:
        return f"LEFT OUT {one.record_id[:12]}: {one.why_not}"
    kind = "CANDIDATE" if one.candidate else "SOLUTION"
    trace = "with its trace" if one.traced else "no trace: it has no time on its device" if one.candidate else "no trace"
    return f"{kind} {one.solution} for {one.definition}, {trace}"


def _records(store: Any, ids: Sequence[str]) -> list[tuple[str, Record]]:
    """The named records, or all that hold a kernel. Raises UsageError for a name that none has."""
    from accelopt_compile.cli.lookup import find_record

    if ids:
        return [find_record(store, one) for one in ids]
    return sorted((i, record) for i, record in store.iter_records() if record.source is not None)
