"""What a region around matrix products asks for: which products, at which indices, over which loops.

Outputs are pulled down through element-wise values and views until they meet products. Each (product, index) is one
accumulator; the loops of the outputs that its rows depend on run along a tile's rows, those that its columns depend on along
its columns, and the others number the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accelopt_backends.loops.affine import ONE, Affine, Mono, Unsupported
from accelopt_backends.loops.pull import Index, canonical, narrow, resolve
from accelopt_backends.loops.values import Graph, Val, static_count
from accelopt_compile.records import Workload

MOST_ACCUMULATORS = 3
ITEM = {"f32": 4, "bf16": 2, "f16": 2}


@dataclass(frozen=True)
class Use:
    """A product at the index at which the outputs need it."""

    product: Val
    index: Index


@dataclass(frozen=True, kw_only=True)
class Problem:
    """`batch`, `rows` and `columns` are atoms, outer first; `depth` is the size that the products sum over."""

    graph: Graph
    uses: tuple[Use, ...]
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    depth: Mono

    def size(self, atoms: Sequence[str]) -> Mono:
        return total(self.graph, atoms)

    @property
    def dtype(self) -> str:
        """What the operands are multiplied in."""
        return self.uses[0].product.args[0].dtype


def total(graph: Graph, atoms: Sequence[str]) -> Mono:
    """The product of the atoms' sizes."""
    size = ONE
    for atom in atoms:
        size = size * graph.sizes[atom]
    return size


def find(workload: Workload) -> Problem:
    """The problem in `workload`. Raises Unsupported."""
    if workload.aliases:
        raise Unsupported("a matrix product whose result lies over an input")
    graph = Graph(workload, moments="two_pass")
    uses: dict[Use, None] = {}
    for output in graph.outputs:
        found = _uses(graph, output)
        if not found:
            raise Unsupported("an output beside the matrix product")
        uses.update(dict.fromkeys(found))
    if not 1 <= len(uses) <= MOST_ACCUMULATORS:
        raise Unsupported(f"{len(uses)} matrix products in one tile")
    return _laid_out(graph, tuple(uses))


def _uses(graph: Graph, output: Val) -> list[Use]:
    """The products behind an output."""
    found: dict[Use, None] = {}
    seen: set[tuple[int, Index]] = set()
    pending = [(output, canonical(output.dims, graph.sizes))]
    while pending:
        val, index = resolve(graph.sizes, *pending.pop(), None, None)
        if (val.id, index) in seen:
            continue
        seen.add((val.id, index))
        if val.kind == "product":
            if any(_behind(operand) for operand in val.args):
                raise Unsupported("a matrix product of a matrix product")
            found[Use(val, index)] = None
        elif val.kind == "point":
            pending += [(a, narrow(a, index)) for a in reversed(val.args)]
        elif _behind(val):
            raise Unsupported(f"a {val.kind} of a matrix product's result")
    return list(found)


def _behind(val: Val) -> bool:
    """Whether a product is among what `val` is computed from, or `val` is one."""
    pending, seen = [val], set[int]()
    while pending:
        v = pending.pop()
        if v.kind == "product":
            return True
        if v.id not in seen:
            seen.add(v.id)
            pending.extend(v.args)
    return False


def _laid_out(graph: Graph, uses: tuple[Use, ...]) -> Problem:
    first = uses[0].product
    depth = total(graph, first.data)
    if first.args[0].dtype not in ITEM:
        raise Unsupported(f"a matrix product in {first.args[0].dtype}")
    if any(total(graph, u.product.data) != depth or u.product.args[0].dtype != first.args[0].dtype for u in uses):
        raise Unsupported("matrix products that differ in what they sum over")
    batch, rows, columns = (
        _ordered([form for u in uses for form in u.index[part]]) for part in (slice(-2), slice(-2, -1), slice(-1, None))
    )
    summed = {a for u in uses for a in u.product.data}
    axes = [set(batch), set(rows), set(columns), summed]
    if sum(map(len, axes)) != len(set().union(*axes)):
        raise Unsupported("a matrix product that walks one loop twice")
    space = set().union(*axes[:3])
    for output in graph.outputs:
        if {a for d in output.dims for a in d} != space:
            raise Unsupported("an output of another size than the matrix product's result")
    return Problem(graph=graph, uses=uses, batch=batch, rows=rows, columns=columns, depth=depth)


def _ordered(forms: Sequence[Affine]) -> tuple[str, ...]:
    """The loops of some dimensions, outer first: dimension after dimension, by their strides inside each."""
    found: dict[str, None] = {}
    for form in forms:
        found.update(dict.fromkeys(sorted(form.terms, key=lambda a: -static_count(form.terms[a]))))
    return tuple(found)


__all__ = ["Problem", "Use", "find", "total"]
