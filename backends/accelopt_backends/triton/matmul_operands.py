"""Device functions around a product's loop: tiles of the operands, statistics of their rows, what finishes a result.

Each is a function of positions (a batch number, rows, columns), so that it names its loops as it likes. What is computed on
the way to an operand (a norm, weights stored in few bits) is written into its function, and so is the epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from accelopt_backends.loops.affine import ONE, Affine, Mono, Unsupported
from accelopt_backends.loops.pull import Index, canonical, resolve
from accelopt_backends.loops.values import Graph, Val
from accelopt_backends.triton.emit import COLUMNS, NONE, ROWS, Axes, Ex, TileWriter
from accelopt_backends.triton.matmul_problem import Problem, Use, total
from accelopt_backends.triton.tiles import NEUTRAL

NEAR = 1 << 28
"""An offset whose parts are all below this is computed in 32 bits."""


@dataclass(frozen=True)
class Axis:
    """Positions along one direction of a tile: their variable, the loops they run over (outer first), a mask's name or ""."""

    name: str
    atoms: tuple[str, ...]
    axes: Axes
    mask: str = ""


@dataclass(frozen=True, kw_only=True)
class Function:
    """A device function. `takes` are its tensors, statistics and sizes, `positions` what is passed after them."""

    name: str
    takes: tuple[str, ...]
    positions: tuple[str, ...]
    lines: tuple[str, ...]
    comment: str

    def text(self) -> str:
        body = "\n".join("    " + line for line in self.lines)
        return f'@triton.jit\ndef {self.name}({", ".join((*self.takes, *self.positions))}):\n    """{self.comment}."""\n{body}\n'

    def call(self, *positions: str) -> str:
        return f"{self.name}({', '.join((*self.takes, *positions))})"


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """A reduction of each row that an operand needs before its first tile: name, kind, length, the function of its operand."""

    name: str
    kind: str
    length: Mono
    operand: Function


@dataclass
class Statistics:
    """Those met so far, each after what it needs."""

    problem: Problem
    found: dict[tuple[int, Index], Statistic] = field(default_factory=dict)

    def name(self, val: Val, index: Index) -> str:
        key = (val.id, index)
        if key not in self.found:
            written = self._written(val, index)  # may need others, which come before it
            self.found[key] = written
        return self.found[key].name

    def _written(self, val: Val, index: Index) -> Statistic:
        kind, over, keep = val.data
        if (kind, val.args[0].lane) not in NEUTRAL or val.args[0].lane != "f":
            raise Unsupported(f"{kind} of an operand's rows")
        operand, kept = val.args[0], iter(index)
        own = canonical(operand.dims, self.problem.graph.sizes)
        place = []
        for d in range(len(operand.shape)):
            outer = next(kept) if keep or d not in over else Affine()
            place.append(own[d] if d in over else outer)
        atoms = tuple(a for d in over for a in operand.dims[d])
        if set(atoms) & {*self.problem.rows, *self.problem.batch}:
            raise Unsupported("a statistic over the rows of a product")
        w = OperandWriter(self.problem, self, (_batch(self.problem), _rows(self.problem), Axis("k", atoms, COLUMNS, "mk")))
        x = w.value(operand, tuple(place))
        w.outer.append(f"return tl.where(mk, {w.whole(x)}, {NEUTRAL[kind, 'f']})")
        name = f"row{len(self.found) + 1}"
        length = total(self.problem.graph, atoms)
        function = w.function(f"{name}_of", f"A tile of what {name} is the {kind} of")
        return Statistic(name=name, kind=str(kind), length=length, operand=function)


