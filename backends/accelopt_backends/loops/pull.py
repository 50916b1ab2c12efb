"""Index arithmetic through views: what element of which real value stands behind an index of a view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accelopt_backends.loops.affine import ONE, ZERO, Affine, Mono, Unsupported, divmod_affine
from accelopt_backends.loops.values import Val

Index = tuple[Affine, ...]


@dataclass(frozen=True)
class Segment:
    """A static stretch [low, high) of the loop over `atom`, inside which every concatenation is one part."""

    atom: str
    low: int
    high: int


class NeedsSegments(Exception):
    """Pulling met a concatenation along the vector atom; `cuts` are positions where the loop must be cut."""

    def __init__(self, cuts: Sequence[int]) -> None:
        super().__init__("cut the loop")
        self.cuts = tuple(cuts)


def canonical(atoms_per_dim: Sequence[Sequence[str]], sizes: Mapping[str, Mono]) -> Index:
    """The index of a value in terms of its own atoms, row-major inside each dimension."""
    index = []
    for atoms in atoms_per_dim:
        form, stride = Affine(), ONE
        for atom in reversed(atoms):
            form = form + Affine({atom: stride})
            stride = stride * sizes[atom]
        index.append(form)
    return tuple(index)


def flattened(index: Sequence[Affine], shape: Sequence[Mono]) -> Affine:
    """The position of an index in a dense value of this shape, row-major."""
    form, stride = Affine(), ONE
    for i, size in zip(reversed(index), reversed(shape), strict=True):
        form = form + i.scaled(stride)
        stride = stride * size
    return form


def running(val: Val, index: Index) -> str:
    """The loop that a running sum's reader walks. Raises Unsupported where that does not take one element after another from
    the first on: the sum would have to lie in memory."""
    along: int = val.data[1]
    form = index[along]
    atom, step = next(iter(form.terms.items()), ("", ZERO))
    others = [other for d, other in enumerate(index) if d != along]
    if form.const or len(form.terms) != 1 or not step.is_one or any(atom in other.terms for other in others):
        raise Unsupported("a running sum that is not read where it runs")
    return atom


def around_lookup(val: Val, index: Index) -> tuple[Index, Index, Index]:
    """Of an index of a lookup: that into its positions, and those into the table before and after the looked-up dimension."""
    kind, dim, _ = val.data
    if kind == "rows":
        n = len(val.args[1].shape)
        return index[dim : dim + n], index[:dim], index[dim + n :]
    return index, index[:dim], index[dim + 1 :]


def resolve(bounds: Mapping[str, Mono], val: Val, index: Index, vector: str | None, segment: Segment | None) -> tuple[Val, Index]:
    """Follow views (and concatenations inside `segment`) down to a value that computes or loads. A concatenation along a
    loop that is not the vector's stays: the emitter chooses among its parts at run time. Each term of `index` is in
    [0, bounds)."""
    while True:
        match val.kind:
            case "reshape":
                index = _through_reshape(bounds, val, index, segment)
            case "permute":
                inner: list[Affine] = [Affine()] * len(index)
                for d, source in enumerate(val.data):
                    inner[source] = index[d]
                index = tuple(inner)
            case "expand":
                index = narrow(val.args[0], index)
            case "slice":
                dim, start, step = val.data
                moved = index[dim].scaled(Mono(step)) + Affine({}, start)
                index = (*index[:dim], moved, *index[dim + 1 :])
            case "cat":
                found = _part(val, index, vector, segment)
                if found is None:
                    return val, index
                val, index = found
                continue
            case _:
                return val, index
        val = val.args[0]


def narrow(val: Val, index: Index) -> Index:
    """The index of a broadcast operand: trailing dimensions, zero where its size is one."""
    tail = index[len(index) - len(val.shape) :]
    return tuple(Affine() if size.is_one else i for size, i in zip(val.shape, tail, strict=True))


def _through_reshape(bounds: Mapping[str, Mono], val: Val, index: Index, segment: Segment | None) -> Index:
    inner = val.args[0].shape
    out_real = [(i, s) for i, s in zip(index, val.shape, strict=True) if not s.is_one]
    in_real = [s for s in inner if not s.is_one]
    if [s for _, s in out_real] == in_real:
        moved = iter([i for i, _ in out_real])
        return tuple(Affine() if s.is_one else next(moved) for s in inner)
    flat, stride = Affine(), ONE
    for i, s in zip(reversed(index), reversed(val.shape), strict=True):
        flat = flat + i.scaled(stride)
        stride = stride * s
    ranges = {segment.atom: (segment.low, segment.high)} if segment else {}
    result = []
    for d in range(len(inner)):
        stride = ONE
        for s in inner[d + 1 :]:
            stride = stride * s
        quotient, flat = divmod_affine(flat, stride, bounds, ranges)
        result.append(quotient)
    return tuple(result)


def _part(val: Val, index: Index, vector: str | None, segment: Segment | None) -> tuple[Val, Index] | None:
    dim: int = val.data
    at = index[dim]
    bounds = [0]
    for part in val.args:
        size = part.shape[dim].static
        if size is None:
            raise Unsupported("a concatenation of symbolic sizes")
        bounds.append(bounds[-1] + size)
    if not at.terms:
        position = at.const
    elif vector is not None and set(at.terms) == {vector} and at.terms[vector].is_one:
        if segment is None:
            raise NeedsSegments([b - at.const for b in bounds[1:-1]])
        position = segment.low + at.const
        if segment.high + at.const > next(b for b in bounds[1:] if b > position):
            raise NeedsSegments([b - at.const for b in bounds[1:-1]])
    else:
        return None
    k = next(k for k in range(len(val.args)) if bounds[k] <= position < bounds[k + 1])
    moved = at + Affine({}, -bounds[k])
    return val.args[k], (*index[:dim], moved, *index[dim + 1 :])
