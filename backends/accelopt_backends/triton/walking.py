"""Going through a program with the sizes of a call: the one place that knows what its steps mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from accelopt_backends.triton.arithmetic import INTERPRETED, evaluate
from accelopt_backends.triton.source import POINTERS, Assign, Launch, Leave, Program, Scratch
from accelopt_compile.records import ITEM_BYTES

Grid = tuple[int, int, int]

MOST = ((1 << 31) - 1, 65535, 65535)
"""Programs along each axis of a grid at most."""

DECLINED = 1
"""The status of a call that no grid can hold: the caller runs the region otherwise."""


def chosen(program: Program, tunables: Mapping[str, int]) -> dict[str, int]:
    """`tunables`, the others at their defaults."""
    return {name: values[0] for name, values in program.tunables.items()} | dict(tunables)


def known(program: Program, tunables: Mapping[str, int], sizes: Sequence[int]) -> dict[str, int]:
    """The integers that a call starts with: tunables, and `sizes` in the order of the program's symbols. Raises ValueError."""
    if len(sizes) != len(program.symbols):
        raise ValueError(f"the host function takes {len(program.symbols)} sizes, and the workload has {len(sizes)}")
    return chosen(program, tunables) | dict(zip(program.symbols, sizes, strict=True)) | {INTERPRETED: 0}


def walk(
    program: Program,
    names: dict[str, int],
    *,
    allocate: Callable[[Scratch, int], None],
    launch: Callable[[Launch, Grid], None],
) -> int:
    """Every step in turn; the status of the call. `names` gets each integer as it is known; `allocate` is told the bytes of
    scratch memory, `launch` each grid that is not empty. Raises OverflowError, ZeroDivisionError, and KeyError for arithmetic on
    a pointer."""
    for step in program.steps:
        match step:
            case Assign():
                names[step.name] = evaluate(step.value, names)
            case Scratch():
                allocate(step, max(0, evaluate(step.elements, names)) * ITEM_BYTES[POINTERS[step.dtype]])
            case Leave():
                if evaluate(step.condition, names):
                    return step.status
            case Launch():
                x, y, z = (*(evaluate(axis, names) for axis in step.grid), 1, 1)[:3]
                if any(count > most for count, most in zip((x, y, z), MOST, strict=True)):
                    return DECLINED
                if min(x, y, z) > 0:
                    launch(step, (x, y, z))
    return 0
