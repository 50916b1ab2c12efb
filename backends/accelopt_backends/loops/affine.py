"""Sizes as monomials and indices as affine forms: the arithmetic under the loop nests.

A `Mono` is an integer times symbols ("576*s1"). An `Affine` is a sum of Mono * atom plus an integer. Everything here
is exact; an operation that cannot be proven (a division with an unknown remainder) raises `Unsupported`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from accelopt_compile.records import Dim


class Unsupported(Exception):
    """The workload needs something that this generator does not do; the text is the reason a user sees."""


@dataclass(frozen=True)
class Mono:
    """`coef` times the product of `symbols` (sorted, with repetition)."""

    coef: int
    symbols: tuple[str, ...] = ()

    def __mul__(self, other: Mono) -> Mono:
        return Mono(self.coef * other.coef, tuple(sorted(self.symbols + other.symbols)) if self.coef * other.coef else ())

    def divide(self, other: Mono) -> Mono | None:
        """The exact quotient, or None."""
        if other.coef == 0 or self.coef % other.coef:
            return None
        rest = list(self.symbols)
        for s in other.symbols:
            if s not in rest:
                return None
            rest.remove(s)
        return Mono(self.coef // other.coef, tuple(rest))

    @property
    def is_one(self) -> bool:
        return self.coef == 1 and not self.symbols

    @property
    def static(self) -> int | None:
        """The integer, when no symbol is involved."""
        return None if self.symbols else self.coef

    def c(self) -> str:
        """C++ text."""
        parts = list(self.symbols)
        if self.coef != 1 or not parts:
            parts.insert(0, str(self.coef))
        return "*".join(parts)


ONE = Mono(1)
ZERO = Mono(0)


def mono(dim: Dim) -> Mono:
    """A dimension as a monomial. Raises Unsupported for sums and quotients of symbols."""
    if isinstance(dim, int):
        return Mono(dim)
    coef, symbols = 1, []
    for part in dim.replace(" ", "").replace("(", "").replace(")", "").split("*"):
        if part.isdigit():
            coef *= int(part)
        elif part.isidentifier():
            symbols.append(part)
        else:
            raise Unsupported(f"a size is {dim}, which is not a product of symbols")
    if any(ch in dim for ch in "+-/%"):
        raise Unsupported(f"a size is {dim}, which is not a product of symbols")
    return Mono(coef, tuple(sorted(symbols)))


@dataclass(frozen=True)
class Affine:
    """`const` plus the sum of coefficient * atom. Atoms are loop atoms ("a3") or run-time row indices ("x2")."""

    terms: Mapping[str, Mono] = field(default_factory=dict)
    const: int = 0

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.terms.items(), key=lambda kv: kv[0])), self.const))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affine) and self.const == other.const and dict(self.terms) == dict(other.terms)

    def __add__(self, other: Affine) -> Affine:
        terms = dict(self.terms)
        for atom, m in other.terms.items():
            if atom in terms:
                if terms[atom].symbols != m.symbols:
                    raise Unsupported("an index adds unlike multiples of one loop")
                m = Mono(terms[atom].coef + m.coef, m.symbols)
            terms[atom] = m
        return Affine({a: m for a, m in terms.items() if m.coef}, self.const + other.const)

    def scaled(self, by: Mono) -> Affine:
        if self.const and by.symbols:
            raise Unsupported("a constant offset times a symbolic stride")
        return Affine({a: m * by for a, m in self.terms.items() if (m * by).coef}, self.const * by.coef)

    def coefficient(self, atom: str) -> Mono:
        return self.terms.get(atom, ZERO)

    def without(self, atom: str) -> Affine:
        return Affine({a: m for a, m in self.terms.items() if a != atom}, self.const)

    def c(self) -> str:
        """C++ text of the sum."""
        parts = [a if m.is_one else f"{m.c()}*{a}" for a, m in sorted(self.terms.items())]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


Ranges = Mapping[str, tuple[int, int]]


def divmod_affine(value: Affine, by: Mono, sizes: Mapping[str, Mono], ranges: Ranges | None = None) -> tuple[Affine, Affine]:
    """(quotient, remainder) of an index by a size, proven from the atoms' sizes (0 <= atom < size).

    `ranges` narrows an atom to [low, high). Terms whose coefficient is a multiple of `by` go to the quotient; the
    rest must stay inside one multiple of `by`: with an offset by static bounds, otherwise by the mixed-radix rule
    (sorted by divisibility, each coefficient times its size divides the next one).
    """
    high: dict[str, Mono] = {}
    low: dict[str, Mono] = {}
    for atom, m in value.terms.items():
        q = m.divide(by)
        if q is not None:
            high[atom] = q
        else:
            low[atom] = m
    if value.const:
        least = most = value.const
        for atom, m in low.items():
            first, end = (ranges or {}).get(atom) or (0, _static(sizes[atom]))
            least += _static(m) * first
            most += _static(m) * (end - 1)
        base = least // _static(by)
        if most // _static(by) != base:
            raise Unsupported("an offset crosses a reshaped dimension")
        return Affine(high, base), Affine(low, value.const - base * _static(by))
    _check_radix(low, by, sizes)
    return Affine(high), Affine(low)


def _static(m: Mono) -> int:
    if m.static is None:
        raise Unsupported("an offset next to a symbolic size")
    return m.static


def _check_radix(low: Mapping[str, Mono], by: Mono, sizes: Mapping[str, Mono]) -> None:
    remaining = dict(low)
    bound = ONE
    while remaining:
        for atom, m in remaining.items():
            if m.divide(bound) is not None and all(
                o.divide(m * sizes[atom]) is not None for a, o in remaining.items() if a != atom
            ):
                bound = m * sizes[atom]
                del remaining[atom]
                break
        else:
            static = by.static is not None and all(m.static is not None and sizes[a].static is not None for a, m in low.items())
            if static and sum(_static(m) * (_static(sizes[a]) - 1) for a, m in low.items()) < by.coef:
                return
            raise Unsupported("a reshape that no loop split explains")
    if by.divide(bound) is None:
        raise Unsupported("a reshape that no loop split explains")
