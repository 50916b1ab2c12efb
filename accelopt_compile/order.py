"""A canonical order for a region's terms: operands of commutative calls, outputs and inputs.

Each value gets a colour from what it is computed from and, refined twice, from what it is used for (Weisfeiler-Lehman).
Values that still look alike are interchangeable in all regions met so far; they keep the graph's order.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from accelopt_compile.terms import INPUT, Builder, Out, Term, map_outs, outs_of, reachable

COMMUTATIVE = {f"aten.{n}.Tensor" for n in ["add", "mul", "eq", "ne", "bitwise_and", "bitwise_or", "bitwise_xor"]} | {
    f"aten.{n}.default" for n in ["maximum", "minimum", "logical_and", "logical_or", "logical_xor"]
}
"""Operators whose first two operands may be exchanged (`add` and `mul` carry no alpha in our spelling)."""

SpecText = Callable[[Out], str]
"""Describes a value's dtype and shape without naming symbols."""


class Structure:
    """Colours from what a value is computed from alone, for values that appear one after another."""

    def __init__(self) -> None:
        self._up: dict[Term, str] = {}

    def __call__(self, out: Out) -> str:
        stack = [out.term]
        while stack:
            term = stack[-1]
            missing = [o.term for o in outs_of(term) if o.term not in self._up]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            self._up[term] = _call_hash(term, [f"{s.dtype}/{len(s.shape)}" for s in term.outs], self._up)
        return f"{self._up[out.term]}.{out.index}"


class Colours:
    """Colours of all values behind `outputs`."""

    def __init__(self, outputs: Sequence[Out], text: SpecText) -> None:
        self._text = text
        self._terms = reachable(outputs)
        self._outputs = outputs
        self._seed: dict[Term, str] = {}
        self._up = self._upward()
        for _ in range(2):
            down = self._downward()
            self._seed = {t: _hash(self._up[t], down[t]) for t in self._terms if t.op == INPUT}
            self._up = self._upward()

    def __call__(self, out: Out) -> str:
        return f"{self._up[out.term]}.{out.index}"

    def _upward(self) -> dict[Term, str]:
        up: dict[Term, str] = {}
        for term in self._terms:
            specs = [self._text(Out(term, i)) for i in range(len(term.outs))]
            if term.op == INPUT:
                up[term] = _hash(INPUT, specs, self._seed.get(term, ""))
                continue
            up[term] = _call_hash(term, specs, up)
        return up

    def _downward(self) -> dict[Term, str]:
        uses: dict[Term, list[str]] = defaultdict(list)
        down: dict[Term, str] = {}
        for out in self._outputs:
            uses[out.term].append(f"output.{out.index}")
        for term in reversed(self._terms):
            down[term] = _hash(sorted(uses[term]))
            here = _hash(self._up[term], down[term])
            for i, arg in enumerate((*term.args, *(v for _, v in term.kwargs))):
                place = "any" if term.op in COMMUTATIVE and i < 2 else str(i)
                for j, out in enumerate(_flat(arg)):
                    uses[out.term].append(f"{here}@{place}.{j}.{out.index}")
        return down


def _call_hash(term: Term, specs: Sequence[str], up: Mapping[Term, str]) -> str:
    args = [_text(arg, up) if term.op != INPUT else "" for arg in term.args]
    if term.op in COMMUTATIVE:
        args[:2] = sorted(args[:2])
    return _hash(term.op, args, [f"{k}={_text(v, up)}" for k, v in term.kwargs], specs)


def _hash(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _text(arg: Any, up: Mapping[Term, str]) -> str:
    if isinstance(arg, Out):
        return f"{up[arg.term]}.{arg.index}"
    if isinstance(arg, tuple):
        return "(" + ",".join(_text(a, up) for a in arg) + ")"
    if isinstance(arg, float):
        return arg.hex()
    if isinstance(arg, bool | str | torch.dtype) or arg is None:
        return repr(arg)
    return "size"  # sizes are described by the values that have them


def _flat(arg: Any) -> list[Out]:
    if isinstance(arg, tuple):
        return [out for a in arg for out in _flat(a)]
    return [arg] if isinstance(arg, Out) else []


def ordered(b: Builder, outputs: Sequence[Out], text: SpecText) -> tuple[list[Out], list[int]]:
    """The same values with commutative operands in canonical order; the outputs sorted, and where each came from."""
    colours = Colours(outputs, text)
    new: dict[Term, Term] = {}

    def moved(out: Out) -> Out:
        return Out(new[out.term], out.index)

    for term in reachable(outputs):
        args = term.args
        if term.op in COMMUTATIVE and isinstance(args[0], Out) and isinstance(args[1], Out):
            args = (*sorted(args[:2], key=colours), *args[2:])
        new[term] = b.term(term.op, map_outs(args, moved), map_outs(term.kwargs, moved), term.outs)
    order = sorted(range(len(outputs)), key=lambda i: colours(outputs[i]))
    return [moved(outputs[i]) for i in order], order
