"""Expressions of a device function: which names, attributes, operators, functions and words they may have.

A body runs as plain Python in the interpreter, and the compiler calls what it finds by name while it compiles: so every name
is a variable, a constant of the file, or on a list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from accelopt_backends.triton.allowed import (
    ACCUMULATORS,
    ATTRIBUTES,
    BUILTINS,
    CALLS,
    COMBINERS,
    DTYPES,
    FLOATS,
    KEYWORDS,
    MATH,
    METHODS,
    PRECISIONS,
    STRINGS,
)
from accelopt_backends.triton.syntax import EXPRESSIONS, INSTEAD, LARGEST, Found, dotted

LONGEST_MESSAGE = 200

_OPERATORS = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.LShift,
    ast.RShift,
)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot)


@dataclass(frozen=True)
class Scope:
    """What a device function may name beside its own variables."""

    functions: frozenset[str]
    constants: frozenset[str]


class Values:
    """Reads expressions; each refusal is yielded once, and what lies below it is not looked at. `local` are the function's own
    names."""

    def __init__(self, local: set[str], scope: Scope) -> None:
        self._local = local
        self._scope = scope

    def value(self, node: ast.expr) -> Iterator[Found]:
        match node:
            case ast.Constant(value=value):
                yield from self._constant(node, value)
            case ast.Name(id=name):
                yield from self._name(node, name)
            case ast.Attribute():
                yield from self._attribute(node)
            case ast.Call():
                yield from self.call(node)
            case ast.BinOp(left=left, op=op, right=right):
                yield from self.operator(node, op)
                yield from self._each(left, right)
            case ast.UnaryOp(operand=operand):
                yield from self.value(operand)
            case ast.BoolOp(values=values):
                yield from self._each(*values)
            case ast.Compare(left=left, ops=ops, comparators=right):
                if not all(isinstance(op, _COMPARISONS) for op in ops):
                    yield node.lineno, "`in` in a device function", "compare numbers"
                yield from self._each(left, *right)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                yield from self._each(test, body, orelse)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                yield from self._each(*parts)
            case ast.Subscript(value=value, slice=index):
                yield from self.value(value)
                yield from self._index(index)
            case _:
                reason, hint = INSTEAD.get(type(node), (f"{type(node).__name__} in a device function", EXPRESSIONS))
                yield node.lineno, reason, hint

    def _each(self, *nodes: ast.expr) -> Iterator[Found]:
        for node in nodes:
            yield from self.value(node)

    def _constant(self, node: ast.Constant, value: object) -> Iterator[Found]:
        if type(value) is int and not -LARGEST < value < LARGEST:
            yield node.lineno, "a number of more than 64 bits", "no tensor holds it"
        elif isinstance(value, str):
            yield node.lineno, "a string", "kernels have no text; a few keywords take a word, as cache_modifier does"
        elif type(value) not in (int, float, bool, type(None)):
            yield node.lineno, f"a constant of type {type(value).__name__}", "use integers and floats"

    def _name(self, node: ast.expr, name: str) -> Iterator[Found]:
        if name not in self._local and name not in self._scope.constants:
            hint = "use parameters, variables of this function and constants of the file, NAME = tl.constexpr(4)"
            yield node.lineno, f"the name {name[:64]!a}", hint

    def _attribute(self, node: ast.Attribute) -> Iterator[Found]:
        name = dotted(node)
        if name.startswith(("tl.", "triton.")):
            if name.removeprefix("tl.") not in DTYPES and name not in ("tl.PropagateNan.ALL", "tl.PropagateNan.NONE"):
                yield node.lineno, f"{name[:80]} as a value", "types (tl.float32) and tl.PropagateNan.ALL are values"
        elif node.attr not in ATTRIBUTES:
            yield node.lineno, f"the attribute .{node.attr[:64]}", f"values have {', '.join('.' + a for a in sorted(ATTRIBUTES))}"
        else:
            yield from self.value(node.value)

    def _index(self, node: ast.expr) -> Iterator[Found]:
        for part in node.elts if isinstance(node, ast.Tuple) else [node]:
            if isinstance(part, ast.Slice):
                if part.lower or part.upper or part.step:
                    yield (
                        part.lineno,
                        "a slice of a tensor",
                        "only [:, None] and the like; read the part that you need with tl.load",
                    )
            else:
                yield from self.value(part)

    def operator(self, node: ast.AST, op: ast.operator) -> Iterator[Found]:
        if not isinstance(op, _OPERATORS):
            sign = "**" if isinstance(op, ast.Pow) else "@"
            hint = "multiply, or use tl.exp2 and tl.log2" if sign == "**" else "use tl.dot"
            yield getattr(node, "lineno", 1), f"the operator {sign}", hint

    # ------------------------------------------------------------ calls

    def call(self, node: ast.Call) -> Iterator[Found]:
        name = dotted(node.func)
        base, _, rest = name.partition(".")
        if base and base not in self._local | self._scope.constants | self._scope.functions | BUILTINS | {"tl"}:
            yield node.lineno, f"a call of {name[:80]}", _call_hint(name)
        elif isinstance(node.func, ast.Attribute) and base != "tl":
            if node.func.attr not in METHODS:
                yield node.lineno, f"the method .{node.func.attr[:64]}", "use .to(dtype), or the function of tl"
                return
            yield from self.value(node.func.value)
            yield from self.arguments(node, KEYWORDS)
        elif base == "tl" and (rest in CALLS or rest.removeprefix("math.") in MATH):
            yield from self._language(node, rest)
        elif name in self._scope.functions:
            yield from self.arguments(node, None)
        elif name == "float":
            if [type(a) for a in node.args] != [ast.Constant] or node.keywords or getattr(node.args[0], "value", 0) not in FLOATS:
                yield (
                    node.lineno,
                    "float of something",
                    'float("inf"), float("-inf") and float("nan") only; convert by .to(tl.float32)',
                )
        elif name in BUILTINS:
            yield from self.arguments(node, frozenset())
        else:
            below = [] if name else list(self.value(node.func))
            yield from below or [(node.lineno, f"a call of {name[:80] or 'an expression'}", _call_hint(name))]

    def _language(self, node: ast.Call, name: str) -> Iterator[Found]:
        if name == "dot":
            yield from self._dot(node)
        values = [k.value for k in node.keywords if k.arg == "combine_fn"] + node.args[2:3]
        skipped: list[ast.expr] = [
            v for v in values if name in COMBINERS and isinstance(v, ast.Name) and v.id in self._scope.functions
        ]
        if name in ("static_assert", "device_assert"):
            skipped += [v for v in node.args[1:2] if isinstance(v, ast.Constant) and _message(v.value)]
        yield from self.arguments(node, KEYWORDS, skipped)

    def _dot(self, node: ast.Call) -> Iterator[Found]:
        """A dot says its precision: tf32 is the compiler's default for float32, and only a workload's flags may allow it. Whether
        they do is for verification, where the interpreter rounds as the device would."""
        given = {k.arg: k.value for k in node.keywords}
        precision = given.get("input_precision")
        word = precision.value if isinstance(precision, ast.Constant) else None
        if word not in PRECISIONS:
            hint = 'write tl.dot(a, b, acc, input_precision="ieee"), or "tf32" where the workload\'s flags allow that for float32'
            yield node.lineno, "a dot that does not say its precision, or says less than tf32", hint
        if len(node.args) > 3:
            yield node.lineno, "a dot with more than three arguments by position", 'tl.dot(a, b, acc, input_precision="ieee")'
        kind = given.get("out_dtype")
        if kind is not None and dotted(kind).removeprefix("tl.") not in ACCUMULATORS:
            yield node.lineno, "a dot that adds up in less than 32 bits", "accumulate in tl.float32, convert before the store"

    def arguments(self, node: ast.Call, keywords: frozenset[str] | None, skipped: Sequence[ast.expr] = ()) -> Iterator[Found]:
        """Arguments of a call; `keywords` it may have (None: those of a device function), `skipped` known to be good."""
        for argument in node.args:
            if argument not in skipped:
                yield from self.value(argument)
        for keyword in node.keywords:
            name, value = keyword.arg, keyword.value
            if name is None or (keywords is not None and name not in keywords):
                yield value.lineno, f"the keyword {name or '**'} of {dotted(node.func)[:80]}", "leave it out"
            elif isinstance(value, ast.Constant) and isinstance(value.value, str):
                if name != "input_precision" and value.value not in STRINGS.get(name, ()):
                    yield value.lineno, f"the word {value.value[:40]!a} for {name}", f"one of {sorted(STRINGS.get(name, ()))}"
            elif value not in skipped:
                yield from self.value(value)


def _message(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_MESSAGE and value.isprintable()


def _call_hint(name: str) -> str:
    if name.startswith("tl.atomic"):
        return "two runs must agree bit for bit: write parts to scratch memory and add them up in a second launch"
    if name.startswith(("tl.extra", "tl.inline_asm", "tl.math")):
        return "write it with tl.exp, tl.log, tl.erf and the like, in a @triton.jit function of this file"
    if name.startswith("triton."):
        return "use tl.cdiv; powers of two are worked out in the host function"
    if name in ("int", "bool", "abs", "round", "len", "sum", "pow"):
        return "use .to(tl.int32), tl.abs, tl.sum and the like"
    return EXPRESSIONS
