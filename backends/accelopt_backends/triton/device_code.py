"""What may stand in a device function. Its body is compiled for a device, but runs as plain Python in the interpreter, and the
compiler calls what it finds by name while it compiles: so names, attributes and statements are lists of what is allowed.

A form that the interpreter takes and the compiler does not (`break`, `return` in a loop) is refused here too: it would be found
only on a device. Not covered: whether the arithmetic is right.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
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
    LOOPS,
    MATH,
    METHODS,
    RESERVED,
    STRINGS,
)

Found = tuple[int, str, str]
"""(line, reason, hint)."""

LARGEST = 1 << 64
LONGEST_MESSAGE = 200

_STATEMENTS = "assignments, if, for over range, while, return and calls are what a device function has"
_EXPRESSIONS = "write it with arithmetic, tl functions and other @triton.jit functions of this file"
_INSTEAD: Mapping[type[ast.AST], tuple[str, str]] = {
    ast.Break: ("break", "Triton compiles no break: put the condition into a while loop"),
    ast.Continue: ("continue", "Triton compiles no continue: use if, or a mask"),
    ast.Try: ("try", "a kernel has no second way; check sizes in the host function"),
    ast.With: ("with", _STATEMENTS),
    ast.Import: ("an import inside a function", "the file imports triton and triton.language, nothing else"),
    ast.ImportFrom: ("an import inside a function", "the file imports triton and triton.language, nothing else"),
    ast.Global: ("global", "nothing survives a call: pass values as arguments"),
    ast.Nonlocal: ("nonlocal", "nothing survives a call: pass values as arguments"),
    ast.FunctionDef: ("a function inside a function", "define it at module level, with @triton.jit"),
    ast.AsyncFunctionDef: ("async", _STATEMENTS),
    ast.ClassDef: ("a class", _STATEMENTS),
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
    ast.Dict: ("a dictionary", _EXPRESSIONS),
    ast.Set: ("a set", _EXPRESSIONS),
    ast.Starred: ("*", "write the arguments out"),
    ast.Await: ("await", _EXPRESSIONS),
    ast.Yield: ("yield", _EXPRESSIONS),
    ast.YieldFrom: ("yield", _EXPRESSIONS),
}
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


@dataclass(frozen=True)
class Scope:
    """What a device function may name beside its own variables. `trusted`: a template of ours wrote the file, for a workload
    whose flags it has seen."""

    functions: frozenset[str]
    constants: frozenset[str]
    trusted: bool


def refusals(function: ast.FunctionDef, scope: Scope) -> Iterator[Found]:
    """What a device function has that it may not have."""
    yield from _signature(function)
    local = {a.arg for a in function.args.args} | {
        n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    for name in sorted(local & (scope.functions | scope.constants)):
        yield function.lineno, f"{name} is a variable here and something else at module level", "give it another name"
    yield from _Body(local, scope).block(function.body, in_loop=False, first=True)


def _signature(function: ast.FunctionDef) -> Iterator[Found]:
    if [ast.dump(d) for d in function.decorator_list] != [ast.dump(ast.parse("triton.jit", mode="eval").body)]:
        names = ", ".join(dotted(d.func if isinstance(d, ast.Call) else d) or "something" for d in function.decorator_list)
        hint = "decorate device functions with @triton.jit exactly; numbers to try are tunables of the host function"
        yield function.lineno, f"decorated by {names}" if names else f"host code: {function.name} is no device function", hint
    args = function.args
    if args.posonlyargs or args.vararg or args.kwarg or args.kwonlyargs:
        yield function.lineno, f"{function.name} takes *args, ** or arguments by position only", "name its parameters plainly"
    if function.returns is not None:
        yield function.lineno, "a return annotation", "leave it out"
    for arg in args.args:
        if arg.annotation is not None and dotted(arg.annotation) != "tl.constexpr":
            yield (
                arg.lineno,
                f"the annotation of {arg.arg[:64]}",
                "annotate compile-time parameters tl.constexpr, the others not at all",
            )
        if (why := named_badly(arg.arg)) is not None:
            yield arg.lineno, why, "give it another name"
    for default in args.defaults:
        if not isinstance(default, ast.Constant) or type(default.value) not in (int, float, bool, type(None)):
            yield default.lineno, "a default argument that is no number", "pass it from the host function"


class _Body:
    """Walks statements and expressions; each refusal is yielded once, and what lies below it is not looked at."""

    def __init__(self, local: set[str], scope: Scope) -> None:
        self._local = local
        self._scope = scope

    # ------------------------------------------------------------ statements

    def block(self, body: list[ast.stmt], *, in_loop: bool, first: bool = False) -> Iterator[Found]:
        for index, statement in enumerate(body):
            yield from self._statement(statement, in_loop, described=first and index == 0)

    def _statement(self, node: ast.stmt, in_loop: bool, *, described: bool) -> Iterator[Found]:
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if described:
                if "\n" in text:  # the interpreter looks for a line that begins with "def" and would read on from there
                    yield (
                        node.lineno,
                        "a docstring of several lines in a device function",
                        "write it on one line, or use comments",
                    )
            case ast.Expr(value=ast.Call() as call):
                yield from self._call(call)
            case ast.Assign(targets=[target], value=value):
                yield from self._target(target)
                yield from self._value(value)
            case ast.AnnAssign(target=ast.Name() as target, value=value, annotation=annotation):
                if dotted(annotation) != "tl.constexpr" or value is None:
                    yield node.lineno, "an annotation", "only `NAME: tl.constexpr = value` has one"
                yield from self._target(target)
                yield from self._value(value) if value is not None else ()
            case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
                yield from self._target(target)
                yield from self._operator(node, op)
                yield from self._value(value)
            case ast.If(test=test, body=body, orelse=orelse):
                yield from self._value(test)
                yield from self.block([*body, *orelse], in_loop=in_loop)
            case ast.For(target=ast.Name() as target, iter=ast.Call() as steps, body=body, orelse=[]):
                yield from self._target(target)
                yield from self._steps(steps)
                yield from self.block(body, in_loop=True)
            case ast.While(test=test, body=body, orelse=[]):
                yield from self._endless(test)
                yield from self._value(test)
                yield from self.block(body, in_loop=True)
            case ast.Return(value=value):
                if in_loop:
                    yield node.lineno, "return inside a loop", "Triton compiles none: leave the loop by its condition"
                yield from self._value(value) if value is not None else ()
            case ast.Pass():
                return
            case _:
                reason, hint = _INSTEAD.get(type(node), (f"{type(node).__name__} in a device function", _STATEMENTS))
                yield node.lineno, reason, hint

    def _target(self, node: ast.expr) -> Iterator[Found]:
        for name in node.elts if isinstance(node, ast.Tuple) else [node]:
            if not isinstance(name, ast.Name):
                yield (
                    node.lineno,
                    "an assignment to something other than names",
                    "tensors are values: build a new one with tl.where",
                )
            elif (why := named_badly(name.id)) is not None:
                yield node.lineno, why, "give it another name"

    def _steps(self, call: ast.Call) -> Iterator[Found]:
        if dotted(call.func) not in LOOPS:
            yield call.lineno, "a loop over something other than a range", "use range, tl.range or tl.static_range"
            return
        yield from self._arguments(call, KEYWORDS if dotted(call.func) != "range" else frozenset())

    def _endless(self, test: ast.expr) -> Iterator[Found]:
        if isinstance(test, ast.Constant):
            yield test.lineno, "a loop without an end", "give it a condition that becomes false"
        for part in ast.walk(test):
            if isinstance(part, ast.Call) and dotted(part.func).endswith("load"):
                yield (
                    part.lineno,
                    "a loop that waits for memory to change",
                    "programs cannot wait for each other: launch a second kernel",
                )

    # ------------------------------------------------------------ expressions

    def _value(self, node: ast.expr) -> Iterator[Found]:
        match node:
            case ast.Constant(value=value):
                yield from self._constant(node, value)
            case ast.Name(id=name):
                yield from self._name(node, name)
            case ast.Attribute():
                yield from self._attribute(node)
            case ast.Call():
                yield from self._call(node)
            case ast.BinOp(left=left, op=op, right=right):
                yield from self._operator(node, op)
                yield from self._each(left, right)
            case ast.UnaryOp(operand=operand):
                yield from self._value(operand)
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
                yield from self._value(value)
                yield from self._index(index)
            case _:
                reason, hint = _INSTEAD.get(type(node), (f"{type(node).__name__} in a device function", _EXPRESSIONS))
                yield node.lineno, reason, hint

    def _each(self, *nodes: ast.expr) -> Iterator[Found]:
        for node in nodes:
            yield from self._value(node)

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
            yield from self._value(node.value)

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
                yield from self._value(part)

    def _operator(self, node: ast.AST, op: ast.operator) -> Iterator[Found]:
        if not isinstance(op, _OPERATORS):
            sign = "**" if isinstance(op, ast.Pow) else "@"
            hint = "multiply, or use tl.exp2 and tl.log2" if sign == "**" else "use tl.dot"
            yield getattr(node, "lineno", 1), f"the operator {sign}", hint

    # ------------------------------------------------------------ calls

    def _call(self, node: ast.Call) -> Iterator[Found]:
        name = dotted(node.func)
        base, _, rest = name.partition(".")
        if base and base not in self._local | self._scope.constants | self._scope.functions | BUILTINS | {"tl"}:
            yield node.lineno, f"a call of {name[:80]}", _call_hint(name)
        elif isinstance(node.func, ast.Attribute) and base != "tl":
            if node.func.attr not in METHODS:
                yield node.lineno, f"the method .{node.func.attr[:64]}", "use .to(dtype), or the function of tl"
                return
            yield from self._value(node.func.value)
            yield from self._arguments(node, KEYWORDS)
        elif base == "tl" and (rest in CALLS or rest.removeprefix("math.") in MATH):
            yield from self._language(node, rest)
        elif name in self._scope.functions:
            yield from self._arguments(node, None)
        elif name == "float":
            if [type(a) for a in node.args] != [ast.Constant] or node.keywords or getattr(node.args[0], "value", 0) not in FLOATS:
                yield (
                    node.lineno,
                    "float of something",
                    'float("inf"), float("-inf") and float("nan") only; convert by .to(tl.float32)',
                )
        elif name in BUILTINS:
            yield from self._arguments(node, frozenset())
        else:
            below = [] if name else list(self._value(node.func))
            yield from below or [(node.lineno, f"a call of {name[:80] or 'an expression'}", _call_hint(name))]

    def _language(self, node: ast.Call, name: str) -> Iterator[Found]:
        if name == "dot":
            yield from self._dot(node)
        values = [k.value for k in node.keywords if k.arg == "combine_fn"] + node.args[2:3]
        skipped = [v for v in values if name in COMBINERS and isinstance(v, ast.Name) and v.id in self._scope.functions]
        if name in ("static_assert", "device_assert"):
            skipped += [v for v in node.args[1:2] if isinstance(v, ast.Constant) and _message(v.value)]
        yield from self._arguments(node, KEYWORDS, skipped)

    def _dot(self, node: ast.Call) -> Iterator[Found]:
        """A dot says its precision: tf32 is the compiler's default for float32, and the interpreter does not show it."""
        given = {k.arg: k.value for k in node.keywords}
        precision = given.get("input_precision")
        word = precision.value if isinstance(precision, ast.Constant) else None
        if word != "ieee" and not (self._scope.trusted and word == "tf32"):
            yield node.lineno, "a dot below the precision of its inputs", 'write tl.dot(a, b, acc, input_precision="ieee")'
        if len(node.args) > 3:
            yield node.lineno, "a dot with more than three arguments by position", 'tl.dot(a, b, acc, input_precision="ieee")'
        kind = given.get("out_dtype")
        if kind is not None and dotted(kind).removeprefix("tl.") not in ACCUMULATORS:
            yield node.lineno, "a dot that adds up in less than 32 bits", "accumulate in tl.float32, convert before the store"

    def _arguments(
        self, node: ast.Call, keywords: frozenset[str] | None, skipped: list[ast.expr] | None = None
    ) -> Iterator[Found]:
        """Arguments of a call; `keywords` that it may have (None: any, those of a device function). `skipped` are known to be good."""
        for argument in node.args:
            if argument not in (skipped or ()):
                yield from self._value(argument)
        for keyword in node.keywords:
            name, value = keyword.arg, keyword.value
            if name is None or (keywords is not None and name not in keywords):
                yield value.lineno, f"the keyword {name or '**'} of {dotted(node.func)[:80]}", "leave it out"
            elif isinstance(value, ast.Constant) and isinstance(value.value, str):
                if name != "input_precision" and value.value not in STRINGS.get(name, ()):
                    yield value.lineno, f"the word {value.value[:40]!a} for {name}", f"one of {sorted(STRINGS.get(name, ()))}"
            elif value not in (skipped or ()):
                yield from self._value(value)


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
    return _EXPRESSIONS
