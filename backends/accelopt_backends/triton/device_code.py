"""What may stand in a device function: its signature and its statements, as lists of what is allowed.

A form that the interpreter takes and the compiler does not (`break`, `return` in a loop) is refused here too: it would be found
only on a device. Not covered: whether the arithmetic is right.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelopt_backends.triton.allowed import KEYWORDS, LOOPS
from accelopt_backends.triton.device_values import Scope, Values
from accelopt_backends.triton.syntax import INSTEAD, STATEMENTS, Found, dotted, named_badly


def refusals(function: ast.FunctionDef, scope: Scope) -> Iterator[Found]:
    """What a device function has that it may not have."""
    yield from _signature(function)
    local = {a.arg for a in function.args.args} | {
        n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    for name in sorted(local & (scope.functions | scope.constants)):
        yield function.lineno, f"{name} is a variable here and something else at module level", "give it another name"
    yield from _Body(Values(local, scope)).block(function.body, in_loop=False, first=True)


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
    """Walks statements; what stands in them is for `Values`."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def block(self, body: list[ast.stmt], *, in_loop: bool, first: bool = False) -> Iterator[Found]:
        for index, statement in enumerate(body):
            yield from self._statement(statement, in_loop, described=first and index == 0)

    def _statement(self, node: ast.stmt, in_loop: bool, *, described: bool) -> Iterator[Found]:
        match node:
            case ast.Expr(value=ast.Constant(value=str())) if described:
                return
            case ast.Expr(value=ast.Call() as call):
                yield from self._values.call(call)
            case ast.Assign(targets=[target], value=value):
                yield from self._target(target)
                yield from self._values.value(value)
            case ast.AnnAssign(target=ast.Name() as target, value=value, annotation=annotation):
                if dotted(annotation) != "tl.constexpr" or value is None:
                    yield node.lineno, "an annotation", "only `NAME: tl.constexpr = value` has one"
                yield from self._target(target)
                yield from self._values.value(value) if value is not None else ()
            case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
                yield from self._target(target)
                yield from self._values.operator(node, op)
                yield from self._values.value(value)
            case ast.If(test=test, body=body, orelse=orelse):
                yield from self._values.value(test)
                yield from self.block([*body, *orelse], in_loop=in_loop)
            case ast.For(target=ast.Name() as target, iter=ast.Call() as steps, body=body, orelse=[]):
                yield from self._target(target)
                yield from self._steps(steps)
                yield from self.block(body, in_loop=True)
            case ast.While(test=test, body=body, orelse=[]):
                yield from self._endless(test)
                yield from self._values.value(test)
                yield from self.block(body, in_loop=True)
            case ast.Return(value=value):
                if in_loop:
                    yield node.lineno, "return inside a loop", "Triton compiles none: leave the loop by its condition"
                yield from self._values.value(value) if value is not None else ()
            case ast.Pass():
                return
            case _:
                reason, hint = INSTEAD.get(type(node), (f"{type(node).__name__} in a device function", STATEMENTS))
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
        yield from self._values.arguments(call, KEYWORDS if dotted(call.func) != "range" else frozenset())

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
