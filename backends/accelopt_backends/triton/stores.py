"""Through which of its parameters a device function stores, as far as assignments and calls show it.

A pointer is followed through arithmetic, assignments and calls of other device functions; what was loaded is data, and no
pointer any more. Order is not looked at: a name stands for everything that is ever assigned to it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from accelopt_backends.triton.syntax import dotted

_STORES = ("tl.store", "tl.store_tensor_descriptor")
_DATA = ("tl.load", "tl.load_tensor_descriptor", "tl.program_id", "tl.num_programs")


def calls_of(function: ast.FunctionDef, names: frozenset[str]) -> list[ast.Call]:
    """Calls of other device functions."""
    return [n for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in names]


def stored(functions: Mapping[str, ast.FunctionDef], order: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """For each function the parameters that it stores through. `order` has callees before their callers."""
    written: dict[str, frozenset[str]] = {}
    returned: dict[str, frozenset[str]] = {}
    for name in order:
        written[name], returned[name] = _one(functions[name], functions, written, returned)
    return written


def _one(
    function: ast.FunctionDef,
    functions: Mapping[str, ast.FunctionDef],
    written: Mapping[str, frozenset[str]],
    returned: Mapping[str, frozenset[str]],
) -> tuple[frozenset[str], frozenset[str]]:
    """(parameters stored through, parameters that what it returns points into)."""
    origins: dict[str, set[str]] = {a.arg: {a.arg} for a in function.args.args}

    def of(node: ast.expr | None) -> set[str]:
        if isinstance(node, ast.Name):
            return set(origins.get(node.id, ()))
        if node is None or isinstance(node, ast.Compare):
            return set()
        if isinstance(node, ast.Call):
            if dotted(node.func) in _DATA or (isinstance(node.func, ast.Attribute) and node.func.attr == "load"):
                return set()
            if isinstance(node.func, ast.Name) and node.func.id in returned:
                given = arguments(node, functions[node.func.id])
                return {one for p in returned[node.func.id] for one in of(given.get(p))}
        return {one for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr | ast.keyword) for one in _part(part)}

    def _part(part: ast.AST) -> set[str]:
        return of(part.value) if isinstance(part, ast.keyword) else of(part) if isinstance(part, ast.expr) else set()

    assignments = [n for n in ast.walk(function) if isinstance(n, ast.Assign | ast.AnnAssign | ast.AugAssign)]
    before = -1
    while before != (before := sum(map(len, origins.values()))):
        for node in assignments:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)):
                origins.setdefault(name, set()).update(of(node.value))
    through: set[str] = set()
    for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
        if dotted(call.func) in _STORES:
            through |= of(call.args[0]) if call.args else set()
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "store":
            through |= of(call.func.value)
        elif isinstance(call.func, ast.Name) and call.func.id in written:
            given = arguments(call, functions[call.func.id])
            through |= {one for p in written[call.func.id] for one in of(given.get(p))}
    back = {one for n in ast.walk(function) if isinstance(n, ast.Return) for one in of(n.value)}
    return frozenset(through), frozenset(back)


def arguments(call: ast.Call, function: ast.FunctionDef) -> dict[str, ast.expr]:
    """The arguments of a call by the names of the parameters; what does not fit is left out."""
    names = [a.arg for a in function.args.args]
    return {**dict(zip(names, call.args, strict=False)), **{k.arg: k.value for k in call.keywords if k.arg in names}}
