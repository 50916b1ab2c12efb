"""The language's interpreter, put right for what it does silently wrong, and switched on for as long as a kernel runs.

The language chooses between compiling and interpreting when it is imported. Here one process does both: its own device
functions (tl.sum and others) are exchanged for interpreted ones while `interpreting` lasts, and put back afterwards.
What is put right: bf16 is rounded to nearest even and computed with through float32 (the interpreter truncates, and computes
on bit patterns), dots round to TF32 where the device would, assertions and hints hold, lanes store in either order, reductions
with a function of the kernel's own take logarithmically many steps. What stays blind is in README.md.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from accelopt_backends.triton import promises
from accelopt_backends.triton.emulated_arithmetic import Arithmetic
from accelopt_backends.triton.emulated_folds import reduction, scanning


class Stopped(Exception):
    """A device assertion failed."""


class Function:
    """A device function that runs in the interpreter. `fn` is the Python function as written."""

    def __init__(self, fn: Any) -> None:
        self.fn, self.__name__ = fn, fn.__name__
        self._rewritten: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._rewritten is None:
            from triton.runtime.interpreter import FunctionRewriter

            self._rewritten = FunctionRewriter(self.fn).rewrite_ast()
        kwargs.pop("_semantic", None)
        kwargs.pop("_generator", None)
        return self._rewritten(*args, **kwargs)


def interpreted(module: ModuleType) -> dict[str, Function]:
    """The device functions of a kernel's module, which from now on calls them interpreted."""
    from triton.runtime.interpreter import InterpretedFunction

    found = {name: Function(value.fn) for name, value in vars(module).items() if isinstance(value, InterpretedFunction)}
    vars(module).update(found)
    return found


@contextlib.contextmanager
def interpreting(*, backwards: bool = False) -> Iterator[Any]:
    """Switch the interpreter on; yields its builder, which holds the grid. `backwards`: of lanes that store to one place the
    first wins instead of the last; a device promises neither."""
    import triton.language as tl
    from triton.runtime import interpreter

    scope = interpreter._LangPatchScope()
    patched = interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    try:
        for owner, name, function in _device_functions():
            scope.set_attr(owner, name, function)
        _put_right(scope, interpreter, tl)
        promises.hold_hints(scope, tl)
        if backwards:
            scope.set_attr(interpreter.interpreter_builder, "create_masked_store", promises.stored_backwards(interpreter))
        with np.errstate(all="ignore"):
            yield interpreter.interpreter_builder
    finally:
        scope.restore()
        patched.restore()


@lru_cache(maxsize=1)
def _device_functions() -> tuple[tuple[Any, str, Any], ...]:
    """Every name under which the language knows a device function of its own, with the interpreted one."""
    import triton.language as tl
    from triton.runtime import JITFunction
    from triton.runtime.interpreter import InterpretedFunction

    made: dict[Any, Function] = {}
    found = []
    owners = [m for name, m in sorted(sys.modules.items()) if name.startswith("triton.language") and m is not None]
    for owner in [*owners, tl.tensor]:
        for name, value in list(vars(owner).items()):
            if isinstance(value, JITFunction | InterpretedFunction):
                function = made.setdefault(value.fn, Function(value.fn))
                found.append((owner, name, _method(function) if owner is tl.tensor else function))
    return tuple(found)


def _method(function: Function) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: function(self, *args, **kwargs)


def _put_right(scope: Any, interpreter: ModuleType, tl: Any) -> None:
    builder = interpreter.interpreter_builder

    def check(condition: Any, message: Any) -> None:
        if not np.all(condition.data):
            raise Stopped(str(message))

    Arithmetic(interpreter, tl).put_into(scope)
    scope.set_attr(builder, "create_assert", check)
    # Assertions are compiled with `debug` alone; checks of 32-bit overflow stay off: the device wraps around as numpy does.
    scope.set_attr(builder, "options", interpreter.InterpreterOptions(debug=True, sanitize_overflow=False))
    for owner in (tl, tl.core):
        scope.set_attr(owner, "reduce", reduction(interpreter, tl))
        scope.set_attr(owner, "associative_scan", scanning(interpreter, tl))
