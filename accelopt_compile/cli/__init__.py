"""The `accelopt` command: the only place that prints.

Exit codes: 0 ok, 1 error, 2 usage, 3 some regions kept the baseline, 4 verification failed, 130 interrupted with state saved.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelopt_compile.errors import AccelOptError

__all__ = ["main", "run"]

SEARCHING = ("prewarm", "demo", "tune")
"""Commands whose work is kept as it is done."""


def interrupted(arguments: Sequence[str]) -> str:
    """What Ctrl-C left of a command that does not say so itself."""
    if any(argument in SEARCHING for argument in arguments[:1]):
        return "interrupted; whatever was found so far is stored, and the same command goes on from there"
    return "interrupted; nothing was lost, and the same command starts again"


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; a user's mistake is one line on stderr, never a traceback. With --json an
    error is also the one document on stdout."""
    from accelopt_compile.cli.commands import app
    from accelopt_compile.cli.output import forget_result
    from accelopt_compile.errors import AccelOptError

    forget_result()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed: nobody reads
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        code = app(list(arguments), prog_name="accelopt", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except AccelOptError as failure:
        return _failed(arguments, _in_options(arguments, failure), _exit_code(failure))
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # `| head`: the reader has enough
        code = _silenced(0)
    except OSError as failure:
        where = f"{failure.filename}: " if failure.filename is not None else ""
        code = _silenced(_failed(arguments, f"{where}{failure.strerror or failure}", 1))
    except Exception as failure:
        code = _refused(arguments, failure)
    code = code if isinstance(code, int) else 0
    return _failed(arguments, interrupted(arguments), code) if code == 130 else code


def _silenced(code: int) -> int:
    """The exit code; output that cannot be written goes nowhere, or the interpreter complains about it as it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _failed(arguments: Sequence[str], message: str, code: int) -> int:
    """Say an error; the exit code."""
    from accelopt_compile.cli.output import report_error, result_of_error

    report_error(message)
    if "--json" in arguments:
        result_of_error(message, code)
    return code


def _refused(arguments: Sequence[str], failure: Exception) -> int:
    """The exit code of a command line that the parser refused, or that was given up at a question; other failures go on."""
    import typer

    from accelopt_compile.cli.output import result_of_error

    if isinstance(failure, typer.Abort):
        return _failed(arguments, "given up; nothing was changed", 1)
    show, told, code = (getattr(failure, name, None) for name in ("show", "format_message", "exit_code"))
    if not (callable(show) and callable(told) and isinstance(code, int)):
        raise failure
    show()
    if "--json" in arguments:
        result_of_error(str(told()), code)
    return code


def _exit_code(failure: AccelOptError) -> int:
    from accelopt_compile.errors import Interrupted, InvalidOption, UnknownOption, UsageError

    if isinstance(failure, Interrupted):
        return 130
    return 2 if isinstance(failure, UsageError | UnknownOption | InvalidOption) else 1


SPELLED = (
    "model",
    "base_url",
    "proposer",
    "effort",
    "rounds",
    "budget_s",
    "budget_usd",
    "budget_tokens",
    "prices",
    "backend",
    "target",
    "threads",
    "seed",
)
"""Settings that are options of `accelopt tune`."""


def _in_options(arguments: Sequence[str], failure: AccelOptError) -> str:
    """An error about settings as the command line spells them: --budget-tokens, not budget_tokens=."""
    from accelopt_compile.errors import InvalidOption

    if not isinstance(failure, InvalidOption) or list(arguments[:1]) != ["tune"]:
        return str(failure)
    return as_options(str(failure))


def as_options(message: str) -> str:
    """A message of the library with settings as the command line spells them.

    >>> as_options("set model= (or ACCELOPT_MODEL); budget_usd=0.5 needs a price: give prices=FILE, or planner_model=")
    'give --model (or ACCELOPT_MODEL); --budget-usd 0.5 needs a price: give --prices FILE, or ACCELOPT_PLANNER_MODEL'
    """

    def spelled(found: re.Match[str]) -> str:
        name, value = found[1], found[2]
        if name not in SPELLED:
            return f"ACCELOPT_{name.upper()}={value}" if value else f"ACCELOPT_{name.upper()}"
        return f"--{name.replace('_', '-')} {value}".rstrip()

    text = re.sub(r"(?<![\w/-])([a-z][a-z_]*)=([^\s,;:)]*)", spelled, message)
    return re.sub(r"^base_url:", "--base-url:", text).replace("set --", "give --").replace(" (from the call)", "")


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))
