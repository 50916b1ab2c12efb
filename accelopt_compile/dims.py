"""Which sizes of a region are free: dimensions that must be equal form classes, and a class is pinned or a symbol.

Operators relate dimensions: pointwise calls make broadcast dimensions equal, reductions keep the others, a reshape splits
or joins groups. A class is pinned to its number when a kernel would be built around it: the innermost dimension of an
input (unless it is an outer dimension elsewhere), dimensions that are reduced, sliced, joined or scanned over, and those
that no input shows. How many rows a table has from which an index chooses is free. Sizes that are symbolic in the graph
are never pinned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]

from accelopt_compile.alignment import Slot, size_at
from accelopt_compile.alignment import pin_all as nothing_free
from accelopt_compile.relations import relation_of
from accelopt_compile.terms import INPUT, Out, reachable


class Dims:
    """The dimension classes of the values behind `outputs`. `hints` gives symbolic sizes their value at compile time."""

    def __init__(
        self,
        outputs: Sequence[Out],
        strides: Mapping[Out, Sequence[int]],
        hints: Mapping[Any, int],
        *,
        pin_all: bool = False,
        by_name: bool = False,
    ) -> None:
        self.outputs = outputs
        self.terms = reachable(outputs)
        self.hints = hints
        self._parent: dict[Slot, Slot] = {}
        self._fixed: set[Slot] = set()
        self._groups: list[tuple[Slot, tuple[Slot, ...]]] = []
        for term in self.terms:
            relation_of(term)(self, term)
            if pin_all:
                nothing_free(self, term)
        if by_name:
            self._unify_names()
        self._pin_innermost(strides)
        self._settle()

    # ------------------------------------------------------------ classes

    def root(self, slot: Slot) -> Slot:
        """The representative of a dimension's class."""
        path = []
        while (parent := self._parent.get(slot, slot)) != slot:
            path.append(slot)
            slot = parent
        for seen in path:
            self._parent[seen] = slot
        return slot

    def unify(self, a: Slot, b: Slot) -> None:
        """State that two dimensions are equal. Sizes that differ at compile time pin both."""
        if self.hint_of(a) != self.hint_of(b):
            self.pin(a)
            self.pin(b)
            return
        ra, rb = self.root(a), self.root(b)
        if ra != rb:
            # a symbolic size represents its class
            keep, lose = (rb, ra) if isinstance(size_at(ra), int) and not isinstance(size_at(rb), int) else (ra, rb)
            self._parent[lose] = keep

    def surely_equal(self, a: Slot, b: Slot) -> bool:
        """Whether two sizes are equal in every run of the graph, not only when it was made: as numbers or as expressions."""
        left, right = size_at(a), size_at(b)
        return left == right or bool(sympy.expand(left - right) == 0)

    def pin(self, slot: Slot) -> None:
        """State that a kernel may rely on this size."""
        self._fixed.add(slot)

    def group(self, whole: Slot, parts: Iterable[Slot]) -> None:
        """State that a dimension is the product of others, outermost first. Factors of 1 leave it as it is."""
        parts = tuple(parts)
        large = [part for part in parts if self.hint_of(part) != 1]
        if len(large) > 1:
            self._groups.append((whole, parts))
            return
        for part in parts:
            if part not in large[:1]:
                self.pin(part)
        if large:
            self.unify(whole, large[0])
        else:
            self.pin(whole)

    def hint_of(self, slot: Slot) -> int:
        """The size at compile time."""
        size = size_at(slot)
        return size if isinstance(size, int) else self.hints[size]

    # ------------------------------------------------------------ the answer

    def is_pinned(self, slot: Slot) -> bool:
        """Whether the class is its number."""
        return self.root(slot) in self._pinned

    def is_symbolic(self, slot: Slot) -> bool:
        """Whether the size is symbolic in the graph."""
        return not isinstance(size_at(self.root(slot)), int)

    def parts_of(self, slot: Slot) -> tuple[Slot, ...] | None:
        """The factors of a class that is a product."""
        return self._product.get(self.root(slot))

    def reader_of(self, slot: Slot) -> Slot | None:
        """A dimension of an input that shows the class, if there is one."""
        return self._readers.get(self.root(slot))

    def _unify_names(self) -> None:
        """Make dimensions equal that have one symbolic size in the graph: needed once a size is an expression over symbols,
        for the graph gives equal symbols to sizes that merely were equal when it was made."""
        first: dict[Any, Slot] = {}
        for term in self.terms:
            for i, spec in enumerate(term.outs):
                for d, size in enumerate(spec.shape):
                    if not isinstance(size, int):
                        self.unify(first.setdefault(size, (Out(term, i), d)), (Out(term, i), d))

    def _pin_innermost(self, strides: Mapping[Out, Sequence[int]]) -> None:
        outer: set[Slot] = set()
        inner: list[Slot] = []
        for term in self.terms:
            if term.op == INPUT:
                out = Out(term)
                stride = strides[out]
                large = [d for d in range(len(out.shape)) if self.hint_of((out, d)) != 1]
                at = {d for d in large if stride[d] == 1} | set(large[-1:])
                inner.extend((out, d) for d in at)
                outer.update(self.root((out, d)) for d in range(len(out.shape)) if d not in at)
        for out in self.outputs:
            outer.update(self.root((out, d)) for d in range(len(out.shape) - 1))
        for slot in inner:
            if self.root(slot) not in outer:
                self.pin(slot)

    def _settle(self) -> None:
        """Close the classes under what is known; ends because each round pins or unifies something."""
        changed = True
        while changed:
            self._match_groups()
            self._pinned = {self.root(s) for s in self._fixed if not self.is_symbolic(s)}
            self._product = {self.root(w): parts for w, parts in reversed(self._groups) if self.root(w) not in self._pinned}
            self._readers = self._find_readers()
            changed = self._pin_by_groups() or self._pin_unreadable()

    def _match_groups(self) -> None:
        """Two ways to split one dimension into the same sizes are one way; otherwise nothing of it is free."""
        first: dict[Slot, tuple[Slot, ...]] = {}
        for whole, parts in self._groups:
            known = first.setdefault(self.root(whole), parts)
            if known is parts:
                continue
            if len(known) == len(parts) and all(map(self.surely_equal, known, parts)):
                for a, b in zip(known, parts, strict=True):
                    self.unify(a, b)
            else:
                for slot in (whole, *known, *parts):
                    self.pin(slot)

    def _pin_by_groups(self) -> bool:
        changed = False
        for whole, parts in self._groups:
            if self.is_pinned(whole) and not all(self.is_pinned(p) or self.is_symbolic(p) for p in parts):
                changed = True
                for part in parts:
                    self.pin(part)
            if all(self.is_pinned(p) for p in parts) and not self.is_pinned(whole) and not self.is_symbolic(whole):
                changed = True
                self.pin(whole)
        return changed

    def _pin_unreadable(self) -> bool:
        changed = False
        for term in self.terms:
            for i, spec in enumerate(term.outs):
                for d in range(len(spec.shape)):
                    slot = (Out(term, i), d)
                    known = self.is_pinned(slot) or self.is_symbolic(slot)
                    if not known and self.root(slot) not in self._product and self.root(slot) not in self._readers:
                        self.pin(slot)
                        changed = True
        return changed

    def _find_readers(self) -> dict[Slot, Slot]:
        readers: dict[Slot, Slot] = {}
        for term in self.terms:
            if term.op == INPUT:
                for d in range(len(term.outs[0].shape)):
                    readers.setdefault(self.root((Out(term), d)), (Out(term), d))
        return readers
