"""Which record serves: the policy for a changed environment, and the choice among winners. Pure functions.

The policy is the table in cache/README.md. Only names in the tables below are known to matter; a difference in any
other one asks for a new timing, never for a miss, so that a per-machine variable cannot make every look-up fail.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from accelopt_compile.records import Binding, Record, bucket_distance

Reuse = Literal["use", "reverify", "retime", "never"]

_ORDER: tuple[Reuse, ...] = ("use", "retime", "reverify", "never")

MINOR = frozenset({"torch"})
"""Compared by major.minor: a patch release keeps verdicts and timings."""

IDENTITY = frozenset({"arch", "isa", "isa_level", "backend", "abi", "revoked"})
"""Another value is another kernel: the record can only seed a search."""

PROOF = frozenset(
    {"compiler", "compiler_version", "compiler_id", "compiler_flags", "cxx", "flags", "gcc", "clang", "glibcxx", "openmp"}
    | {"device_runtime"}
    | {"harness", "harness_version", "verify_policy", "policy", "accelopt_abi"}
)
"""Another value may change what the kernel computes, or what counts as proven."""

IRRELEVANT = frozenset(
    {"driver", "hostname", "host", "hostname_hash", "pid", "cwd", "user", "os", "kernel", "os_release", "libc"}
    | {"python", "accelopt", "date", "created"}
)
"""Recorded for people; a difference changes nothing."""

UNKNOWN = frozenset({"", "unknown", "?"})
"""A value that was not found out is never taken for equal to a known one, and never fatal."""

TIE_SHARE = 0.02
"""Kernels whose times differ by less than this share, or by the measured noise, are equally fast."""


def reuse(record_env: Mapping[str, str], env: Mapping[str, str]) -> Reuse:
    """What a record made in `record_env` is worth in `env`.

    "use": serve it. "retime": still right, but its speed is unproven here. "reverify": prove it again before serving.
    "never": not for this machine. The strictest difference wins.
    """
    worst: Reuse = "use"
    for name in sorted({*record_env, *env}):
        verdict = _difference(name, record_env.get(name, ""), env.get(name, ""))
        worst = max(worst, verdict, key=_ORDER.index)
    return worst


def _difference(name: str, recorded: str, present: str) -> Reuse:
    """The verdict on one field."""
    if name in IRRELEVANT or recorded == present or (recorded in UNKNOWN and present in UNKNOWN):
        return "use"
    unknown = recorded in UNKNOWN or present in UNKNOWN
    if name in MINOR:
        return "use" if not unknown and _minor(recorded) == _minor(present) else "reverify"
    if name in IDENTITY:
        return "reverify" if unknown else "never"
    return "reverify" if name in PROOF else "retime"


def _minor(version: str) -> str:
    """ "2.13" of "2.13.0+cpu"; the text itself when it is no version."""
    match = re.match(r"\d+\.\d+", version)
    return match[0] if match else version


def choose(
    records: Sequence[tuple[str, Record]], binding: Binding, *, environment: Mapping[str, str] | None, max_distance: float
) -> tuple[str, Record] | None:
    """The (id, record) to serve at `binding`, or None.

    Eligible: winners proven on the device, at most `max_distance` away, not "never". Then: what may be served as it is
    before what must be timed, and that before what must be proven; the nearest binding; the fastest. Equal within the
    noise: the older, then the smaller id, so that every process chooses the same.
    """
    eligible = [
        (_rank(record, binding, environment), name, record)
        for name, record in records
        if record.outcome == "winner"
        and record.rung == "device"
        and bucket_distance(record.binding, binding) <= max_distance
        and (environment is None or reuse(record.environment, environment) != "never")
        and not _demoted(record, records, binding, environment)
    ]
    if not eligible:
        return None
    best = min(rank for rank, _, _ in eligible)
    return _fastest([(name, record) for rank, name, record in eligible if rank == best])


def _rank(record: Record, binding: Binding, environment: Mapping[str, str] | None) -> tuple[int, float]:
    verdict = "use" if environment is None else reuse(record.environment, environment)
    return _ORDER.index(verdict), bucket_distance(record.binding, binding)


def _demoted(
    winner: Record, records: Sequence[tuple[str, Record]], binding: Binding, environment: Mapping[str, str] | None
) -> bool:
    """Whether a search in this very environment found that the baseline is better than `winner`: a later one, as near; if
    `winner` is of this environment too, any that is nearer, if it is not, none that is older."""
    if environment is None:
        return False
    distance, here = bucket_distance(winner.binding, binding), reuse(winner.environment, environment) == "use"

    def speaks_against(other: Record) -> bool:
        apart = bucket_distance(other.binding, binding)
        later = other.created > winner.created
        return (apart < distance and here) or (apart <= distance and later)

    return any(
        other.outcome == "baseline" and reuse(other.environment, environment) == "use" and speaks_against(other)
        for _, other in records
    )


def _fastest(records: Sequence[tuple[str, Record]]) -> tuple[str, Record]:
    times = {name: record.timing.kernel_us for name, record in records if record.timing is not None}
    first = min(records, key=lambda item: (times[item[0]], item[0]))
    noise = first[1].timing.noise if first[1].timing is not None else 0.0
    limit = times[first[0]] * (1 + max(TIE_SHARE, noise))
    ties = [item for item in records if times[item[0]] <= limit]
    # A record without a date is taken for the youngest.
    return min(ties, key=lambda item: (item[1].created or "~", item[0]))
