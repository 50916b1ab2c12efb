"""Static refusals of a Triton source: everything that is not a launch of device functions that compute on tensors.

Lists of what is allowed, at module level here, in device functions in `device_code`, in the host function in `source` and
`launches`. So nothing of an author's runs when the file is loaded but definitions, in the interpreter a body reaches numbers and
tensors only, and the compiler calls functions of `tl` only. Not covered: wrong arithmetic, races, shapes that are built in,
precision lost by conversions; those are for verification.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence

from accelopt_backends.base import Refusal
from accelopt_backends.triton.arithmetic import SourceError
from accelopt_backends.triton.device_code import refusals
from accelopt_backends.triton.device_values import Scope
from accelopt_backends.triton.extent import SIZE_LIMIT, called_first, characters, excesses, expansions
from accelopt_backends.triton.launches import misfits
from accelopt_backends.triton.source import HOST, parse
from accelopt_backends.triton.syntax import Found, dotted, named_badly
from accelopt_compile.records import KernelSource

MOST = 20
"""Refusals that are told at most."""

_IMPORTS = ("import triton", "import triton.language as tl")
_MODULE = f"a file has {_IMPORTS[0]!r}, {_IMPORTS[1]!r}, constants NAME = tl.constexpr(4), @triton.jit functions and {HOST}"


def screen(source: KernelSource) -> Sequence[Refusal]:
    """Refusals with the line they stand on. Empty when the source may be built."""
    if source.language != "triton":
        return [Refusal(line=1, reason=f"language {source.language!r}", hint="this backend builds triton")]
    if len(source.text) > SIZE_LIMIT:
        return [Refusal(line=1, reason=f"{len(source.text)} characters of source", hint=f"at most {SIZE_LIMIT}")]
    found = list(_screened(source.text))
    if not found and {n: set(v) for n, v in source.tunables.items()} != {
        n: set(v) for n, v in parse(source.text).tunables.items()
    }:
        hint = f"the keyword-only parameters of {HOST} and their tuples are the tunables"
        found = [Refusal(line=1, reason="tunables that are not those of the text", hint=hint)]
    return found


@functools.lru_cache(maxsize=64)
def _screened(text: str) -> Sequence[Refusal]:
    found = sorted(set(_found(text)))
    return tuple(Refusal(line=line, reason=reason, hint=hint) for line, reason, hint in found[:MOST])


def _found(text: str) -> list[Found]:
    """What is refused. The first group of checks that finds something ends it: those behind take for granted what it checks."""
    if unreadable := list(characters(text)):
        return unreadable
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        module = ast.Module(body=[], type_ignores=[])  # parse says what is wrong with it
    if deep := list(excesses(module)):
        return deep
    functions = {f.name: f for f in module.body if isinstance(f, ast.FunctionDef) and f.name != HOST}
    scope = Scope(frozenset(functions), frozenset(_constants(module)))
    if inner := [*_module(module), *(one for f in functions.values() for one in refusals(f, scope))]:
        return inner
    order = called_first(functions)
    if isinstance(order, tuple):
        return [order]
    if long := list(expansions(functions, order)):
        return long
    try:
        program = parse(text)
    except SourceError as failure:
        return [(failure.line, failure.reason, failure.hint)]
    host = next(f for f in module.body if isinstance(f, ast.FunctionDef) and f.name == HOST)
    if host.returns is not None or any(a.annotation is not None for a in host.args.kwonlyargs):
        return [(host.lineno, "an annotation that runs when the file is loaded", "annotate tensors and sizes, nothing else")]
    return list(misfits(program, functions, order, host.lineno))


# ---------------------------------------------------------------- module level


def _constants(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        if isinstance(node, ast.Assign):
            yield from (t.id for t in node.targets if isinstance(t, ast.Name))


def _module(module: ast.Module) -> Iterator[Found]:
    names: set[str] = set()
    imports = [ast.unparse(node) for node in module.body if isinstance(node, ast.Import | ast.ImportFrom)]
    if module.body and not imports:
        yield 1, "no imports", f"begin with {_IMPORTS[0]} and {_IMPORTS[1]}"
    for index, node in enumerate(module.body):
        match node:
            case ast.Import() | ast.ImportFrom():
                yield from _import(node, imports)
            case ast.Expr(value=ast.Constant(value=str())) if index == 0:
                continue
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield from _name(node, name, names)
                if not _constant(value):
                    yield node.lineno, f"host code: {name[:64]} is no constant", "write NAME = tl.constexpr(4), with a number"
            case ast.AnnAssign(target=ast.Name(id=name)):
                hint = f"the compiler takes {name[:64]} = tl.constexpr(value) and no annotation"
                yield node.lineno, "an annotated constant", hint
            case ast.FunctionDef(name=name):
                yield from _name(node, name, names)
            case _:
                yield node.lineno, f"host code: {type(node).__name__} at module level", _MODULE


def _import(node: ast.Import | ast.ImportFrom, imports: list[str]) -> Iterator[Found]:
    text = ast.unparse(node)
    if text not in _IMPORTS:
        yield node.lineno, f"an import: {text[:80]}", f"{_IMPORTS[0]} and {_IMPORTS[1]} are all that a kernel needs"
    elif imports.count(text) > 1:
        yield node.lineno, "an import that is there twice", "once is enough"


def _name(node: ast.stmt, name: str, names: set[str]) -> Iterator[Found]:
    if name in names:
        yield node.lineno, f"{name[:64]} is defined twice", "give each its own name"
    elif (why := named_badly(name)) is not None:
        yield node.lineno, why, "give it another name"
    names.add(name)


def _constant(node: ast.expr) -> bool:
    """Whether it is tl.constexpr of a number, maybe a negative one."""
    match node:
        case ast.Call(args=[value], keywords=[]) if dotted(node.func) == "tl.constexpr":
            if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
                value = value.operand
            if isinstance(value, ast.Constant):
                return type(value.value) in (int, float, bool)
            return ast.unparse(value) in ("float('inf')", "float('nan')")
    return False