class OperandWriter(TileWriter):
    """Values on a tile whose two directions and batch are `axes`."""

    def __init__(self, problem: Problem, statistics: Statistics | None, axes: Sequence[Axis]) -> None:
        scope = {atom: axis.axes for axis in axes for atom in axis.atoms}
        masks = {place: axis.mask for axis in axes for place in axis.axes}
        super().__init__(problem.graph, scope, masks)
        self.inner = self.outer
        self.statistics, self.along = statistics, tuple(axes)
        self.rows: dict[str, None] = {}

    # ------------------------------------------------------------ values

    def _reduce(self, val: Val, index: Index) -> Ex:
        if self.statistics is None or any(1 in self.scope.get(a, NONE) for form in index for a in form.terms):
            raise Unsupported("a reduction beside a matrix product")
        name = self.statistics.name(val, index)
        self.rows[name] = None
        return Ex(name, "f", ROWS)

    def load(self, base: str, form: Affine, lane: str, dtype: str) -> Ex:
        """Narrow integers stay in 32 bits: a conversion from 64 to float takes several times as long."""
        return super().load(base, form, lane, dtype) if dtype not in ("i8", "u8", "i16") else self._narrow(base, form, lane)

    def _narrow(self, base: str, form: Affine, lane: str) -> Ex:
        ex = super().load(base, form, lane, "i64")
        return self.define(ex.axes, lane, f"{ex.name}.to(tl.int32)")

    def whole(self, ex: Ex) -> str:
        """`ex` as a tile of both directions."""
        tile = self.tensor(ex)
        if tile.axes >= {0, 1}:
            return tile.name
        first, second = (axis.name for axis in self.along[1:])
        return f"tl.broadcast_to({tile.name}, ({first}.shape[0], {second}.shape[1]))"

    # ------------------------------------------------------------ indices

    def offset(self, form: Affine) -> str:
        parts: list[tuple[int, str]] = []
        for atom, m in sorted(self._folded(form).terms.items()):
            self.used.update((atom, *m.symbols))
            size = self.bounds.get(atom, ONE)
            near = not m.symbols and not size.symbols and m.coef * size.coef < NEAR
            name = atom if near else f"{atom}.to(tl.int64)"
            parts.append((1 if 1 in self.scope.get(atom, NONE) else 0, name if m.is_one else f"{name} * {m.c()}"))
        if form.const:
            parts.append((0, str(form.const)))
        return " + ".join(text for _, text in sorted(parts, key=lambda p: p[0])) or "0"

    def _folded(self, form: Affine) -> Affine:
        """`form` with neighbouring loops that it walks as one replaced by one."""
        terms = dict(form.terms)
        for axis in self.along:
            start = 0
            while start < len(axis.atoms):
                end = start
                while end + 1 < len(axis.atoms) and self._as_one(form, axis.atoms[end], axis.atoms[end + 1]):
                    end += 1
                if end > start:
                    run = axis.atoms[start : end + 1]
                    name = "_".join(run)
                    self.scope[name], self.bounds[name] = axis.axes, total(self.graph, run)
                    terms[name] = form.terms[run[-1]]
                    for atom in run:
                        del terms[atom]
                start = end + 1
        return Affine(terms, form.const)

    def _as_one(self, form: Affine, outer: str, inner: str) -> bool:
        return inner in form.terms and form.coefficient(outer) == form.coefficient(inner) * self.graph.sizes[inner]

    # ------------------------------------------------------------ the function

    def function(self, name: str, comment: str, first: Sequence[str] = ()) -> Function:
        """What was written, as a function; `first` are parameters before all others."""
        head = [line for axis in self.along for line in self._decoded(axis)]
        symbols = {s for line in [*head, *self.outer] for s in self.graph.workload.symbols if s in _words(line)}
        spec = self.graph.workload
        tensors = [f"in{k}" for k in range(len(spec.inputs))] + [f"out{k}" for k in range(len(spec.output_specs))]
        takes = (*first, *(t for t in tensors if t in self.used), *self.rows, *(s for s in spec.symbols if s in symbols))
        positions = tuple(axis.name for axis in self.along)
        return Function(name=name, takes=takes, positions=positions, lines=(*head, *self.outer), comment=comment)

    def _decoded(self, axis: Axis) -> list[str]:
        """The loops of an axis, and runs of them, from a position; and its mask."""
        lines = []
        count = len(axis.atoms)
        for start in range(count):
            for end in range(start, count):
                name = "_".join(axis.atoms[start : end + 1])
                if name not in self.used:
                    continue
                inner, size = total(self.graph, axis.atoms[end + 1 :]), total(self.graph, axis.atoms[start : end + 1])
                text = axis.name if inner.is_one else f"{axis.name} // ({inner.c()})"
                lines.append(f"{name} = {text if start == 0 else f'{text} % ({size.c()})'}")
        whole = total(self.graph, axis.atoms)
        masked = axis.mask and any(axis.mask in _words(line) for line in self.outer)
        return [*lines, *([f"{axis.mask} = {axis.name} < {whole.c()}"] if masked else [])]


