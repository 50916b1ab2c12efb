"""What the checks of a source share: names as text, names that may not be given, and what to write instead of each form of the
host language that a device function has no use for."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from accelopt_backends.triton.allowed import RESERVED

Found = tuple[int, str, str]
"""(line, reason, hint)."""

LARGEST = 1 << 64
"""Where an integer is too large for any tensor."""

STATEMENTS = "assignments, if, for over range, while, return and calls are what a device function has"
EXPRESSIONS = "write it with arithmetic, tl functions and other @triton.jit functions of this file"
INSTEAD: Mapping[type[ast.AST], tuple[str, str]] = {
    ast.Break: ("break", "Triton compiles no break: put the condition into a while loop"),
    ast.Continue: ("continue", "Triton compiles no continue: use if, or a mask"),
    ast.Try: ("try", "a kernel has no second way; check sizes in the host function"),
    ast.With: ("with", STATEMENTS),
    ast.Import: ("an import inside a function", "the file imports triton and triton.language, nothing else"),
    ast.ImportFrom: ("an import inside a function", "the file imports triton and triton.language, nothing else"),
    ast.Global: ("global", "nothing survives a call: pass values as arguments"),
    ast.Nonlocal: ("nonlocal", "nothing survives a call: pass values as arguments"),
    ast.FunctionDef: ("a function inside a function", "define it at module level, with @triton.jit"),
    ast.AsyncFunctionDef: ("async", STATEMENTS),
    ast.ClassDef: ("a class", STATEMENTS),
    ast.Delete: ("del", "leave the name; it costs nothing"),
    ast.Raise: ("raise", "use tl.device_assert, or a mask"),
    ast.Assert: ("assert", "use tl.device_assert(condition) or tl.static_assert(condition)"),
    ast.Lambda: ("a lambda", "define a @triton.jit function and name it"),
    ast.NamedExpr: (":=", "assign in a statement of its own"),
    ast.JoinedStr: ("an f-string", "kernels have no text"),
    ast.ListComp: ("a comprehension", "use tl.static_range, or tensors"),
    ast.SetComp: ("a comprehension", "use tl.static_range, or tensors"),
    ast.DictComp: ("a comprehension", "use tl.static_range, or tensors"),
    ast.GeneratorExp: ("a comprehension", "use tl.static_range, or tensors"),
    ast.Dict: ("a dictionary", EXPRESSIONS),
    ast.Set: ("a set", EXPRESSIONS),
    ast.Starred: ("*", "write the arguments out"),
    ast.Await: ("await", EXPRESSIONS),
    ast.Yield: ("yield", EXPRESSIONS),
    ast.YieldFrom: ("yield", EXPRESSIONS),
}


def dotted(node: ast.expr) -> str:
    """ "tl.math.exp" for that expression; "" for what is no name with attributes."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join(reversed([*names, node.id])) if isinstance(node, ast.Name) else ""


def named_badly(name: str) -> str | None:
    """Why a name may not be given to anything, or None."""
    if name in RESERVED:
        return f"{name} means something else in a kernel"
    if "__" in name or not name.isascii() or len(name) > 64:
        return f"the name {name[:64]!a}"
    return None
