"""Scheduling: which loop nests compute the outputs, and what each one reduces, accumulates and stores.

A nest runs over parallel atoms (`par`: rows) and, per row, over row atoms (`row`, the vector atom last). Inside it,
reductions over exactly the row atoms are finished row by row and may be used by later passes over the same row;
anything reduced across rows is accumulated per thread and is known only after the nest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from accelopt_backends.loops.affine import Unsupported
from accelopt_backends.loops.values import Graph, Val, static_count


@dataclass(frozen=True, eq=False)
class Store:
    """Output number `output` gets `val`; `offset` shifts dimension `dim` (a part of a concatenation)."""

    output: int
    val: Val
    dim: int = 0
    offset: int = 0


Root = Val | Store

ACCUMULATED = ("sum", "max", "min", "any")
"""Kinds of reductions that may be made in parts."""


@dataclass(eq=False)
class Nest:
    """One loop nest. `reductions`: over the row, per row; `accumulations`: across rows; `vector`: the innermost atom."""

    par: list[str]
    row: list[str]
    reductions: list[Val] = field(default_factory=list)
    accumulations: list[Val] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)

    @property
    def vector(self) -> str | None:
        return self.row[-1] if self.row else None

    @property
    def roots(self) -> list[Root]:
        """What is not a reduction of the row: stores and accumulations."""
        return [*self.stores, *self.accumulations]

    @property
    def space(self) -> set[str]:
        return set(self.par) | set(self.row)


def reduced_atoms(val: Val) -> set[str]:
    """Atoms that a reduction sums over."""
    return {a for d in val.data[1] for a in val.args[0].dims[d]}


def atoms_of(root: Root) -> list[str]:
    """Atoms a root loops over, outer first: a reduction's operand, or a stored value."""
    val = root.val if isinstance(root, Store) else root.args[0]
    return [a for d in val.dims for a in d]


def dependencies(root: Root) -> set[Val]:
    """Reductions that a root needs directly (not through other reductions)."""
    found: set[Val] = set()
    seen: set[int] = set()
    stack = [root.val] if isinstance(root, Store) else list(root.args)
    while stack:
        val = stack.pop()
        if val.id in seen:
            continue
        seen.add(val.id)
        if val.kind == "reduce":
            found.add(val)
        else:
            stack.extend(val.args)
    return found


def schedule(graph: Graph, reductions: str = "auto") -> list[Nest]:
    """Nests in execution order. `reductions` "auto" finishes row by row what runs along memory, and accumulates the rest
    across rows; "together" finishes all row by row, "split" accumulates all that can be. Raises Unsupported."""
    if any(v.kind == "product" for v in graph.vals):
        raise Unsupported("a matrix product in a loop nest")
    pending: list[Root] = [v for v in graph.vals if v.kind == "reduce" and _used(graph, v)]
    pending += [s for k, v in enumerate(graph.outputs) for s in _stores(graph, k, v)]
    done: set[Val] = set()
    nests: list[Nest] = []
    votes = _votes(graph)
    last = [r for r in pending if isinstance(r, Store) and not atoms_of(r)] if graph.workload.aliases else []
    pending = [r for r in pending if r not in last]
    while pending:
        seed = next(r for r in pending if dependencies(r) <= done)
        nest = _open(graph, seed, votes, reductions)
        _absorb(nest, pending, done)
        pending = [r for r in pending if r not in nest.reductions and r not in nest.accumulations and r not in nest.stores]
        done.update(nest.reductions)
        done.update(nest.accumulations)
        if not (nest.reductions or nest.roots):
            raise Unsupported("a reduction that no loop nest can hold")
        nests.append(nest)
    if graph.workload.aliases and len(nests) > 1:
        raise Unsupported("outputs over inputs in several loops")
    return [*nests, Nest([], [], stores=last)] if last else nests  # single elements are overwritten when all else is done


def _used(graph: Graph, val: Val) -> bool:
    needed: set[int] = set()
    stack = list(graph.outputs)
    while stack:
        v = stack.pop()
        if v.id not in needed:
            needed.add(v.id)
            stack.extend(v.args)
    return val.id in needed


def _stores(graph: Graph, output: int, val: Val) -> Iterable[Store]:
    """An output that is a concatenation is stored part by part: no branch in any loop."""
    if val.kind == "cat" and all(p.shape[val.data].static is not None for p in val.args[:-1]):
        offset = 0
        for part in val.args:
            yield Store(output, part, val.data, offset)
            offset += part.shape[val.data].static or 0
    else:
        yield Store(output, val)


