"""What row and column kernels share: launches as text, values on a tile of rows, and how tiles are reduced."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from accelopt_backends.loops.affine import ONE, Mono, Unsupported
from accelopt_backends.loops.nests import Nest
from accelopt_backends.loops.pull import Index, running
from accelopt_backends.loops.values import Graph, Val
from accelopt_backends.triton.emit import COLUMNS, ROWS, Ex, TileWriter

NEUTRAL = {
    ("sum", "f"): "0.0",
    ("sum", "l"): "0",
    ("max", "f"): 'float("-inf")',
    ("min", "f"): 'float("inf")',
    ("max", "l"): "-9223372036854775808",
    ("min", "l"): "9223372036854775807",
    ("any", "b"): "False",
}
"""What changes nothing, by kind of reduction and lane."""


@dataclass
class KernelText:
    """One launch: a device function and what its host passes. `grid` is an expression over sizes and tunables; `kept` are
    reductions that it writes down, as (name, pointer type, elements)."""

    name: str
    lines: list[str]
    used: set[str]
    grid: str
    tunables: dict[str, tuple[int, ...]]
    constants: dict[str, str]
    options: dict[str, str]
    kept: list[tuple[str, str, str]] = field(default_factory=list)
    comment: str = ""


def powers(low: int, high: int) -> tuple[int, ...]:
    """Powers of two from `low` to `high`."""
    found, value = [], low
    while value <= high:
        found.append(value)
        value *= 2
    return tuple(found)


def next_power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def product(sizes: Sequence[Mono]) -> Mono:
    total = ONE
    for size in sizes:
        total = total * size
    return total


def choices(default: int, values: Sequence[int]) -> tuple[int, ...]:
    """`values` with the one nearest to `default` first."""
    first = min(values, key=lambda v: abs(v - default))
    return (first, *(v for v in values if v != first))


def decoded(atoms: Sequence[str], position: str, sizes: Mapping[str, Mono], used: Container[str] | None = None) -> list[str]:
    """The index of each atom from a flat position: of all, or of those in `used`."""
    out, rest = [], position
    for place, atom in enumerate(reversed(atoms)):
        size = sizes[atom].c()
        if used is None or atom in used:
            out.append(f"{atom} = {rest}" if place == len(atoms) - 1 else f"{atom} = {rest} % ({size})")
        rest = f"{rest} // ({size})"
    return out


class RowWriter(TileWriter):
    """Values on a tile of rows; running sums along them."""

    def __init__(self, graph: Graph, nest: Nest, merges: Sequence[tuple[str, str]], done: frozenset[Val]) -> None:
        super().__init__(graph, {}, {}, done=done)
        self.nest = nest
        self.par, self.row = list(nest.par), list(nest.row)
        self.merges = list(merges)
        self.holds_rows = False
        for outer, inner in merges:
            self.sizes[inner] = self.sizes[outer] * self.sizes[inner]
            self.bounds[inner] = self.sizes[inner]
            (self.par if outer in self.par else self.row).remove(outer)
            if not self.row and self.par and self.par[-1] == inner:
                self.row = [self.par.pop()]

    def decoded(self, atoms: Sequence[str], position: str) -> list[str]:
        """The index of each of these atoms that the text uses."""
        return decoded(atoms, position, self.sizes, self.used)

    def _scan(self, val: Val, index: Index) -> Ex:
        along = running(val, index)
        if self.row != [along]:
            raise Unsupported("a running sum across rows")
        self.running.add(along)
        x = self.tensor(self.value(val.args[0], index))
        tile = self.define(COLUMNS | ROWS, "f", f"tl.broadcast_to(tl.where(mk, {x.name}, 0.0), (ROWS, BLOCK))")
        if self.holds_rows:
            return self.define(tile.axes, "f", f"tl.cumsum({tile.name}, axis=1)")
        self.scans.append(f"carry{val.id}")
        so_far = self.define(tile.axes, "f", f"tl.cumsum({tile.name}, axis=1) + carry{val.id}")
        self.inner.append(f"carry{val.id} += tl.sum({tile.name}, axis=1, keep_dims=True)")
        return so_far


def finished(kind: str, lane: str, tile: str) -> str:
    """A tile reduced along its columns, which stay."""
    if kind == "sum":
        return f"tl.sum({tile}, axis=1, keep_dims=True)"
    if kind == "any":
        return f"tl.max({tile}{'' if lane == 'l' else '.to(tl.int32)'}, axis=1, keep_dims=True) != 0"
    if lane == "f":
        return f"{'top' if kind == 'max' else 'bottom'}({tile}, 1)"
    return f"tl.{kind}({tile}, axis=1, keep_dims=True)"


def joined(kind: str, lane: str, acc: str, x: str) -> str:
    """An accumulator with one more tile."""
    if kind == "sum":
        return f"{acc} + {x}"
    if kind == "any":
        return f"tl.maximum({acc}, {x}.to(tl.int32))"
    if lane == "f":
        return f"{'largest' if kind == 'max' else 'smallest'}({acc}, {x})"
    return f"tl.{kind}imum({acc}, {x})"
