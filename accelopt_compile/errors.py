"""Every exception a user can see. A bad kernel is never one of them: it is a `Rejected` verdict.

AccelOptError
├── UnknownOption       a setting that does not exist (names the nearest one)
├── InvalidOption       a setting with a value it cannot take
├── UsageError          a command line that names something that is not there
├── UsersCodeFailed     what the user wrote (a factory, a model) raised; carries its traceback
├── ToolchainFailed     a compiler ran and failed; carries its trimmed output
│   └── ObjectRefused   what it built has more in it than a kernel may have
├── ToolchainMissing    no usable compiler; carries how to get one
├── Interrupted         Ctrl-C ended a command; says what was kept
├── DamagedEntry        a cache file that is not what its name says
├── InvalidRecord       JSON that does not describe the record it claims to be
├── LanguageModelMissing  the package that talks to language models is not installed
└── EvaluatorDied       the evaluation child could not be started at all
"""

from __future__ import annotations


class AccelOptError(Exception):
    """Base of all errors raised by AccelOpt Compile; `except AccelOptError` catches them all."""


class UnknownOption(AccelOptError):
    """A setting that does not exist.

    >>> str(UnknownOption("beam_widht", known=["beam_width", "mode"]))
    "unknown option 'beam_widht'; did you mean 'beam_width'? known options: beam_width, mode"
    """

    def __init__(self, name: str, *, known: list[str], where: str = "") -> None:
        import difflib

        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ";"
        origin = f" (from {where})" if where else ""
        super().__init__(f"unknown option '{name}'{origin}{hint} known options: {', '.join(sorted(known))}")


class InvalidOption(AccelOptError):
    """A setting whose value it cannot take; the message names value, reason and an accepted form."""


class UsageError(AccelOptError):
    """A command line that names something that is not there."""


class UsersCodeFailed(AccelOptError):
    """A factory or a model that a command line names raised. The message ends with the traceback of that code alone."""


class Interrupted(AccelOptError):
    """Ctrl-C ended a command. The message says what was done, what is left, and what the same command does when run again."""


class ToolchainFailed(AccelOptError):
    """A toolchain ran and refused the source. `diagnosis` is its output, trimmed to the cause."""

    def __init__(self, message: str, *, diagnosis: str = "") -> None:
        super().__init__(message)
        self.diagnosis = diagnosis


class ObjectRefused(ToolchainFailed):
    """A toolchain built something that must not be loaded. The message says what was found in it, `diagnosis` what to write."""


class ToolchainMissing(AccelOptError):
    """No usable toolchain. The message says what was tried and how to get one."""


class DamagedEntry(AccelOptError):
    """A cache file is not what its name says. The message names the file and the reason."""


class InvalidRecord(AccelOptError):
    """JSON that does not describe the record it claims to be."""


class LanguageModelMissing(AccelOptError):
    """The package that talks to language models is not installed. The message says how to install it."""


class EvaluatorDied(AccelOptError):
    """The evaluation child could not be started at all (not: a candidate crashed it)."""
