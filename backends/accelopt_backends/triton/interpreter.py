"""Running a kernel without its device: the program walked here, its device functions in the language's interpreter.

Memory is host memory by address, scratch is numpy's with room around it that is checked after each launch. Programs of a
grid, and lanes of a store, run one after another, in turns first to last and last to first: results that depend on the order
differ between two calls. What this cannot see is in README.md.
"""

from __future__ import annotations

import inspect
import itertools
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accelopt_backends.base import Kernel
from accelopt_backends.triton.arithmetic import evaluate
from accelopt_backends.triton.binding import Bound, bind, parameters_of, pointer_types
from accelopt_backends.triton.imported import module_of
from accelopt_backends.triton.source import Launch, Program, Scratch, parse
from accelopt_backends.triton.walking import Grid, known, walk
from accelopt_compile.records import Artifact

ASSERTED = 70
"""The status of a call in which a device assertion failed."""

_ROOM = 4096
_POISON = 0xFF  # NaN in every float type, -1 in every signed integer


class KernelRaised(Exception):
    """A device function raised: the line of the file, and what it said."""


def load(artifact: Artifact) -> Kernel:
    """The kernel at `artifact.path` over host addresses. Raises OSError, SourceError, and what the file raises at import."""
    from accelopt_backends.triton import emulation

    program = parse(Path(artifact.path).read_text())
    functions = emulation.interpreted(module_of(artifact.path, interpreted=True))
    launches = {id(s): _Launchable(s, functions[s.function], program) for s in program.steps if isinstance(s, Launch)}
    turn = itertools.count()

    def call(pointers: Sequence[int], sizes: Sequence[int], threads: int) -> int:
        names = known(program, artifact.tunables, sizes)
        addresses = {name: int(p) for (name, _), p in zip(program.tensors, pointers, strict=True)}
        try:
            backwards = next(turn) % 2 == 1
            with emulation.interpreting(backwards=backwards) as builder:
                run = _Run(launches, names, addresses, builder, backwards=backwards)
                return walk(program, names, allocate=run.allocate, launch=run.launch)
        except emulation.Stopped:
            return ASSERTED
        except Exception as failure:  # the kernel's own code: whatever it raises is the answer
            raise KernelRaised(_cause(failure, artifact.path)) from failure

    return call


class _Launchable:
    """A launch with the function that it launches."""

    def __init__(self, launch: Launch, function: Any, program: Program) -> None:
        self.function = function
        self.names = list(inspect.signature(function.fn).parameters)
        self.bound: Bound = bind(launch, parameters_of(function.fn), pointer_types(program))


class _Run:
    """One call: `names` are the integers known so far, `addresses` the pointers, scratch among them."""

    def __init__(
        self,
        launches: Mapping[int, _Launchable],
        names: Mapping[str, int],
        addresses: dict[str, int],
        builder: Any,
        *,
        backwards: bool,
    ) -> None:
        self.launches, self.names, self.addresses = launches, names, addresses
        self.builder, self.backwards = builder, backwards
        self.scratch: list[tuple[str, np.ndarray, int, int]] = []

    def allocate(self, step: Scratch, size: int) -> None:
        memory = np.full(size + 2 * _ROOM + 64, _POISON, dtype=np.uint8)
        start = -(-(memory.ctypes.data + _ROOM) // 64) * 64
        at = start - memory.ctypes.data
        if step.zeroed:
            memory[at : at + size] = 0
        self.addresses[step.name] = start
        self.scratch.append((step.name, memory, at, at + size))

    def launch(self, launch: Launch, grid: Grid) -> None:
        made = self.launches[id(launch)]
        arguments = {
            name: self._argument(value, kind)
            for name, value, kind in zip(made.names, made.bound.values, made.bound.types, strict=True)
        }
        self.builder.set_grid_dim(*grid)
        for x, y, z in _programs(grid, backwards=self.backwards):
            self.builder.set_grid_idx(x, y, z)
            made.function(**arguments)
        self._check_scratch(launch)

    def _argument(self, value: Any, kind: str) -> Any:
        if kind == "constexpr":
            return evaluate(value, self.names)
        return _scalar(evaluate(value, self.names)) if kind == "i64" else _pointer(self.addresses[value.id], kind)

    def _check_scratch(self, launch: Launch) -> None:
        for name, memory, at, end in self.scratch:
            if (memory[at - _ROOM : at] != _POISON).any() or (memory[end:] != _POISON).any():
                raise IndexError(f"line {launch.line}: {launch.function} writes outside of scratch {name}")


def _programs(grid: Sequence[int], *, backwards: bool) -> Iterable[tuple[int, int, int]]:
    order: Callable[[int], Iterable[int]] = (lambda n: range(n - 1, -1, -1)) if backwards else range
    return ((x, y, z) for z in order(grid[2]) for y in order(grid[1]) for x in order(grid[0]))


def _scalar(value: int) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    return tl.tensor(TensorHandle(np.array([value], dtype=np.int64), tl.int64), tl.int64)


def _pointer(address: int, kind: str) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    pointer = tl.str_to_ty(kind, None)
    bits = address & (1 << 64) - 1  # a tensor without elements may lie anywhere, below 0 too
    return tl.tensor(TensorHandle(np.array([bits], dtype=np.uint64), pointer), pointer)


def _cause(failure: BaseException, path: str) -> str:
    """ "line 12: ValueError: ..." with the text of the line, where the failure came from one of the file."""
    frames = [f for f in traceback.extract_tb(failure.__traceback__) if f.filename == path]
    where = f"line {frames[-1].lineno}: " if frames else ""
    text = f"\n{frames[-1].line}" if frames and frames[-1].line else ""
    return f"{where}{type(failure).__name__}: {failure}{text}"[:2000]
