"""The command line, assembled."""

from __future__ import annotations

from typing import Annotated

import typer

from accelopt_compile.cli import cache, demo, doctor, memory, prewarm, report, runs, tune

app = typer.Typer(
    name="accelopt",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # it takes [default: ...] for markup and leaves it out
    pretty_exceptions_enable=False,
    help='Verified faster kernels for the hot regions of a model: torch.compile(model, backend="accelopt").',
)


def _version(asked: bool) -> None:
    if asked:
        import accelopt_compile

        typer.echo(f"accelopt {accelopt_compile.__version__}")
        raise typer.Exit


@app.callback()
def accelopt(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Exit codes: 0 ok, 1 error, 2 usage, 3 some regions kept the baseline, 4 verification failed, 130 interrupted with
    state saved."""


app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.command("prewarm")(prewarm.prewarm)
app.command("tune")(tune.tune)
app.command("report")(report.report)
app.add_typer(cache.app, name="cache")
app.add_typer(memory.app, name="memory")
app.add_typer(runs.app, name="runs")
