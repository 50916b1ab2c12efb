"""What a command shows: lines and tables for people, or one JSON document for programs; progress on stderr.

With --json, stdout holds exactly one JSON document and nothing else. Whatever text a command shows, of a record, a model or a
run: no character of it reaches the terminal as an order, since all of it is made visible here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from accelopt_compile.wording import visible


def _directory(text: str) -> Path:
    """What --cache-dir names. Nothing is an error: a variable that is not set would make a store where one stands."""
    if not text:
        raise typer.BadParameter("it is empty; name a directory, or leave the option out for the default store")
    return Path(text)


JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout instead of text.")]
CacheDirOption = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        metavar="DIR",
        parser=_directory,
        help="The store to use [default: $ACCELOPT_CACHE_DIR, else the user's cache directory].",
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Only results and errors.")]
VerboseOption = Annotated[
    int,
    typer.Option("--verbose", "-v", count=True, show_default=False, help="More detail; twice for everything the library logs."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def report_error(message: str) -> None:
    """One line on stderr, whatever was asked of stdout."""
    print(f"accelopt: error: {visible(message)}", file=sys.stderr)


_printed: list[bool] = []
"""Not empty once this command's JSON document is out."""


def forget_result() -> None:
    """Another command begins."""
    _printed.clear()


def result_of_error(message: str, code: int) -> None:
    """The JSON document of a command that failed before it had a result."""
    if not _printed:
        print(json.dumps({"error": message, "exit_code": code}, indent=2, sort_keys=True))


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where a command's results go. `level` is -1 quiet, 0 normal, 1 and 2 verbose; `given` are settings that an option of the
    command gives, with its name."""

    as_json: bool
    level: int
    given: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(*, as_json: bool, cache_dir: Path | None, quiet: bool, verbose: int) -> Output:
        """Apply the options every command shares. Store and log level go to the environment, so that children see them."""
        from accelopt_compile.config import settings_from

        place = cache_dir or settings_from().cache_dir  # pyproject's is made explicit here: it would beat the environment
        if place is not None:
            os.environ["ACCELOPT_CACHE_DIR"] = str(Path(place).expanduser().absolute())
        if quiet or verbose > 1:
            os.environ["ACCELOPT_LOG"] = "quiet" if quiet else "debug"
        log = "-q" if quiet else "-vv" if verbose > 1 else None
        given = {"cache_dir": None if cache_dir is None else "--cache-dir", "log": log}
        return Output(
            as_json=as_json,
            level=-1 if quiet else verbose,
            given={name: option for name, option in given.items() if option is not None},
        )

    @property
    def settings(self) -> dict[str, str]:
        """The store, and the log level where an option gives it, as settings of a compile, which come before any
        pyproject.toml."""
        log = os.environ.get("ACCELOPT_LOG") if "log" in self.given else None
        given = {"cache_dir": os.environ.get("ACCELOPT_CACHE_DIR"), "log": log}
        return {name: value for name, value in given.items() if value}

    def result(self, data: Any) -> None:
        """The command's JSON document; printed with --json alone."""
        if self.as_json:
            _printed.append(True)
            print(json.dumps(data, indent=2, sort_keys=True, default=str))

    def line(self, text: str = "", *, level: int = -1) -> None:
        """One line for people, from verbosity `level` on."""
        if not self.as_json and self.level >= level:
            print(visible(text))

    def note(self, text: str) -> None:
        """Progress, on stderr: never mixed with results."""
        if self.level >= 0:
            print(visible(text), file=sys.stderr, flush=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = "") -> None:
        """A table: drawn by rich on a terminal, else plain columns that `cut` and `awk` can read."""
        if self.as_json:
            return
        title, columns = visible(title), [visible(column) for column in columns]
        texts = [[visible(cell) for cell in row] for row in rows]
        if sys.stdout.isatty():
            _draw(columns, texts, title)
            return
        if title:
            print(title)
        widths = [max(len(row[i]) for row in [list(columns), *texts]) for i in range(len(columns))]
        for row in [list(columns), *texts]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Show that something long is going on: a spinner on a terminal, one line elsewhere."""
        if self.level < 0:
            yield
        elif not sys.stderr.isatty():
            self.note(text + " ...")
            yield
        else:
            from rich.console import Console

            with Console(stderr=True).status(visible(text)):
                yield


def _draw(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    Console().print(table)


def human_bytes(size: int) -> str:
    """1536 -> '1.5 KiB'."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def human_us(microseconds: float) -> str:
    """Microseconds as people read them: '12.3 us', '4.56 ms', '1.20 s'."""
    if microseconds < 1e3:
        return f"{microseconds:.1f} us"
    return f"{microseconds / 1e3:.2f} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.2f} s"


def binding_text(binding: Mapping[str, int]) -> str:
    """{'s0': 256} -> 's0=256'; '-' where nothing is free."""
    return " ".join(f"{name}={value}" for name, value in sorted(binding.items())) or "-"


def plain(value: object) -> str:
    """A value of a record in words: {"slower": 3} -> "slower 3", what several names share once; "" for what is empty."""
    if isinstance(value, Mapping):
        texts = {str(name): text for name, one in value.items() if (text := plain(one))}
        shared = set(texts.values()) if not any(isinstance(one, int | float) for one in value.values()) else set()
        return shared.pop() if len(shared) == 1 and len(texts) > 1 else ", ".join(f"{n} {t}" for n, t in texts.items())
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, map(plain, value)))
    return "" if value is None else str(value)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on stderr before something is destroyed. Raises UsageError where nobody can answer, typer.Abort on no."""
    from accelopt_compile.errors import UsageError

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} needs an answer and stdin is not a terminal; add --yes")
    if not typer.confirm(question, err=True):
        raise typer.Abort
