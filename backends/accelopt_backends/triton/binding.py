"""What a launch hands to the parameters of a device function: which are pointers, which integers, which constants.

Integers are always 64-bit: the language would take a size as 32-bit where it fits, and a product of two of them overflows.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from accelopt_backends.triton.arithmetic import INTERPRETED, evaluate
from accelopt_backends.triton.source import Assign, Launch, Leave, Program, Scratch


class Unbound(Exception):
    """A launch does not fit its function; line 1-based, why, and what to write instead."""

    def __init__(self, line: int, reason: str, hint: str) -> None:
        super().__init__(f"line {line}: {reason}; {hint}")
        self.line = line


@dataclass(frozen=True, kw_only=True)
class Bound:
    """`values` has an expression for each parameter in order; `types` "*bf16", "i64" or "constexpr"."""

    values: tuple[ast.expr, ...]
    types: tuple[str, ...]


@dataclass(frozen=True)
class Parameters:
    """What a device function takes: all names in order, those that are constants, and the values of those that have one."""

    names: tuple[str, ...]
    constexprs: frozenset[str]
    defaults: Mapping[str, ast.expr]


def parameters_of(function: Callable[..., object]) -> Parameters:
    """The parameters of a device function as it was written."""
    found = inspect.signature(function).parameters
    return Parameters(
        names=tuple(found),
        constexprs=frozenset(name for name, p in found.items() if "constexpr" in str(p.annotation)),
        defaults={name: ast.Constant(p.default) for name, p in found.items() if isinstance(p.default, int)},
    )


def bind(launch: Launch, parameters: Parameters, pointers: Mapping[str, str]) -> Bound:
    """Each parameter of a device function with what the launch gives it, or its default. Raises Unbound."""
    names, constexprs, defaults = parameters.names, parameters.constexprs, parameters.defaults
    given = dict(zip(names, launch.args, strict=False))
    if len(launch.args) > len(names):
        raise Unbound(
            launch.line, f"{launch.function} takes {len(names)} arguments, {len(launch.args)} are given", "leave some out"
        )
    for name, value in launch.constants.items():
        if name not in names or name in given:
            raise Unbound(launch.line, f"{launch.function} takes no {name}, or gets it twice", f"it takes {', '.join(names)}")
        given[name] = value
    given = dict(defaults) | given
    if absent := [name for name in names if name not in given]:
        raise Unbound(launch.line, f"{launch.function} lacks {', '.join(absent)}", "give a value for every parameter")
    types = []
    for name in names:
        value = given[name]
        pointer = pointers.get(value.id) if isinstance(value, ast.Name) else None
        if pointer is not None and name in constexprs:
            raise Unbound(launch.line, f"{name} is a constant and gets a pointer", "take tl.constexpr off the parameter")
        types.append("constexpr" if name in constexprs else pointer or "i64")
    return Bound(values=tuple(given[name] for name in names), types=tuple(types))


def pointer_types(program: Program) -> dict[str, str]:
    """Every pointer that a launch may name, with its type."""
    return dict(program.tensors) | {s.name: s.dtype for s in program.steps if isinstance(s, Scratch)}


def known_at_build(program: Program, tunables: Mapping[str, int]) -> dict[str, int]:
    """Values of the names that depend on tunables alone."""
    names = dict(tunables) | {INTERPRETED: 0}
    for step in program.steps:
        if isinstance(step, Assign):
            value = value_at_build(step.value, names)
            if value is None:
                names.pop(step.name, None)
            else:
                names[step.name] = value
    return names


def value_at_build(node: ast.expr, names: Mapping[str, int]) -> int | None:
    """The value of an expression, None where it needs sizes or has none."""
    try:
        return evaluate(node, names)
    except (KeyError, ZeroDivisionError, ValueError, OverflowError):
        return None


def launches(program: Program, tunables: Mapping[str, int]) -> list[Launch]:
    """The launches that these tunables can reach, in order."""
    names, found = known_at_build(program, tunables), []
    for step in program.steps:
        if isinstance(step, Leave) and value_at_build(step.condition, names):
            break
        if isinstance(step, Launch):
            found.append(step)
    return found
