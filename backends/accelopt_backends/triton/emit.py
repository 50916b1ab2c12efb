"""The text of values on a tile: what stands at an index, loaded, computed, masked.

A tile has two axes: 0 (rows, tensors of shape [R, 1]) and 1 (columns, [1, C]); a value varies along a set of them, and
Triton broadcasts. `TileWriter` knows which atoms run along which axis and under which name, and nothing of loops: row
kernels, column kernels and matrix products bring their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from accelopt_backends.loops.affine import ONE, Affine, Mono, Unsupported, mono
from accelopt_backends.loops.pull import Index, around_lookup, canonical, flattened, narrow, resolve
from accelopt_backends.loops.values import Graph, Val, static_count
from accelopt_backends.triton.expressions import ELEMENT, LANE, literal, point_text

Axes = frozenset[int]
NONE: Axes = frozenset()
ROWS: Axes = frozenset({0})
COLUMNS: Axes = frozenset({1})
Key = tuple[int, Index, str]

WIDE = 1 << 30
"""Elements that an offset along the columns may reach in 32 bits."""


@dataclass(frozen=True)
class Ex:
    """A named value in the text: its lane, the axes it varies along, whether it is a Python constant there."""

    name: str
    lane: str
    axes: Axes = NONE
    constant: bool = False


WIDE_ALONG = {0: "(ROWS, 1)", 1: "(1, BLOCK)"}
"""A pointer is to have every axis that its mask has."""


class TileWriter:
    """Writes values of `graph` on one tile.

    `scope` says along which axes each atom runs; the text's variable of an atom has its name. `masks` holds the name of the
    condition under which an axis' positions are real ("" where all are). `given` are values that the tile has already (a
    finished reduction, an accumulator), at their own canonical index. `done` are reductions that an earlier launch kept.
    Lines go to `lines(axes)`.
    """

    def __init__(
        self, graph: Graph, scope: Mapping[str, Axes], masks: Mapping[int, str], *, done: frozenset[Val] = frozenset()
    ) -> None:
        self.graph, self.masks, self.done = graph, dict(masks), done
        self.sizes = dict(graph.sizes)
        self.bounds = dict(graph.sizes)
        self.scope: dict[str, Axes] = dict(scope)
        self.given: dict[Val, Ex] = {}
        self.merges: list[tuple[str, str]] = []
        self.accesses: list[Affine] = []
        self.scans: list[str] = []
        self.running: set[str] = set()
        """Loops along which sums run."""
        self.used: set[str] = set()
        self.outer: list[str] = []
        self.inner: list[str] = []
        self.memo: dict[Key, Ex] = {}
        self.loop_memo: dict[Key, Ex] = {}
        self.names = 0
        self.extra = ""
        self.extra_axes = NONE
        self.loop_axis = 1

    # ------------------------------------------------------------ lines and names

    def lines(self, axes: Axes) -> list[str]:
        """Where a statement that varies along `axes` goes: inside the loop where it varies along the loop's axis."""
        return self.inner if self.loop_axis in axes else self.outer

    def fresh(self, prefix: str = "t") -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def define(self, axes: Axes, lane: str, text: str) -> Ex:
        name = self.fresh()
        self.lines(axes).append(f"{name} = {text}")
        return Ex(name, lane, axes)

    def tensor(self, ex: Ex) -> Ex:
        """`ex`, a tensor where it is a Python constant."""
        return self.define(ex.axes, ex.lane, f"tl.full((1, 1), {ex.name}, {LANE[ex.lane]})") if ex.constant else ex

    def mask(self, axes: Axes) -> str:
        """The condition under which positions along `axes` are real, "" for all."""
        parts = [self.masks[a] for a in sorted(axes) if self.masks.get(a)]
        return " & ".join([*parts, *([self.extra] if self.extra else [])])

    # ------------------------------------------------------------ indices

    def merge(self, form: Affine) -> Affine:
        """`form` with merged loops: the outer one's term is implied by the inner one's."""
        gone = {outer for outer, _ in self.merges}
        return Affine({a: m for a, m in form.terms.items() if a not in gone}, form.const) if gone else form

    def access(self, form: Affine) -> Affine:
        self.accesses.append(form)
        return self.merge(form)

    def axes_of(self, form: Affine) -> Axes:
        found = NONE
        for atom in form.terms:
            found = found | self.scope.get(atom, NONE)
        return found

    def offset(self, form: Affine) -> str:
        """An element offset as text, rows first: their 64-bit part is added once a row."""
        parts: list[tuple[int, str]] = []
        for atom, m in sorted(form.terms.items()):
            self.used.add(atom)
            axes = self.scope.get(atom, NONE)
            far = bool(m.symbols) or m.coef * static_count(self.bounds.get(atom, ONE)) >= WIDE
            name = f"{atom}.to(tl.int64)" if far and axes == COLUMNS else atom
            parts.append((1 if 1 in axes else 0, name if m.is_one else f"{name} * {m.c()}"))
        if form.const:
            parts.append((0, str(form.const)))
        return " + ".join(text for _, text in sorted(parts, key=lambda p: p[0])) or "0"

    def position(self, val: Val, strides: tuple[object, ...], index: Index) -> Affine:
        form = Affine()
        for i, stride in zip(index, strides, strict=True):
            form = form + i.scaled(mono(stride))  # type: ignore[arg-type]
        return self.access(form)

    def flat(self, index: Index, shape: tuple[Mono, ...]) -> Affine:
        return self.access(flattened(index, shape))

    # ------------------------------------------------------------ values

    def value(self, val: Val, index: Index | None = None) -> Ex:
        """The named value of `val` at `index` (its own atoms where none is given), writing what it takes."""
        val, index = resolve(self.bounds, val, canonical(val.dims, self.graph.sizes) if index is None else index, None, None)
        key: Key = (val.id, index, self.extra)
        for memo in (self.memo, self.loop_memo):
            if key in memo:
                return memo[key]
        if val in self.given:
            if index != canonical(val.dims, self.graph.sizes):
                raise Unsupported("a reduction used at another place than its own")
            return self.given[val]
        ex: Ex = getattr(self, f"_{val.kind}")(val, index)
        (self.loop_memo if self.loop_axis in ex.axes else self.memo)[key] = ex
        return ex

    def load(self, base: str, form: Affine, lane: str, dtype: str) -> Ex:
        """One element per position; 16-bit floats are widened at once."""
        axes = self.axes_of(form)
        self.used.add(base)
        mask = self.mask(axes)
        place = self.offset(form)
        if self.extra:
            place = " + ".join([place, *(f"tl.zeros({WIDE_ALONG[a]}, tl.int32)" for a in sorted(self.extra_axes - axes))])
            axes = axes | self.extra_axes
        text = f"tl.load({base} + {place}" + (f", mask={mask}, other=0)" if mask else ")")
        if lane == "f" and dtype != "f32":
            text += ".to(tl.float32)"
        if lane == "l" and dtype != "i64":
            text += ".to(tl.int64)"
        return self.define(axes, lane, text + (" != 0" if lane == "b" else ""))

    def _const(self, val: Val, index: Index) -> Ex:
        if isinstance(val.data, str):
            self.used.update(word for word in val.data.replace("*", " ").split() if word.startswith("s"))
            return self.define(NONE, val.lane, literal(val.data, val.lane))
        return Ex(literal(val.data, val.lane), val.lane, NONE, True)

    def _input(self, val: Val, index: Index) -> Ex:
        spec = self.graph.workload.inputs[val.data]
        if spec.dtype not in ELEMENT:
            raise Unsupported(f"{spec.dtype} inputs")
        return self.load(f"in{val.data}", self.position(val, spec.strides, index), val.lane, spec.dtype)

    def _iota(self, val: Val, index: Index) -> Ex:
        start, step = val.data
        form = self.access(index[0].scaled(Mono(step)) + Affine({}, start))
        text = f"({self.offset(form)})"
        if not form.terms:
            return Ex(text, "l", NONE, True)
        whole = self.define(self.axes_of(form), "l", f"{text}.to(tl.int64)")
        return whole if val.lane == "l" else self.define(whole.axes, "f", f"{whole.name}.to(tl.float32)")

    def _point(self, val: Val, index: Index) -> Ex:
        args = [self.value(a, narrow(a, index)) for a in val.args]
        op = str(val.data)
        if op == "id":
            return args[0]
        if all(a.constant for a in args):
            args = [self.tensor(args[0]), *args[1:]]
        if op == "where":
            args[0] = self.tensor(args[0])
        axes = NONE
        for a in args:
            axes = axes | a.axes
        lane = args[1].lane if op == "where" else args[0].lane
        return self.define(axes, val.lane, point_text(op, [a.name for a in args], lane))

    def _reduce(self, val: Val, index: Index) -> Ex:
        if val not in self.done:
            raise Unsupported("a reduction used before it is known")
        return self.load(f"kept{val.id}", self.flat(index, val.shape), val.lane, KEPT[val.lane])

    def _scan(self, val: Val, index: Index) -> Ex:
        raise Unsupported("a running sum here")

    def _cat(self, val: Val, index: Index) -> Ex:
        """The part that holds this position, chosen at run time; the others are not read there."""
        dim: int = val.data
        at = self.access(index[dim])
        axes = self.axes_of(at)
        if not axes:
            raise Unsupported("a concatenation at one place")
        start, chosen, before = 0, None, (self.extra, self.extra_axes)
        place = self.define(axes, "l", self.offset(at))
        for part in val.args:
            size = part.shape[dim].static
            if size is None:
                raise Unsupported("a concatenation of symbolic sizes")
            here = self.define(axes, "b", f"({place.name} >= {start}) & ({place.name} < {start + size})")
            moved = self.define(axes, "l", f"tl.where({here.name}, {place.name} - {start}, 0)")
            self.scope[moved.name], self.bounds[moved.name] = axes, Mono(size)
            self.extra = f"{before[0]} & {here.name}" if before[0] else here.name
            self.extra_axes = before[1] | axes
            piece = self.value(part, (*index[:dim], Affine({moved.name: ONE}), *index[dim + 1 :]))
            self.extra, self.extra_axes = before
            if chosen is not None:
                chosen = self.define(
                    chosen.axes | piece.axes | axes, val.lane, f"tl.where({here.name}, {piece.name}, {chosen.name})"
                )
            else:
                chosen = piece
            start += size
        assert chosen is not None
        return chosen

    def _lookup(self, val: Val, index: Index) -> Ex:
        """A row of a table by a position that is only known at run time: it is asserted to be inside, where eager takes
        negative ones once they have been counted from the end."""
        table, positions = val.args
        _, dim, negative = val.data
        at, before, after = around_lookup(val, index)
        position = self.tensor(self.value(positions, at))
        size = table.shape[dim]
        self.used.update(size.symbols)
        wrapped = position
        if negative:
            from_end = f"tl.where({position.name} < 0, {position.name} + {size.c()}, {position.name})"
            wrapped = self.define(position.axes, "l", from_end)
        inside = f"({wrapped.name} >= 0) & ({wrapped.name} < {size.c()})"
        mask = self.mask(position.axes)
        self.lines(position.axes).append(
            f'tl.device_assert({f"({inside}) | ~({mask})" if mask else inside}, "an index is out of range")'
        )
        clamped = self.define(position.axes, "l", f"tl.minimum(tl.maximum({wrapped.name}, 0), {size.c()} - 1)")
        self.scope[clamped.name], self.bounds[clamped.name] = position.axes, size
        return self.value(table, (*before, Affine({clamped.name: ONE}), *after))

    # ------------------------------------------------------------ stores

    def store(self, output: int, val: Val, dim: int, offset: int) -> None:
        """`val` into an output; `offset` shifts dimension `dim`."""
        spec = self.graph.workload.output_specs[output]
        if spec.dtype not in ELEMENT:
            raise Unsupported(f"{spec.dtype} outputs")
        index = canonical(val.dims, self.graph.sizes)
        x = self.tensor(self.value(val))
        form = Affine()
        for d, (i, stride) in enumerate(zip(index, spec.strides, strict=True)):
            form = form + (i + Affine({}, offset) if d == dim and offset else i).scaled(mono(stride))
        form = self.access(form)
        self.put(f"out{output}", form, x, ELEMENT[spec.dtype])

    def put(self, base: str, form: Affine, x: Ex, element: str) -> None:
        axes = self.axes_of(form)
        self.used.add(base)
        mask = self.mask(axes)
        where = f", mask={mask}" if mask else ""
        name = f"({x.name} != 0)" if element == "tl.int1" and x.lane != "b" else x.name
        place = self.offset(form) if axes or not x.axes else f"tl.full((1, 1), {self.offset(form)}, tl.int32)"
        self.lines(axes | x.axes).append(f"tl.store({base} + {place}, {name}.to({element}){where})")


KEPT = {"f": "f32", "l": "i64", "b": "i32"}
"""What a reduction of each lane is kept as between launches."""
