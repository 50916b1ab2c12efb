"""`accelopt report`: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelopt_compile.cli.output import CacheDirOption, JsonOption, Output, QuietOption, VerboseOption, human_bytes
from accelopt_compile.cli.runs import RunArgument, load_report


def report(
    run_id: RunArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; ./accelopt-<run>.html if not given."),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Write one run as a page: how the search went, which kernel came from which, what it cost. The file is complete in
    itself: it loads nothing and runs nothing.

    Examples: accelopt report last --open   |   accelopt report 20261128-0904 -o run.html
    """
    from accelopt_compile.errors import UsageError
    from accelopt_compile.report.render import render

    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    found = load_report(run_id)
    place = Path(f"accelopt-{found.id}.html") if output is None else output
    page = render(found).encode()
    try:
        place.write_bytes(page)
    except OSError as failure:
        raise UsageError(f"{place} cannot be written ({failure.strerror}); name another file with -o") from failure
    out.result({"run": found.id, "file": str(place.absolute()), "bytes": len(page)})
    out.line(f"{place} ({human_bytes(len(page))})")
    if open_it:
        import webbrowser

        webbrowser.open(place.absolute().as_uri())
