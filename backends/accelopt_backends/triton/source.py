"""The source format: one Python file of `@triton.jit` functions and one host function, which is read as data and never run.

`parse` turns the host function `accelopt_kernel` into a `Program`: its parameters, its tunables, and steps whose integer
expressions `evaluate` works out. So a kernel's author decides grids, scratch memory and launches, and no host code of an
author ever runs. What else the file may hold is the screen's to say (screening.py).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from accelopt_backends.triton.arithmetic import INTERPRETED, SourceError, checked

HOST = "accelopt_kernel"

POINTERS = {
    "*fp64": "f64",
    "*fp32": "f32",
    "*bf16": "bf16",
    "*fp16": "f16",
    "*i64": "i64",
    "*i32": "i32",
    "*i16": "i16",
    "*i8": "i8",
    "*u8": "u8",
    "*i1": "b8",
}
"""Pointer types, with our short names of what they point to."""

OPTIONS = ("num_warps", "num_stages", "num_ctas")
MOST_STEPS = 64
MOST_CHOICES = 32


@dataclass(frozen=True)
class Assign:
    """`name` stands for an integer from here on."""

    name: str
    value: ast.expr


@dataclass(frozen=True)
class Scratch:
    """`name` is device memory of so many elements; zeroed, or holding anything."""

    name: str
    dtype: str
    elements: ast.expr
    zeroed: bool


@dataclass(frozen=True)
class Leave:
    """Where `condition` holds the kernel ends; 0 says that it ran, anything else that it declines."""

    condition: ast.expr
    status: int


@dataclass(frozen=True)
class Launch:
    """One launch of a device function. `args` are names of pointers or integer expressions, `constants` its constexprs."""

    function: str
    grid: tuple[ast.expr, ...]
    args: tuple[ast.expr, ...]
    constants: Mapping[str, ast.expr]
    options: Mapping[str, ast.expr]
    line: int


Step = Assign | Scratch | Leave | Launch


@dataclass(frozen=True, kw_only=True)
class Program:
    """A host function as data. `tensors` are (name, pointer type), inputs then outputs; `functions` the device functions."""

    tensors: tuple[tuple[str, str], ...]
    symbols: tuple[str, ...]
    tunables: Mapping[str, tuple[int, ...]]
    steps: tuple[Step, ...]
    functions: tuple[str, ...]


def parse(text: str) -> Program:
    """The program of a source file. Raises SourceError."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as failure:
        raise SourceError(getattr(failure, "lineno", 1) or 1, f"no Python: {failure}", "write one Python file") from None
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    host = functions.pop(HOST, None)
    if host is None:
        raise SourceError(1, f"no host function {HOST}", f"define {HOST}(in0, ..., out0, ..., s0, ..., *, BLOCK=(1024, 512))")
    tensors, symbols = _parameters(host)
    tunables = _tunables(host)
    known = {name for name, _ in tensors} | set(symbols) | set(tunables) | {INTERPRETED}
    steps: list[Step] = []
    for statement in _body(host):
        step = _step(statement, set(functions), known)
        if step is not None:
            steps.append(step)
        if len(steps) > MOST_STEPS:
            raise SourceError(statement.lineno, f"more than {MOST_STEPS} steps", "launch fewer kernels")
    if not any(isinstance(step, Launch) for step in steps):
        raise SourceError(host.lineno, "it launches nothing", "launch a kernel: name[(grid,)](arguments, num_warps=4)")
    return Program(
        tensors=tuple(tensors), symbols=tuple(symbols), tunables=tunables, steps=tuple(steps), functions=tuple(functions)
    )


# ---------------------------------------------------------------- the signature


def _parameters(host: ast.FunctionDef) -> tuple[list[tuple[str, str]], list[str]]:
    args = host.args
    if args.posonlyargs or args.vararg or args.kwarg or args.defaults or host.decorator_list:
        raise SourceError(host.lineno, "the host function is decorated, or takes defaults or *args", "name its tensors and sizes")
    if host.returns is not None or any(a.annotation is not None for a in args.kwonlyargs):  # these would run at import
        raise SourceError(host.lineno, "an annotation of a tunable, or of what is returned", "leave it out")
    tensors: list[tuple[str, str]] = []
    symbols: list[str] = []
    for arg in args.args:
        kind = arg.annotation.value if isinstance(arg.annotation, ast.Constant) else None
        if kind in POINTERS and not symbols:
            tensors.append((arg.arg, str(kind)))
        elif kind == "i64":
            symbols.append(arg.arg)
        else:
            raise SourceError(arg.lineno, f"parameter {arg.arg} has no type", 'annotate tensors "*bf16", then sizes "i64"')
    return tensors, symbols


