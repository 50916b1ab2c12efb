"""The text of a nest's rows: what each pass over a row folds and stores."""

from __future__ import annotations

import itertools

from accelopt_backends.cpp.emit import NestWriter
from accelopt_backends.cpp.expressions import STORED
from accelopt_backends.cpp.folds import Folds
from accelopt_backends.cpp.lines import Ex
from accelopt_backends.cpp.stores import Stores
from accelopt_backends.cpp.sweeps import sweep, tile_loops
from accelopt_backends.loops.affine import ZERO, Unsupported
from accelopt_backends.loops.nests import Store, reduced_atoms, scans_of
from accelopt_backends.loops.passes import pass_levels, pass_of, row_level
from accelopt_backends.loops.pull import Segment
from accelopt_backends.loops.values import Val


class NestText:
    """The text of one nest through one writer. `exports` are the results that later nests read; `stores` is how outputs are
    stored."""

    def __init__(self, writer: NestWriter, exports: set[Val], *, stores: str) -> None:
        self.w, self.stores = writer, Stores(writer, stores)
        nest = self.nest = writer.nest
        self.levels = pass_levels(self.nest)
        self.passes = 1 + max([*self.levels.values(), *(self.pass_of(r) for r in nest.roots)], default=0)
        self.blocked = not (
            self.nest.reductions
            or writer.shape.cuts
            or any(row_level(self.nest, r) for r in self.nest.roots)
            or any(scans_of(value) for value in [*(s.val for s in nest.stores), *(a.args[0] for a in nest.accumulations)])
        ) and bool(writer.row)
        self.folds = Folds(writer, exports, blocked=self.blocked)
        if self.blocked:
            writer.par += writer.row[:-1]
            writer.row = writer.row[-1:]

    def write(self) -> None:
        """The text of a row, in `w.lines["row"]`."""
        for p in range(self.passes):
            self.write_pass(p)
        self.row_roots()

    @property
    def tileable(self) -> bool:
        """Whether it may be written in tiles: a sum of all there is has its partial sums beside a row's loops, not in them."""
        return self.blocked and not any(self.is_scalar(a) for a in self.nest.accumulations)

    def is_scalar(self, accumulation: Val) -> bool:
        """Whether it leaves nothing of a row."""
        return set(self.nest.row) <= reduced_atoms(accumulation)

    def pass_of(self, root: Val | Store) -> int:
        return pass_of(self.nest, root, self.levels)

    def write_pass(self, number: int) -> None:
        w, nest = self.w, self.nest
        w.pass_number = number
        if not nest.row:
            return
        reds = [r for r in nest.reductions if self.levels[r] == number and r.data[0] != "head"]
        self.write_heads([r for r in nest.reductions if self.levels[r] == number and r.data[0] == "head"])
        stores = [s for s in nest.stores if not row_level(nest, s) and self.pass_of(s) == number]
        accs = [a for a in nest.accumulations if not row_level(nest, a) and self.pass_of(a) == number]
        if not (reds or stores or accs):
            return
        w.say("row", f"// pass {number + 1}")
        scalar_accs = [a for a in accs if self.is_scalar(a)]
        for red in [*reds, *scalar_accs]:
            self.folds.declare(red)
        stretches, start = self.stretches(), len(w.lines["row"])
        going_on: dict[str, None] = {}
        for low, high, segment in stretches:
            w.segment = segment
            w.scans = []
            for level in ("inner", "body"):
                w.lines[level], w.memo[level] = [], {}
            for red in [*reds, *scalar_accs]:
                self.folds.step(red)
            for acc in accs:
                if acc not in scalar_accs:
                    self.folds.column_step(acc)
            self.stores.read_first(stores)
            for store in stores:
                self.stores.vector(store, ahead=self.passes < 2)
            self.look_ahead(number)
            if w.shape.tile:
                tile_loops(w)
            else:
                going_on |= dict.fromkeys(w.scans if len(stretches) > 1 else ())
                spills = [self.folds.spill(r) for r in [*reds, *scalar_accs] if self.folds.chained(r)]
                sweep(w, low, high, spills=spills, carries=len(stretches) == 1)
        if going_on and len(w.row) > 1:
            raise Unsupported("a running sum over a concatenation in rows of several dimensions")
        w.lines["row"][start:start] = [f"double {carry} = 0.0;" for carry in going_on]
        for red in reds:
            self.folds.finish(red)
        for acc in scalar_accs:
            self.folds.add_partial(acc, Ex(self.folds.folded(acc), acc.lane, "row"))

    def look_ahead(self, number: int) -> None:
        """Where a row takes several passes: memory is asked for the next row, and for the next row of the output, in passes
        that only wait for arithmetic. (Softmax of 1024 rows of 1024, one thread: 1.5x. Batch norm of 16x512x7x7, whose rows
        are 16 pieces of 196 bytes: 1.25x with one thread and with two; asking for the lines of the same row, which are
        written at once, gains nothing there. Where there is one pass, asking for the lines to write AHEAD elements before
        they are written makes ReLU 1.1x.)"""
        w = self.w
        if self.passes < 2 or not w.row or w.shape.cuts or w.shape.tile or w.graph.workload.aliases:
            return
        if number == 1:
            for base, stored, rest in dict.fromkeys(w.streams):
                w.say("body", f"ahead<0>(b, {w.pointer(base, stored, rest)} + {rest.coefficient(w.par[-1]).c()} + k, u);")
        if number == self.passes - 2 and w.lines["body"]:
            for store in self.nest.stores:
                form = w.access(self.stores.form(store))
                if row_level(self.nest, store) or self.pass_of(store) <= number or not form.coefficient(w.row[-1]).is_one:
                    continue
                stored = STORED[w.graph.workload.output_specs[store.output].dtype]
                step = form.coefficient(w.par[-1]) if w.par else ZERO
                distance = f" + {step.c()}" if step.coef else ""
                pointer = w.pointer(f"out{store.output}", stored, form.without(w.row[-1]), "")
                self.stores.ask_to_write(store, pointer, distance)

    def write_heads(self, heads: list[Val]) -> None:
        """What the row's results are taken about: 64 of its elements, a vector each from places all over it (of its first
        stretch, where it has several). Its first 64 say little of a row whose parts lie about different values: of a group
        norm in bfloat16 with an offset for each image row one draw of twenty was wrong by up to 1.25 times what is allowed."""
        if not heads:
            return
        w = self.w
        _, high, w.segment = self.stretches()[0]
        number = heads[0].id
        w.say("row", f"const int64_t head{number} = {high} < 64 ? {high} : 64;")
        w.say("row", f"const int64_t apart{number} = head{number} < 64 ? VEC : {high} / 64 * VEC;")
        for level in ("inner", "body"):
            w.lines[level], w.memo[level] = [], {}
        w.heads = True
        for red in heads:
            x = self.folds.operand(red)
            w.say("row", f"float first{red.id}[64 + VEC] = {{}};")
            w.say("body", f"store(b, first{red.id} + place * VEC, {x.name if x.varying else f'all({x.name})'}, left);")
        w.heads = False
        w.say("row", f"for (int64_t place = 0; place * VEC < head{number}; ++place) {{")
        start = f"place * apart{number}"
        sweep(w, start, f"{start} + VEC < {high} ? {start} + VEC : {high}", place="place")
        w.say("row", "}")
        for red in heads:
            w.say("row", f"const float red{red.id} = centre(first{red.id}, head{number});")
            self.folds.keep(red)

    def stretches(self) -> list[tuple[str, str, Segment | None]]:
        w = self.w
        size = w.sizes[w.row[-1]]
        if self.blocked:
            return [("j0", f"j0 + BLOCK < {size.c()} ? j0 + BLOCK : {size.c()}", None)]
        if not w.shape.cuts:
            return [("0", size.c(), None)]
        if size.static is None:
            raise Unsupported("a concatenation along a symbolic size")
        marks = [0, *sorted(c for c in w.shape.cuts if 0 < c < size.static), size.static]
        return [(str(a), str(b), Segment(w.row[-1], a, b)) for a, b in itertools.pairwise(marks)]

    def row_roots(self) -> None:
        nest = self.nest
        self.w.segment = None
        self.stores.read_first([store for store in nest.stores if row_level(nest, store) or not nest.row])
        for store in nest.stores:
            if row_level(nest, store) or not nest.row:
                self.stores.one(store)
        for acc in nest.accumulations:
            if row_level(nest, acc) or not nest.row:
                self.folds.add_partial(acc, self.folds.operand(acc))
        self.w.lines["row"] += self.folds.put_aside()
