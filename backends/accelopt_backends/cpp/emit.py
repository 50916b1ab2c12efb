"""The values of one loop nest as C++ text, one rule for each kind of value.

A nest becomes: a parallel loop over rows (or blocks of one long row), inside it one sweep of the vector atom per pass.
`NestWriter` writes a nest once for a given set of loop merges, segments and buffered values; `write_nest` (dry_runs.py) runs it
dry first to learn those. Where its lines stand is said in lines.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from accelopt_backends.cpp.expressions import SCALAR, STORED, literal, point_text
from accelopt_backends.cpp.lines import LEVELS, Ex, Key, Lines, Shape
from accelopt_backends.loops.affine import ONE, Affine, Mono, Unsupported, mono
from accelopt_backends.loops.nests import Nest
from accelopt_backends.loops.pull import Index, Segment, around_lookup, canonical, flattened, narrow, resolve, running
from accelopt_backends.loops.shortcuts import is_partition, shortcut
from accelopt_backends.loops.steps import stepped
from accelopt_backends.loops.values import Graph, Val

SCALAR_STORED = {"f": "float", "l": "int64_t", "b": "b8"}


class NestWriter(Lines):
    """Writes one nest. `accesses` and `seen` record what the dry run needs."""

    def __init__(self, graph: Graph, nest: Nest, number: int, shape: Shape, done: Mapping[Val, str]) -> None:
        super().__init__(graph, nest, shape)
        self.number, self.done = number, done
        self.exact = stepped(graph)
        self.bounds = dict(graph.sizes)
        """What each term of an index stays below: a loop's atom, or a position that is only known at run time."""
        self.seen: dict[Key, set[tuple[int, Segment | None]]] = {}
        """The passes that computed a value, and in which part of the row."""
        self.heavy: dict[Key, bool] = {}
        self.loaded: set[Key] = set()
        self.segment: Segment | None = None
        self.scans: list[str] = []
        self.running: set[str] = set()
        """Loops along which sums run."""
        self.kept: list[tuple[Val, Affine]] = []
        """Results of earlier nests that this one reads, and where in their array."""

    def value(self, val: Val, index: Index) -> Ex:
        """The named value of `val` at `index`, writing what it takes."""
        val, index = resolve(self.bounds, val, index, self.vector_before_merges, self.segment)
        key: Key = (val.id, index)
        here = (*key, self.segment)  # in another part of a concatenation the same place has another value
        for level in LEVELS:
            if here in self.memo[level]:
                return self.memo[level][here]
        if not self.heads and key in self.shape.buffered and self._kept(key):
            self.loaded.add(key)
            kept = self.define("body", "f", f"load(b, {self.buffer(key)} + {self.row_position()}, left)")
            self.memo["body"][here] = kept
            return kept
        ex: Ex = getattr(self, f"_{val.kind}")(val, index)
        self.memo[ex.level][here] = ex
        if ex.varying and not self.heads:
            self.seen.setdefault(key, set()).add((self.pass_number, self.segment))
            self.heavy[key] = ex.heavy
            if key in self.shape.buffered:
                self.say("body", f"store(b, {self.buffer(key)} + {self.row_position()}, {ex.name}, left);")
        return ex

    def _kept(self, key: Key) -> bool:
        """Whether an earlier pass has put the value into its row buffer, in this part of the row."""
        return any(number < self.pass_number and segment == self.segment for number, segment in self.seen.get(key, ()))

    @property
    def vector_before_merges(self) -> str | None:
        return self.nest.vector

    def buffer(self, key: Key) -> str:
        return f"buf{sorted(self.shape.buffered, key=lambda k: (k[0], str(k[1]))).index(key)}"

    def plain_copy(self, val: Val, dtype: str) -> str | None:
        """Where `val` is an input's elements unchanged and side by side: the address of the vector at `k`."""
        index = canonical(val.dims, self.graph.sizes)
        while True:
            val, index = resolve(self.bounds, val, index, self.vector_before_merges, self.segment)
            if val.kind == "point" and val.data == "id":
                val, index = val.args[0], narrow(val.args[0], index)
                continue
            break
        if val.kind != "input" or val.dtype != dtype:
            return None
        spec = self.graph.workload.inputs[val.data]
        form = Affine()
        for i, stride in zip(index, spec.strides, strict=True):
            form = form + i.scaled(mono(stride))
        if not self.merge(form).coefficient(self.vector or "").is_one:
            return None
        rest = self.access(form).without(self.vector or "")
        return f"{self.pointer(f'in{val.data}', STORED[dtype], rest)} + k"

    # ------------------------------------------------------------ a rule for each kind

    def _const(self, val: Val, index: Index) -> Ex:
        return Ex(literal(val.data, val.lane), val.lane, "row")

    def _input(self, val: Val, index: Index) -> Ex:
        spec = self.graph.workload.inputs[val.data]
        form = Affine()
        for i, stride in zip(index, spec.strides, strict=True):
            form = form + i.scaled(mono(stride))
        return self.load(f"in{val.data}", STORED[val.dtype], form, val.lane)

    def _iota(self, val: Val, index: Index) -> Ex:
        start, step = val.data
        form = self.access(index[0].scaled(Mono(step)) + Affine({}, start))
        level = self.level(form)
        lane = val.lane
        if level != "body":
            return self.define(level, lane, f"({SCALAR[lane]})({form.c()})")
        if any(self.scope.get(a) == "body" for a in form.terms):
            raise Unsupported("a position computed from gathered positions")
        m = form.coefficient(self.vector or "")
        text = f"all((int64_t)({self.at(form)})) + lane64() * all((int64_t)({m.c()}))"
        return self.define("body", lane, f"to_f({text})" if lane == "f" else text)

    def _point(self, val: Val, index: Index) -> Ex:
        op, operands = shortcut(val)
        args = [self.value(a, narrow(a, index)) for a in operands]
        level = max((a.level for a in args), key=LEVELS.index, default="row")
        if op == "div" and level == "body" and not args[1].varying and args[1].lane == "f":
            exact = operands[1].kind == "const" or val in self.exact
            text = self.quotient(args[0].name, args[1], exact=exact, scaled=not is_partition(operands[1]))
            return self.define("body", "f", text, args[0].heavy)
        if op == "id":
            return args[0]
        names = [f"all({a.name})" if level == "body" and not a.varying else a.name for a in args]
        text, section, heavy = point_text(op, names, args[0].lane)
        if level != "body":
            text = text.replace("all(", "(")
        self.sections.add(section)
        return self.define(level, val.lane, text, heavy or any(a.heavy for a in args))

    def quotient(self, dividend: str, divisor: Ex, *, exact: bool, scaled: bool) -> str:
        """The text of a quotient of a vector by what is the same for all of it: a product with its reciprocal, within 1.5 ulp
        unless it is to be `exact`, and `scaled` where the divisor may have none that is a normal number."""
        self.sections.add("quotient")
        name = divisor.name
        if scaled:
            scale = self.once(divisor.level, "scale", f"scale_for({name})")
            name, dividend = self.once(divisor.level, "scaled", f"{name} * {scale}"), f"{dividend} * all({scale})"
        inverse = self.once(divisor.level, "inverse", f"1.0f / {name}")
        return f"quotient({dividend}, all({name}), all({inverse}))" if exact else f"{dividend} * all({inverse})"

    def once(self, level: str, what: str, text: str) -> str:
        """The name of a number that is computed at most once at its level."""
        key = (what, text)
        if key not in self.memo[level]:
            self.memo[level][key] = self.define(level, "f", text)
        return self.memo[level][key].name

    def _reduce(self, val: Val, index: Index) -> Ex:
        if val in self.nest.reductions:
            if index != canonical(val.dims, self.graph.sizes):
                raise Unsupported("a row's reduction used by another row")
            return Ex(f"red{val.id}", val.lane, "row")
        if val not in self.done:
            raise Unsupported("a reduction used before its nest")
        if not any(val.dims) and self.done[val] == "red":
            return Ex(f"red{val.id}", val.lane, "row")
        form = flattened(index, val.shape)
        self.kept.append((val, self.merge(form)))
        return self.load(f"kept{val.id}", SCALAR_STORED[val.lane], form, val.lane)

    def _scan(self, val: Val, index: Index) -> Ex:
        along = running(val, index)
        if [along] != self.nest.row[-1:]:
            raise Unsupported("a running sum across rows")
        self.running.add(along)
        arg = self.value(val.args[0], index)
        carry = f"carry{val.id}_{self.pass_number}"
        self.scans.append(carry)
        self.sections.add("scan")
        source = arg.name if arg.varying else f"all({arg.name})"
        return self.define("body", "f", f"running({source}, {carry})", True)

    def _cat(self, val: Val, index: Index) -> Ex:
        """The part that holds this position, chosen at run time; every part is read at a position that it has."""
        dim: int = val.data
        at = self.access(index[dim])
        level = self.level(at)
        if level == "body":
            raise Unsupported("a concatenation along a dimension that is not the innermost")
        start, chosen = 0, None
        for part in val.args:
            size = part.shape[dim].static or 0
            name = self.fresh("x")
            self.say(level, f"const int64_t {name} = clamped({at.c()} - {start}, {size});")
            self.scope[name], self.bounds[name] = level, Mono(size)
            piece = self.value(part, (*index[:dim], Affine({name: ONE}), *index[dim + 1 :]))
            if chosen is not None:
                where = max(level, piece.level, chosen.level, key=LEVELS.index)
                names = [f"all({e.name})" if where == "body" and not e.varying else e.name for e in (chosen, piece)]
                here = f"({at.c()}) < {start}"
                text = f"where({f'all({here})' if where == 'body' else here}, {names[0]}, {names[1]})"
                piece = self.define(where, val.lane, text, chosen.heavy or piece.heavy)
            start, chosen = start + size, piece
        assert chosen is not None
        return chosen

    def _lookup(self, val: Val, index: Index) -> Ex:
        table, positions = val.args
        _, dim, negative = val.data
        inside = f"inside<{'true' if negative else 'false'}>"
        at, before, after = around_lookup(val, index)
        position = self.value(positions, at)
        size = table.shape[dim].c()
        name = self.fresh("x")
        self.bounds[name] = table.shape[dim]
        if position.varying:
            self.say("body", f"const vl {name} = {inside}(b, {position.name}, {size}, bad, left);")
        else:
            self.say(position.level, f"const int64_t {name} = {inside}({position.name}, {size}, bad);")
        self.sections.add("inside")
        self.scope[name] = position.level
        return self.value(table, (*before, Affine({name: ONE}), *after))
