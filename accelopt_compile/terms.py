"""Terms: a region as an expression graph with value semantics, in which equal calls are one object.

A term has dtypes and shapes but no strides: views are functions here, and copies are nothing. Sizes are integers, or
sympy expressions when symbolic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Size = Any
"""int, or a sympy expression over the graph's symbols."""

Shape = tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Spec:
    """Dtype and shape of a value."""

    dtype: torch.dtype
    shape: Shape


@dataclass(eq=False, slots=True)
class Term:
    """One call. `args` may hold `Out`, numbers, sympy expressions, dtypes, strings, None and tuples of those."""

    op: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    outs: tuple[Spec, ...]


@dataclass(frozen=True, slots=True)
class Out:
    """One result of a term (terms compare by identity; the builder makes equal terms one)."""

    term: Term
    index: int = 0

    @property
    def spec(self) -> Spec:
        return self.term.outs[self.index]

    @property
    def shape(self) -> Shape:
        return self.spec.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.spec.dtype


INPUT = "input"

_VIEWS = ("aten.reshape.", "aten.permute.", "aten.expand.", "aten.slice.", "aten.select.")


class Builder:
    """Makes terms; asking twice for the same call gives the same term."""

    def __init__(self) -> None:
        self._made: dict[Any, Term] = {}

    def input(self, index: int, spec: Spec) -> Out:
        return self.call(INPUT, (index,), (), (spec,))

    def term(self, op: str, args: Sequence[Any], kwargs: Iterable[tuple[str, Any]], outs: tuple[Spec, ...]) -> Term:
        named = tuple(sorted(kwargs))
        key = (op, _key(tuple(args)), _key(named), outs)
        return self._made.setdefault(key, Term(op, tuple(args), named, outs))

    def call(self, op: str, args: Sequence[Any], kwargs: Iterable[tuple[str, Any]], outs: tuple[Spec, ...]) -> Out:
        return Out(self.term(op, args, kwargs, outs))

    def one(self, op: str, args: Sequence[Any], dtype: torch.dtype, shape: Shape) -> Out:
        """A call with one result and no keywords."""
        return self.call(op, args, (), (Spec(dtype, shape),))


def _key(arg: Any) -> Any:
    """A dictionary key that keeps 1, 1.0 and True apart, and 0.0 from -0.0."""
    if isinstance(arg, tuple):
        return tuple(_key(a) for a in arg)
    if isinstance(arg, float):
        return ("float", arg.hex())
    return (type(arg).__name__, arg)


def unviewed(out: Out) -> Out:
    """The value whose elements views show anew."""
    while out.term.op.startswith(_VIEWS):
        out = out.term.args[0]
    return out


def outs_of(term: Term) -> Iterable[Out]:
    """The values that a term reads, in argument order."""
    yield from _outs((*term.args, *(v for _, v in term.kwargs)))


def _outs(args: Iterable[Any]) -> Iterable[Out]:
    for arg in args:
        if isinstance(arg, Out):
            yield arg
        elif isinstance(arg, tuple):
            yield from _outs(arg)


def map_outs(arg: Any, change: Any) -> Any:
    """`arg` with every value replaced by `change(value)`."""
    if isinstance(arg, Out):
        return change(arg)
    if isinstance(arg, tuple):
        return tuple(map_outs(a, change) for a in arg)
    return arg


def reachable(outputs: Iterable[Out]) -> list[Term]:
    """The terms behind `outputs`, producers first, in depth-first argument order."""
    order: dict[Term, None] = {}
    stack: list[tuple[Term, bool]] = [(out.term, False) for out in reversed(list(outputs))]
    while stack:
        term, done = stack.pop()
        if term in order:
            continue
        if done:
            order[term] = None
            continue
        stack.append((term, True))
        stack.extend((out.term, False) for out in reversed(list(outs_of(term))) if out.term not in order)
    return list(order)
