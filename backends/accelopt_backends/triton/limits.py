"""What tunables say, before anything is built, of the threads and the memory that a program takes.

A lower bound: a choice that is refused here cannot run on the target; one that is let through may still be refused by the
build, which knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from accelopt_backends.triton.arithmetic import SourceError
from accelopt_backends.triton.binding import known_at_build, launches, value_at_build
from accelopt_backends.triton.source import Program, parse
from accelopt_backends.triton.targets import MOST_THREADS, Target

MOST_ELEMENTS = 1 << 20
"""Elements of a block, which the language refuses beyond."""


def fits(text: str, tunables: Mapping[str, int], target: Target) -> bool:
    """Whether every launch of the source has threads, stages and constants that the target and the language can take. True
    for a source that cannot be read: the screen says why."""
    program = _program(text)
    if program is None:
        return True
    known = known_at_build(program, tunables)
    for launch in launches(program, tunables):
        options = {name: value_at_build(value, known) for name, value in launch.options.items()}
        warps, ctas = options.get("num_warps") or 4, options.get("num_ctas") or 1
        if warps & (warps - 1) or warps * target.warp > MOST_THREADS:
            return False
        if ctas > 1 and not target.clusters:
            return False
        if any((value_at_build(value, known) or 0) > MOST_ELEMENTS for value in launch.constants.values()):
            return False
    return True


@lru_cache(maxsize=64)
def _program(text: str) -> Program | None:
    try:
        return parse(text)
    except SourceError:
        return None
