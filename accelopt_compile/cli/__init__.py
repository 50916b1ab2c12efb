"""The `accelopt` command: the only place that prints.

Exit codes: 0 ok, 1 error, 2 usage, 3 some regions kept the baseline, 4 verification failed, 130 interrupted with state saved.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main", "run"]

SEARCHING = ("prewarm", "demo")
"""Commands whose work is kept as it is done."""


def interrupted(arguments: Sequence[str]) -> str:
    """What Ctrl-C left of a command that does not say so itself."""
    if any(argument in SEARCHING for argument in arguments[:1]):
        return "interrupted; what was found so far is stored, and the same command goes on from there"
    return "interrupted; nothing was lost, and the same command starts again"


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; a user's mistake is one line on stderr, never a traceback."""
    from accelopt_compile.cli.commands import app
    from accelopt_compile.cli.output import report_error
    from accelopt_compile.errors import AccelOptError, Interrupted, InvalidOption, UnknownOption, UsageError

    try:
        app(list(arguments), prog_name="accelopt")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if code == 130:  # typer turns Ctrl-C into this by itself
            report_error(interrupted(arguments))
        return code
    except Interrupted as told:
        report_error(str(told))
        return 130
    except (UsageError, UnknownOption, InvalidOption) as failure:
        report_error(str(failure))
        return 2
    except AccelOptError as failure:
        report_error(str(failure))
        return 1
    except KeyboardInterrupt:
        report_error(interrupted(arguments))
        return 130
    return 0


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))
