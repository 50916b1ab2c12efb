"""Which pass of a nest computes what, and which of its loops walk memory as one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Protocol

from accelopt_backends.loops.affine import Affine, Mono
from accelopt_backends.loops.nests import Nest, Store, atoms_of, dependencies
from accelopt_backends.loops.values import Val


class Loops(Protocol):
    """A written nest: its loops as they are now, and every access that was written."""

    nest: Nest
    par: list[str]
    row: list[str]
    sizes: dict[str, Mono]
    running: set[str]
    accesses: list[Affine]

    def merge(self, form: Affine) -> Affine: ...


def row_level(nest: Nest, root: Val | Store) -> bool:
    """Whether a root is computed once per row (not once per element of it)."""
    return bool(nest.row) and set(atoms_of(root)) == set(nest.par)


def pass_of(nest: Nest, root: Val | Store, levels: Mapping[Val, int]) -> int:
    """The pass in which everything that the root needs is known."""
    return max((levels[d] + 1 for d in dependencies(root) if d in levels), default=0)


def pass_levels(nest: Nest, together: Mapping[Val, Val] | None = None) -> dict[Val, int]:
    """For each row reduction, the pass that computes it. `together` names reductions that are found in the pass of another
    one, which they depend on."""
    levels: dict[Val, int] = {}
    for red in nest.reductions:
        with_ = (together or {}).get(red)
        least = 0 if with_ is None else levels[with_]
        levels[red] = max([least, *(levels[d] + 1 for d in dependencies(red) if d in levels and d is not with_)])
    return levels


def mergeable(writer: Loops) -> tuple[str, str] | None:
    """Two adjacent loops that every access walks as one."""
    nest = writer.nest
    order = [*writer.par, *writer.row]
    tied = bool(nest.reductions or any(row_level(nest, r) for r in nest.roots) or writer.running)
    for outer, inner in itertools.pairwise(order):
        if (tied and outer in writer.par and inner in writer.row) or inner in writer.running:
            continue
        size = writer.sizes[inner]
        if all(a.coefficient(outer) == a.coefficient(inner) * size for a in map(writer.merge, writer.accesses)):
            return outer, inner
    return None
