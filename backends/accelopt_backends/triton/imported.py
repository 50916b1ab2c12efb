"""A kernel file as a Python module: its device functions for the compiler, or for the interpreter.

A screened file has imports, constants and device functions at module level, and a host function that nobody calls; what it
does at import is define them. It runs in a child behind walls all the same.
"""

from __future__ import annotations

import linecache
from pathlib import Path
from types import ModuleType
from typing import Any

from accelopt_compile.records import sha256_text


def module_of(path: str, *, interpreted: bool) -> ModuleType:
    """The module of the file at `path`, made anew. Raises OSError, and whatever the file raises."""
    import triton

    text = Path(path).read_text()
    # The language reads a function's source through this; without an entry it would be that of an older file of this name.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    module = ModuleType(f"accelopt_kernel_{sha256_text(text)[:16]}")
    module.__file__ = path
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.interpret = interpreted  # what `triton.jit` makes of a function depends on it
        exec(compile(text, path, "exec", dont_inherit=True), vars(module))
    _settle_constants(vars(module), interpreted=interpreted)
    return module


def _settle_constants(names: dict[str, Any], *, interpreted: bool) -> None:
    """`NAME: tl.constexpr = 7` and `NAME = tl.constexpr(7)` mean the same. The compiler takes only the second, the interpreter
    wants the number."""
    import triton.language as tl

    for name, kind in names.get("__annotations__", {}).items():
        if "constexpr" in str(kind) and not isinstance(names[name], tl.constexpr):
            names[name] = tl.constexpr(names[name])
    if interpreted:
        names.update({name: value.value for name, value in names.items() if isinstance(value, tl.constexpr)})


def functions_of(module: ModuleType) -> dict[str, Any]:
    """Its device functions by name."""
    return {name: value for name, value in vars(module).items() if hasattr(value, "arg_names") and hasattr(value, "fn")}
