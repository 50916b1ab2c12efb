"""Integer arithmetic of the host function: what its expressions may hold, checked once and worked out when sizes are known."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

INTERPRETED = "INTERPRETED"
"""A constant that a launch may pass: 1 where exported code runs in Triton's own interpreter, which cannot multiply bf16. Always 0
here, in the simulation too: a kernel that knew where it runs could be right in one place alone."""


class SourceError(Exception):
    """The file is no kernel: the line (1-based), why, and what to write instead."""

    def __init__(self, line: int, reason: str, hint: str) -> None:
        super().__init__(f"line {line}: {reason}; {hint}")
        self.line, self.reason, self.hint = line, reason, hint


_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CALLS: dict[str, Callable[..., int]] = {
    "min": min,
    "max": max,
    "triton.cdiv": lambda a, b: -(-a // b),
    "triton.next_power_of_2": lambda n: 1 << max(0, n - 1).bit_length(),
}


def _called(func: ast.expr) -> str:
    match func:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="triton"), attr=name):
            return f"triton.{name}"
    return ""


def checked(node: ast.expr, known: set[str]) -> ast.expr:
    """`node`, checked: integer arithmetic over known names. Raises SourceError."""
    for part in ast.walk(node):
        match part:
            case ast.Constant(value=value) if type(value) in (int, bool):
                continue
            case ast.Name(id=name) if name in known or name in ("min", "max", "triton"):
                continue
            case ast.BinOp(op=op) if type(op) in _BINARY:
                continue
            case ast.Compare(ops=[op]) if type(op) in _COMPARE:
                continue
            case ast.Call(func=func, keywords=[]) if _called(func) in _CALLS:
                continue
            case ast.Attribute(value=ast.Name(id="triton"), attr="cdiv" | "next_power_of_2"):
                continue
            case ast.UnaryOp(op=ast.USub() | ast.Not()) | ast.BoolOp() | ast.IfExp():
                continue
            case ast.operator() | ast.unaryop() | ast.cmpop() | ast.boolop() | ast.expr_context():
                continue
        what = f"the name {part.id}" if isinstance(part, ast.Name) else type(part).__name__
        raise SourceError(
            getattr(part, "lineno", node.lineno),
            f"{what} in an integer expression of the host function",
            "use sizes, tunables, + - * // %, comparisons, min, max, triton.cdiv and triton.next_power_of_2",
        )
    return node


def evaluate(node: ast.expr, names: Mapping[str, int]) -> int:
    """The value of a checked expression, 64 bits at every step: numbers that grow without end would keep a process busy. Raises
    OverflowError, ZeroDivisionError, and KeyError for a name without a value (a pointer)."""
    value = _value(node, names)
    if not -(1 << 63) <= value < 1 << 63:
        raise OverflowError(f"line {node.lineno}: an integer of the host function is beyond 64 bits")
    return value


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=value):
            return int(value)  # type: ignore[arg-type]
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](evaluate(left, names), evaluate(right, names))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -evaluate(operand, names)
        case ast.UnaryOp(operand=operand):
            return int(not evaluate(operand, names))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return int(_COMPARE[type(op)](evaluate(left, names), evaluate(right, names)))
        case ast.BoolOp(op=ast.And(), values=values):
            return int(all(evaluate(v, names) for v in values))
        case ast.BoolOp(values=values):
            return int(any(evaluate(v, names) for v in values))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return evaluate(body if evaluate(test, names) else orelse, names)
        case ast.Call(func=func, args=args):
            return _CALLS[_called(func)](*(evaluate(a, names) for a in args))
    raise AssertionError(f"an unchecked expression: {ast.dump(node)}")