class FinishWriter(OperandWriter):
    """Epilogues: a product's result is an accumulator."""

    def __init__(self, problem: Problem, axes: Sequence[Axis]) -> None:
        super().__init__(problem, None, axes)
        self.accumulators = {(use.product.id, use.index): f"acc{k + 1}" for k, use in enumerate(problem.uses)}

    def put(self, base: str, form: Affine, x: Ex, element: str) -> None:
        """All of a tile, also where it has one row or one column: it is masked there."""
        self.used.add(base)
        at = [self.offset(form)]
        at += [f"{axis.name} * 0" for axis in self.along[1:] if not axis.axes & self.axes_of(form)]
        tile, mask = self.whole(x), self.mask(ROWS | COLUMNS)
        name = f"({tile} != 0)" if element == "tl.int1" and x.lane != "b" else tile
        where = f", mask={mask}" if mask else ""
        self.outer.append(f"tl.store({base} + {' + '.join(at)}, {name}.to({element}){where})")

    def _product(self, val: Val, index: Index) -> Ex:
        return Ex(self.accumulators[val.id, index], "f", ROWS | COLUMNS)


def _words(line: str) -> set[str]:
    return set("".join(ch if ch.isalnum() or ch == "_" else " " for ch in line).split())


def _batch(problem: Problem) -> Axis:
    return Axis("b", problem.batch, NONE)


def _rows(problem: Problem) -> Axis:
    return Axis("r", problem.rows, ROWS, "mr")


@dataclass(frozen=True, kw_only=True)
class Operand:
    """A tile function of one operand, and the statistics that it takes."""

    function: Function
    left: bool


def operand(problem: Problem, use: Use, statistics: Statistics, name: str, *, left: bool, masked: tuple[bool, bool]) -> Operand:
    """The tile of a product's left [rows, k] or right [k, columns] operand. `masked` says whether there are positions beyond
    the operand along its own direction and along k. Raises Unsupported."""
    graph = problem.graph
    val = use.product.args[0 if left else 1]
    depth = canonical([use.product.data], graph.sizes)[0]
    k = Axis("k", tuple(use.product.data), COLUMNS if left else ROWS, "mk" if masked[1] else "")
    if left:
        own = Axis("r", problem.rows, ROWS, "mr" if masked[0] else "")
        axes, index = (_batch(problem), own, k), (*use.index[:-2], use.index[-2], depth)
    else:
        own = Axis("n", problem.columns, COLUMNS, "mn" if masked[0] else "")
        axes, index = (_batch(problem), k, own), (*use.index[:-2], depth, use.index[-1])
    index = tuple(Affine() if size.is_one else form for form, size in zip(index, val.shape, strict=True))
    w = OperandWriter(problem, statistics if left else None, axes)
    value = w.value(val, index)
    plain = resolve(graph.sizes, val, index, None, None)[0].kind == "input" and k.axes <= value.axes
    tile = w.whole(value)
    # What stands beyond the end of k must be 0: a load's mask made it so, but not for what is computed or the same along k.
    w.outer.append(f"return {tile}" if plain or not masked[1] else f"return tl.where(mk, {tile}, 0.0)")
    what = "left operand, rows by k" if left else "right operand, k by columns"
    return Operand(function=w.function(name, f"A tile of the {what}"), left=left)


def finish(problem: Problem, masked: tuple[bool, bool]) -> Function:
    """What is done to a finished tile, stores included. Raises Unsupported."""
    rows = Axis("r", problem.rows, ROWS, "mr" if masked[0] else "")
    columns = Axis("n", problem.columns, COLUMNS, "mn" if masked[1] else "")
    w = FinishWriter(problem, (_batch(problem), rows, columns))
    for output in problem.graph.outputs:
        w.value(output)
    for number, output in enumerate(problem.graph.outputs):
        w.store(number, output, 0, 0)
    return w.function("finish", "Epilogue and stores of a tile", [f"acc{k + 1}" for k in range(len(problem.uses))])


__all__ = ["Function", "Graph", "Operand", "Statistic", "Statistics", "finish", "operand"]
