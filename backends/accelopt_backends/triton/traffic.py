"""Which memory a launch reads and writes how often, as its text says: one reading for each place that loads from a pointer.

A place inside a loop counts once: a loop mostly walks over different data.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache

from accelopt_backends.triton.source import Launch

_ACCESSES = ("load", "store", "make_block_ptr", "make_tensor_descriptor")


def readings(text: str, launch: Launch, memory: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """(name, bytes, times) of each tensor and scratch memory that the launch hands over; `memory` holds their bytes."""
    parameters, times = accesses(text).get(launch.function, ((), {}))
    found = []
    for parameter, value in zip(parameters, launch.args, strict=False):
        if isinstance(value, ast.Name) and value.id in memory:
            found.append((value.id, memory[value.id], max(1, times.get(parameter, 1))))
    return found


@lru_cache(maxsize=64)
def accesses(text: str) -> dict[str, tuple[tuple[str, ...], dict[str, int]]]:
    """For each function of a file: its parameters, and how many places load from or store to each, other functions of the
    file that it calls included."""
    functions = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    counted: dict[str, dict[str, int]] = {}
    return {name: (_parameters(node), _counts(node, functions, counted)) for name, node in functions.items()}


def _parameters(function: ast.FunctionDef) -> tuple[str, ...]:
    return tuple(a.arg for a in [*function.args.posonlyargs, *function.args.args])


def _counts(
    function: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef], counted: dict[str, dict[str, int]]
) -> dict[str, int]:
    if function.name in counted:
        return counted[function.name]
    counts = counted[function.name] = dict.fromkeys(_parameters(function), 0)  # also ends a recursion
    roots = _roots(function)
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in _ACCESSES and call.args:
            for root in _named(call.args[0], roots):
                counts[root] = counts.get(root, 0) + 1
        elif name in functions:
            inner = _counts(functions[name], functions, counted)
            for parameter, value in zip(_parameters(functions[name]), call.args, strict=False):
                for root in _named(value, roots):
                    counts[root] = counts.get(root, 0) + inner.get(parameter, 0)
    return counts


def _roots(function: ast.FunctionDef) -> dict[str, set[str]]:
    """For each local name, the parameters that it was made from by arithmetic alone: loads and calls break the line."""
    roots = {name: {name} for name in _parameters(function)}
    assigns = sorted((n for n in ast.walk(function) if isinstance(n, ast.Assign | ast.AugAssign)), key=lambda n: n.lineno)
    for node in assigns:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node.value, ast.BinOp | ast.Name | ast.IfExp):
                kept = roots.get(target.id, set()) if isinstance(node, ast.AugAssign) else set()
                roots[target.id] = kept | _named(node.value, roots)
    return roots


def _named(node: ast.expr, roots: Mapping[str, set[str]]) -> set[str]:
    """The parameter at the left end of a sum, which is where a pointer stands."""
    while isinstance(node, ast.BinOp):
        node = node.left
    return set(roots.get(node.id, ())) if isinstance(node, ast.Name) else set()
