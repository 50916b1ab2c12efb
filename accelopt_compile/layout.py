"""Sizes and strides of a workload as text over its symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]

from accelopt_compile.alignment import Slot, size_at
from accelopt_compile.dims import Dims
from accelopt_compile.records import Dim
from accelopt_compile.terms import Out, Shape, Size

_Product = tuple[int, tuple[str, ...]]
"""A coefficient and sorted factors (symbol names, or sums in parentheses)."""


class Layouts:
    """Names the symbols s0, s1, ... by first use in `inputs`, and writes dimensions in terms of them.

    `symbols` maps a name to the input dimension that shows its value. `failure` is raised for a symbolic size that no
    input shows.
    """

    def __init__(self, dims: Dims, inputs: Sequence[Out], failure: type[Exception]) -> None:
        self.dims = dims
        self.failure = failure
        self.symbols: dict[str, Slot] = {}
        self.by_expression = False  # whether a size was written from its expression in the graph
        self._shown = [(out, d) for out in inputs for d in range(len(out.shape))]
        self._names: dict[Slot, str] = {}
        for out in inputs:
            for d in range(len(out.shape)):
                self._product_of((out, d))

    def shape(self, out: Out) -> tuple[Dim, ...]:
        """The value's sizes."""
        return tuple(_text(self._product_of((out, d))) for d in range(len(out.shape)))

    def contiguous(self, out: Out) -> tuple[Dim, ...]:
        """Row-major strides."""
        strides: list[Dim] = []
        inner: _Product = (1, ())
        for d in reversed(range(len(out.shape))):
            strides.append(_text(inner))
            inner = _times(inner, self._product_of((out, d)))
        return tuple(reversed(strides))

    def strides(self, out: Out, strides: Shape) -> tuple[Dim, ...]:
        """The given strides: over symbols where they are dense relative to inner dimensions, 0 where expanded, else as
        they are. Dimensions of size 1 get the dense stride."""
        order = _inner_first(out, strides, self.dims)
        written: dict[int, Dim] = {}
        size: Size = 1
        product: _Product = (1, ())
        for d in order:
            stride = strides[d]
            one = self.dims.hint_of((out, d)) == 1
            if not one and stride == 0:
                written[d] = 0
                continue
            if not one and not _equal(stride, size):
                size, product = stride, self._as_product(stride)
            written[d] = _text(product)
            size = size * out.shape[d]
            product = _times(product, self._product_of((out, d)))
        return tuple(written[d] for d in range(len(strides)))

    def dim_of_expression(self, expression: Any) -> Dim:
        """A sympy expression over the graph's symbols, over the workload's. Raises `failure`."""
        return _text(self._as_product(expression))

    # ------------------------------------------------------------

    def _product_of(self, slot: Slot) -> _Product:
        root = self.dims.root(slot)
        if self.dims.is_pinned(root):
            return self.dims.hint_of(root), ()
        parts = self.dims.parts_of(root)
        if parts is not None:
            result: _Product = (1, ())
            for part in parts:
                result = _times(result, self._product_of(part))
            return result
        reader = self.dims.reader_of(root)
        if reader is None:
            return self._as_product(root[0].shape[root[1]])
        name = self._names.setdefault(root, f"s{len(self._names)}")
        self.symbols.setdefault(name, reader)
        return 1, (name,)

    def _as_product(self, size: Size) -> _Product:
        if isinstance(size, int):
            return size, ()
        self.by_expression = True
        return self._from_sympy(size)

    def _from_sympy(self, expr: Any) -> _Product:
        if expr.is_Integer:
            return int(expr), ()
        for slot in self._shown:
            if size_at(slot) == expr and self.dims.parts_of(slot) is None:
                return self._product_of(slot)
        if expr.is_Symbol:
            raise self.failure(f"no input of the region shows the size {expr}")
        if expr.is_Mul or (expr.is_Pow and expr.exp.is_Integer and expr.exp > 0):
            result: _Product = (1, ())
            factors = expr.args if expr.is_Mul else (expr.base,) * int(expr.exp)
            for factor in factors:
                result = _times(result, self._from_sympy(factor))
            return result
        if expr.is_Add:
            terms = sorted(str(_text(self._from_sympy(term))) for term in expr.args)
            return 1, ("(" + " + ".join(terms) + ")",)
        if type(expr).__name__ == "FloorDiv":
            return 1, (self._binary(expr, "//"),)
        if type(expr).__name__ in ("Mod", "PythonMod"):
            return 1, (self._binary(expr, "%"),)
        raise self.failure(f"the size {expr} cannot be written over the symbols of a workload")

    def _binary(self, expr: sympy.Expr, sign: str) -> str:
        left, right = (_text(self._from_sympy(a)) for a in expr.args)
        return f"(({left}) {sign} ({right}))"


def stride_class(shape: Shape, strides: Sequence[int], hint_of: Callable[[Slot], int], out: Out) -> str:
    """The order of the strides without their numbers, for telling inputs apart."""
    large = [d for d in range(len(shape)) if hint_of((out, d)) != 1]
    ranks = sorted(large, key=lambda d: (-strides[d], d))
    return "".join(f"{d}{'e' if strides[d] == 0 else ''}" for d in ranks)


def _inner_first(out: Out, strides: Shape, dims: Dims) -> list[int]:
    """Dimensions from the innermost out. Row-major when that fits, dimensions of size 1 staying where they are."""
    hints = [s if isinstance(s, int) else dims.hints[s] for s in strides]
    last_first = list(reversed(range(len(strides))))
    large = [d for d in last_first if dims.hint_of((out, d)) != 1 and hints[d] != 0]
    if [hints[d] for d in large] == sorted(hints[d] for d in large):
        return last_first
    return sorted(last_first, key=lambda d: (hints[d], -d))


def _equal(a: Size, b: Size) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(sympy.expand(a - b) == 0)


def _times(a: _Product, b: _Product) -> _Product:
    return a[0] * b[0], tuple(sorted(a[1] + b[1], key=_natural))


def _natural(name: str) -> tuple[int, str]:
    return (int(name[1:]), "") if name[1:].isdigit() else (1 << 30, name)


def _text(product: _Product) -> Dim:
    number, names = product
    if not names or number == 0:
        return number
    return "*".join((*names, *((str(number),) if number != 1 else ())))