def _votes(graph: Graph) -> dict[str, float]:
    """How many elements are accessed with each atom innermost (unit stride); a stored one counts half as much again."""
    votes: dict[str, float] = {}
    for spec, val, weight in [
        *((s, v, 1.0) for s, v in zip(graph.workload.inputs, graph.inputs, strict=True)),
        *((s, v, 1.5) for s, v in zip(graph.workload.output_specs, graph.outputs, strict=True)),
    ]:
        elements = math.prod(static_count(s) for s in val.shape)
        for stride, dim in zip(spec.strides, val.dims, strict=True):
            if stride == 1 and dim:
                short = min(1.0, static_count(graph.sizes[dim[-1]]) / 8)
                votes[dim[-1]] = votes.get(dim[-1], 0.0) + weight * elements * short
    return votes


def _best(atoms: list[str], votes: dict[str, float]) -> str:
    return max(reversed(atoms), key=lambda a: votes.get(a, 0.0))


def _open(graph: Graph, seed: Root, votes: dict[str, float], reductions: str) -> Nest:
    atoms = atoms_of(seed)
    if not atoms:
        return Nest([], [])
    if isinstance(seed, Store):
        inner = scan_atom([seed.val]) or _best(atoms, votes)
        return Nest([a for a in atoms if a != inner], [inner])
    reduced = reduced_atoms(seed)
    inner = _best(atoms, votes)
    kept = [a for a in atoms if a not in reduced]
    if seed.data[0].startswith("arg"):
        inner = _best([a for a in atoms if a in reduced], votes)
    if reductions == "together" and kept and inner not in reduced:
        return Nest([*(a for a in kept if a != inner), inner], [a for a in atoms if a in reduced])
    accumulated = reductions == "split" and seed.data[0] in ACCUMULATED
    if inner in reduced and kept and _worth_rows(graph, kept) and not accumulated:
        row = [a for a in atoms if a in reduced and a != inner]
        return Nest(kept, [*row, inner])
    return Nest([a for a in atoms if a != inner], [inner])


def _worth_rows(graph: Graph, kept: list[str]) -> bool:
    total = 1.0
    for a in kept:
        total *= static_count(graph.sizes[a])
    return total >= 2


def scans_of(val: Val) -> list[Val]:
    """The running sums that go into a value, other than through a reduction."""
    stack, seen, found = [val], set[int](), []
    while stack:
        v = stack.pop()
        if v.id in seen or v.kind == "reduce":
            continue
        if v.kind == "scan":
            found.append(v)
        seen.add(v.id)
        stack.extend(v.args)
    return found


def scan_atom(vals: Sequence[Val]) -> str | None:
    """The loop along which sums run in these values; None for no running sum. Raises Unsupported for several."""
    loops = {tuple(scan.dims[scan.data[1]]) for val in vals for scan in scans_of(val)}
    if any(len(atoms) != 1 for atoms in loops):
        raise Unsupported("a scan over a reshaped dimension")
    if len(loops) > 1:
        raise Unsupported("sums that run along several loops")
    return next(iter(loops))[0] if loops else None


def _absorb(nest: Nest, pending: list[Root], done: set[Val]) -> None:
    """Put every root that fits into the nest, in order, so that later ones may use earlier row reductions."""
    late: set[Val] = set()
    for root in pending:
        needs = dependencies(root)
        if not needs <= done | set(nest.reductions) or needs & late:
            continue
        atoms = atoms_of(root)
        if isinstance(root, Store):
            scan = scan_atom([root.val])
            if (set(atoms) == nest.space or set(atoms) == set(nest.par)) and (scan is None or [scan] == nest.row):
                nest.stores.append(root)
            continue
        reduced = reduced_atoms(root)
        if set(atoms) == nest.space and reduced == set(nest.row) and nest.row:
            nest.reductions.append(root)
        elif _accumulates(nest, root, set(atoms), reduced):
            nest.accumulations.append(root)
            late.add(root)


def _accumulates(nest: Nest, root: Val, atoms: set[str], reduced: set[str]) -> bool:
    if root.data[0] not in ACCUMULATED:
        return False
    if atoms == nest.space:
        return not reduced & set(nest.row) or set(nest.row) <= reduced
    return atoms == set(nest.par) and bool(nest.par)