def _tunables(host: ast.FunctionDef) -> dict[str, tuple[int, ...]]:
    found = {}
    for arg, default in zip(host.args.kwonlyargs, host.args.kw_defaults, strict=True):
        values = [e.value if isinstance(e, ast.Constant) else None for e in getattr(default, "elts", ())]
        whole = [v for v in values if type(v) is int and 0 <= v < 1 << 31]
        if not isinstance(default, ast.Tuple) or not whole or len(whole) != len(values) or len(values) > MOST_CHOICES:
            hint = f"write its allowed values, the default first: {arg.arg}=(128, 64)"
            raise SourceError(arg.lineno, f"tunable {arg.arg} is no tuple of 1 to {MOST_CHOICES} integers", hint)
        found[arg.arg] = tuple(dict.fromkeys(whole))
    return found


def _body(host: ast.FunctionDef) -> list[ast.stmt]:
    first = host.body[0]
    described = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return host.body[1:] if described else host.body


# ---------------------------------------------------------------- statements


def _step(node: ast.stmt, functions: set[str], known: set[str]) -> Step | None:
    """One statement as a step; a new name goes to `known`. A plain `return` at the end is none."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="scratch" | "zeros" as how)) as call):
            step: Step = _scratch(name, how, call, known)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            step = Assign(name, checked(value, known))
        case ast.If(test=test, body=[ast.Return(value=value)], orelse=[]):
            return Leave(checked(test, known), _status(value, node.lineno))
        case ast.Expr(value=ast.Call(func=ast.Subscript(value=ast.Name(id=function), slice=grid)) as call):
            return _launch(function, grid, call, functions, known)
        case ast.Return(value=None):
            return None
        case _:
            raise SourceError(
                node.lineno,
                f"{type(node).__name__} in the host function",
                'it may assign integers, scratch("fp32", n) or zeros("fp32", n), leave by `if condition: return`, and launch',
            )
    known.add(name)
    return step


def _scratch(name: str, how: str, call: ast.Call, known: set[str]) -> Scratch:
    match call:
        case ast.Call(args=[ast.Constant(value=str(dtype)), elements], keywords=[]) if f"*{dtype}" in POINTERS:
            return Scratch(name, f"*{dtype}", checked(elements, known), how == "zeros")
    raise SourceError(call.lineno, f"{how} takes a type and a number of elements", f'write {how}("fp32", n)')


def _status(value: ast.expr | None, line: int) -> int:
    if value is None:
        return 0
    if isinstance(value, ast.Constant) and type(value.value) is int:
        return value.value
    raise SourceError(line, "the host function returns something", "return nothing, or 1 where it declines")


def _launch(function: str, grid: ast.expr, call: ast.Call, functions: set[str], known: set[str]) -> Launch:
    if function not in functions:
        raise SourceError(call.lineno, f"{function} is no device function of this file", f"launch one of {sorted(functions)}")
    axes = grid.elts if isinstance(grid, ast.Tuple) else [grid]
    if not 1 <= len(axes) <= 3:
        raise SourceError(call.lineno, f"a grid of {len(axes)} axes", "give it 1 to 3")
    named = {k.arg: k.value for k in call.keywords if k.arg is not None}
    if len(named) != len(call.keywords):
        raise SourceError(call.lineno, "** in a launch", "name each constant")
    return Launch(
        function=function,
        grid=tuple(checked(a, known) for a in axes),
        args=tuple(checked(a, known) for a in call.args),
        constants={name: checked(value, known) for name, value in named.items() if name not in OPTIONS},
        options={name: checked(value, known) for name, value in named.items() if name in OPTIONS},
        line=call.lineno,
    )
