"""How much a source asks of the compiler and of the interpreter: refused before it is built, because both recurse where it nests.

Each limit is far above what kernels need. Calls are inlined, so what is held against EXPANSION_LIMIT is a function with all that
it calls, loops of `tl.static_range` with written bounds unrolled. Not covered: numbers that only the tunables give (a static
range of BLOCK), and loops that never end; the deadlines of the build and of a call end those.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from accelopt_backends.triton.syntax import LARGEST, Found, dotted

SIZE_LIMIT = 128 * 1024
"""Characters of a source."""
NODE_LIMIT = 60_000
"""Nodes of the syntax tree."""
DEPTH_LIMIT = 100
"""Nodes in each other; the compiler takes some ten of Python's frames for each three."""
LOOP_LIMIT = 8
"""Loops in each other: the compiler looks at the innermost body once more for each."""
CALL_LIMIT = 16
"""Device functions that call each other in a chain."""
EXPANSION_LIMIT = 200_000
"""Nodes of a device function after its calls and written static ranges are put in place."""

_SPLIT = "name the parts, in variables or device functions"
_COOKIE = re.compile(r"[ \t]*#.*?coding[:=]")


def characters(text: str) -> Iterator[Found]:
    """What would read differently from disk, or to a person, than it does here."""
    for number, line in enumerate(text.split("\n"), 1):
        if number < 3 and _COOKIE.match(line):
            yield number, "a comment that declares an encoding", "sources are UTF-8"
        if not line.replace("\t", "").isprintable():
            yield number, "a control character", "write printable characters and end lines with a line feed"
            return


def excesses(module: ast.Module) -> Iterator[Found]:
    """What is longer or deeper than the limits; the first of each kind. What follows may recurse."""
    count = 0
    first = module.body[0].value if module.body and isinstance(module.body[0], ast.Expr) else None
    pending: list[tuple[ast.AST, int, int]] = [(module, 0, 0)]
    while pending:
        node, depth, loops = pending.pop()
        count += 1
        line = getattr(node, "lineno", 1)
        if depth > DEPTH_LIMIT or count > NODE_LIMIT:
            what = f"expressions nested deeper than {DEPTH_LIMIT}" if depth > DEPTH_LIMIT else f"more than {NODE_LIMIT} terms"
            yield line, what, _SPLIT
            return
        loops += isinstance(node, ast.For | ast.While)
        if loops > LOOP_LIMIT:
            yield line, f"more than {LOOP_LIMIT} loops in each other", _SPLIT
            return
        if isinstance(node, ast.Constant) and type(node.value) is int and not -LARGEST < node.value < LARGEST:
            yield line, "a number of more than 64 bits", "no tensor holds it"
            return
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.end_lineno != line and node is not first:
            # the interpreter takes the last line that begins with "def" for a function's first, inside a string too
            yield line, "a string of several lines", "write it on one line, or use comments"
            return
        pending += [(child, depth + 1, loops) for child in ast.iter_child_nodes(node)]


def called_first(functions: Mapping[str, ast.FunctionDef]) -> Sequence[str] | Found:
    """The functions, each behind those that it calls; or that they call each other in a circle."""
    calls = {
        name: sorted(
            {n.func.id for n in ast.walk(f) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)} & functions.keys()
        )
        for name, f in functions.items()
    }
    order: list[str] = []
    while left := [name for name in calls if name not in order]:
        ready = [name for name in left if all(one in order for one in calls[name])]
        if not ready:
            return functions[left[0]].lineno, f"{left[0]} calls itself, or functions do in a circle", "use a loop"
        order += ready
    return order


def expansions(functions: Mapping[str, ast.FunctionDef], order: Sequence[str]) -> Iterator[Found]:
    """Functions that become too long, or too deep, once their calls are put in place."""
    weights: dict[str, int] = {}
    depths: dict[str, int] = {}
    for name in order:
        weights[name] = _weight(functions[name], weights)
        below = {n.func.id for n in ast.walk(functions[name]) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        depths[name] = 1 + max((depths[one] for one in below & depths.keys()), default=0)
        if weights[name] > EXPANSION_LIMIT:
            hint = f"at most {EXPANSION_LIMIT}: use range, which stays a loop, instead of tl.static_range"
            yield functions[name].lineno, f"{name} expands to too many terms", hint
            return
        if depths[name] > CALL_LIMIT:
            yield functions[name].lineno, f"more than {CALL_LIMIT} device functions call each other in a chain", _SPLIT
            return


def _weight(node: ast.AST, weights: Mapping[str, int]) -> int:
    inner = 1 + sum(_weight(child, weights) for child in ast.iter_child_nodes(node))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return inner + weights.get(node.func.id, 0)
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and dotted(node.iter.func) == "tl.static_range":
        bounds = [a.value for a in node.iter.args if isinstance(a, ast.Constant) and type(a.value) is int]
        return inner * max(1, *bounds[:2]) if bounds else inner
    return inner
