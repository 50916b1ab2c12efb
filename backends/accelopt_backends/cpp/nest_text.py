"""Assembly of a nest's text: passes, sweeps, reductions, accumulations, stores; and the dry runs that shape it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from accelopt_backends.cpp.emit import SCALAR_STORED, Ex, NestWriter, Shape
from accelopt_backends.cpp.expressions import SCALAR, STORED, VECTOR
from accelopt_backends.loops.affine import ONE, Affine, Mono, Unsupported, mono
from accelopt_backends.loops.nans import told_by_a_sum
from accelopt_backends.loops.nests import Nest, Store, reduced_atoms, scans_of
from accelopt_backends.loops.passes import mergeable, pass_levels, pass_of, row_level
from accelopt_backends.loops.pull import NeedsSegments, Segment, canonical, flattened
from accelopt_backends.loops.values import Graph, Val
from accelopt_compile.records import ITEM_BYTES

INIT = {
    ("sum", "f"): "0.0f",
    ("sum", "l"): "(int64_t)0",
    ("max", "f"): "-__builtin_inff()",
    ("min", "f"): "__builtin_inff()",
    ("max", "l"): "(int64_t)(-0x7fffffffffffffffL - 1)",
    ("min", "l"): "(int64_t)0x7fffffffffffffffL",
    ("any", "b"): "false",
}
COMBINE = {
    "sum": "{0} + {1}",
    "max": "maximum({0}, {1})",
    "min": "minimum({0}, {1})",
    "any": "either({0}, {1})",
}
FOLD = {"sum": "sum", "max": "largest", "min": "smallest", "any": "any"}

ON_STACK = 4096
"""Floats of a row's buffer at most that lie on the stack."""


@dataclass(frozen=True)
class Choices:
    """Structural choices that reach a nest: which values a row buffer keeps, how outputs are stored, and whether
    what is computed with a row's results waits for all rows."""

    keep: str = "heavy"
    stores: str = "cached"
    loads: str = "tiled"
    nests: str = "together"


def write_nest(graph: Graph, nest: Nest, number: int, choices: Choices, done: Mapping[Val, str], exports: set[Val]) -> NestText:
    """One nest, written."""
    shape = Shape()

    def run() -> NestText:
        while True:
            text = NestText(NestWriter(graph, nest, number, shape, done), choices, exports)
            try:
                text.write()
                return text
            except NeedsSegments as cut:
                if shape.merges or not set(cut.cuts) - shape.cuts:
                    raise Unsupported("a concatenation inside a merged loop") from None
                shape.cuts |= set(cut.cuts)

    text = run()
    while (pair := mergeable(text.w)) is not None and not (shape.cuts and nest.vector in pair):
        shape.merges.append(pair)
        text = run()
    if text.w.across and choices.loads == "tiled" and text.blocked:
        shape.tile = max(text.w.across, key=lambda atom: text.w.across[atom])
        text = run()
    if choices.keep != "none":
        shape.buffered = {
            key
            for key, passes in text.w.seen.items()
            if len(passes) > 1
            and graph.vals[key[0]].lane == "f"
            and (text.w.heavy[key] or choices.keep == "all")
            and (choices.keep != "all" or graph.vals[key[0]].kind != "input" or graph.vals[key[0]].dtype != "f32")
        }
        while shape.buffered:
            text = run()
            if text.w.loaded == shape.buffered:
                break
            shape.buffered = set(text.w.loaded)
    return text


def join(texts: Sequence[NestText], *, together: bool) -> list[str]:
    """The lines of all nests. `together`: what is computed with a row's results follows that row, which the caches still hold."""
    lines: list[str] = []
    at = 0
    while at < len(texts):
        text, following = texts[at], texts[at + 1] if at + 1 < len(texts) else None
        inside = following.inside(text) if together and following is not None else []
        elements = following.product([*following.w.par, *following.w.row]) if inside and following is not None else None
        lines += text.frame(inside, elements)
        at += 2 if inside else 1
    return lines


class NestText:
    """The text of one nest through one writer."""

    def __init__(self, writer: NestWriter, choices: Choices, exports: set[Val]) -> None:
        self.w, self.choices, self.exports = writer, choices, exports
        nest = self.nest = writer.nest
        self.levels = pass_levels(self.nest)
        self.blocked = not (
            self.nest.reductions
            or writer.shape.cuts
            or any(row_level(self.nest, r) for r in self.nest.roots)
            or any(scans_of(value) for value in [*(s.val for s in nest.stores), *(a.args[0] for a in nest.accumulations)])
        ) and bool(writer.row)
        if self.blocked:
            writer.par += writer.row[:-1]
            writer.row = writer.row[-1:]

    def write(self) -> None:
        """The text of a row, in `w.lines["row"]`."""
        nest = self.nest
        self.passes = 1 + max([*self.levels.values(), *(self.pass_of(r) for r in nest.roots)], default=0)
        for p in range(self.passes):
            self.write_pass(p)
        self.row_roots()

    def pass_of(self, root: Val | Store) -> int:
        return pass_of(self.nest, root, self.levels)

    # ------------------------------------------------------------ one pass

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
        scalar_accs = [a for a in accs if set(nest.row) <= reduced_atoms(a)]
        for red in [*reds, *scalar_accs]:
            self.declare(red)
        for low, high, segment in self.stretches():
            w.segment = segment
            w.scans = []
            for level in ("inner", "body"):
                w.lines[level], w.memo[level] = [], {}
            for red in [*reds, *scalar_accs]:
                self.reduce_step(red)
            for acc in accs:
                if acc not in scalar_accs:
                    self.column_step(acc)
            self.read_first(stores)
            for store in stores:
                self.store_vector(store)
            self.look_ahead(number)
            if w.shape.tile:
                self.tile_loops()
            else:
                self.sweep(low, high)
        for red in reds:
            self.finish(red)
        for acc in scalar_accs:
            self.add_partial(acc, Ex(self.folded(acc), acc.lane, "row"))

    def look_ahead(self, number: int) -> None:
        """Where a row takes several passes: memory is asked for the next row, and for the output's lines, in passes that
        only wait for arithmetic. (Softmax of 1024 rows of 1024, one thread: 1.5x. Where there is one pass, asking for the
        lines to write AHEAD elements before they are written makes ReLU 1.1x.)"""
        w = self.w
        if self.passes < 2 or len(w.row) != 1 or w.shape.cuts or w.shape.tile or w.graph.workload.aliases:
            return
        if number == 1:
            for pointer, step in w.streams.items():
                w.say("body", f"ahead<0>(b, {pointer} + {step} + k, u);")
        if number == self.passes - 2 and w.lines["body"]:
            for store in self.nest.stores:
                form = w.access(self.store_form(store))
                if row_level(self.nest, store) or self.pass_of(store) <= number or not form.coefficient(w.row[0]).is_one:
                    continue
                stored = STORED[w.graph.workload.output_specs[store.output].dtype]
                self.ask_to_write(store, w.pointer(f"out{store.output}", stored, form.without(w.row[0]), ""))

    def ask_to_write(self, store: Store, pointer: str, distance: str = "") -> None:
        cached = f"if (!({self.past(store)})) " if self.choices.stores == "streamed" else ""
        self.w.say("body", f"{cached}ahead<1>(b, {pointer} + k{distance}, u);")

    def write_heads(self, heads: list[Val]) -> None:
        """Where the first elements of the row lie (of its first stretch, where it has several dimensions)."""
        if not heads:
            return
        w = self.w
        _, high, w.segment = self.stretches()[0]
        w.say("row", f"const int64_t head{heads[0].id} = {high} < 64 ? {high} : 64;")
        for level in ("inner", "body"):
            w.lines[level], w.memo[level] = [], {}
        w.heads = True
        for red in heads:
            x = self.operand(red)
            w.say("row", f"float first{red.id}[64 + VEC] = {{}};")
            w.say("body", f"store(b, first{red.id} + k, {x.name if x.varying else f'all({x.name})'}, left);")
        w.heads = False
        self.sweep("0", f"head{heads[0].id}", first=True)
        for red in heads:
            w.say("row", f"const float red{red.id} = centre(first{red.id}, head{heads[0].id});")
            self.keep(red)

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

    def sweep(self, low: str, high: str, *, first: bool = False) -> None:
        w = self.w
        out = w.lines["row"]
        out += ["{"] if w.scans else []
        depth = 0
        for atom in w.row[:-1]:
            end = "1" if first else w.sizes[atom].c()
            out.append("  " * depth + f"for (int64_t {atom} = 0; {atom} < {end}; ++{atom}) {{")
            depth += 1
        pad = "  " * depth
        out += [pad + f"float {carry} = 0.0f;" for carry in dict.fromkeys(w.scans)]
        out += [pad + line for line in w.lines["inner"]]
        out.append(pad + f"sweep<UNROLL>({low}, {high}, [&](auto b, int64_t j, int64_t left) INLINED {{")
        out.append(pad + '  _Pragma("GCC unroll 16") for (int u = 0; u < b.N; ++u) {')
        out.append(pad + "    const int64_t k = j + u * VEC;")
        out += [pad + "    " + line for line in w.lines["body"]]
        out += [pad + "  }", pad + "});"]
        out += ["  " * d + "}" for d in reversed(range(depth))]
        out += ["}"] if w.scans else []

    def tile_loops(self) -> None:
        """Tiles of TILE x TILE, inside them VEC x VEC: transposed operands are turned once, then rows are written."""
        w = self.w
        u, size_u, size_v = str(w.shape.tile), w.sizes[str(w.shape.tile)].c(), w.sizes[w.row[-1]].c()
        w.sections.add("transpose")
        statements = [*w.lines["row"], *w.lines["inner"], *w.lines["body"]]
        out = [
            f"const int64_t u_end = ub * TILE + TILE < {size_u} ? ub * TILE + TILE : {size_u};",
            f"const int64_t v_end = vb * TILE + TILE < {size_v} ? vb * TILE + TILE : {size_v};",
            "for (int64_t u0 = ub * TILE; u0 < u_end; u0 += VEC)",
            "  for (int64_t k = vb * TILE; k < v_end; k += VEC) {",
            "    const int64_t us = u_end - u0 < VEC ? u_end - u0 : VEC, left = v_end - k < VEC ? v_end - k : VEC;",
        ]
        for n, (base, form) in enumerate(w.stages):
            rest = form.without(u).without(w.row[-1])
            stride = form.coefficient(w.row[-1]).c()
            out.append(f"    alignas(64) float tile{n}[VEC * VEC];")
            out.append(f"    transpose({base} + {rest.c()} + u0 + {stride}*k, {stride}, us, left, tile{n});")
        out.append("    auto line = [&](auto b, int64_t uu) INLINED {")
        out.append(f"      const int64_t {u} = u0 + uu;")
        out += ["      " + line for line in statements]
        out += [
            "    };",
            "    if (left == VEC) for (int64_t uu = 0; uu < us; ++uu) line(Block<1, false>(), uu);",
            "    else for (int64_t uu = 0; uu < us; ++uu) line(Block<1, true>(), uu);",
            "  }",
        ]
        w.lines["row"] = out

    # ------------------------------------------------------------ reductions

    def declare(self, red: Val) -> None:
        kind, lane, n = red.data[0], red.args[0].lane, red.id
        say = self.w.lines["row"].append
        if kind.startswith("arg"):
            self.w.sections.add("argext")
            say(f"vf best{n}[UNROLL]; vi at{n}[UNROLL];")
            start = "-__builtin_inff()" if kind == "argmax" else "__builtin_inff()"
            say(f"for (int u = 0; u < UNROLL; ++u) {{ best{n}[u] = all({start}); at{n}[u] = vi{{}} - 1; }}")
            return
        if (kind, lane) not in INIT:
            raise Unsupported(f"{kind} of this type")
        if self.tells_nan(red):
            say(f"vi top{n}[UNROLL] = {{}};")
        say(f"{VECTOR[lane]} acc{n}[UNROLL]; for (int u = 0; u < UNROLL; ++u) acc{n}[u] = all({INIT[kind, lane]});")

    def operand(self, red: Val) -> Ex:
        return self.w.value(red.args[0], canonical(red.args[0].dims, self.w.graph.sizes))

    def reduce_step(self, red: Val) -> None:
        kind, n, x = red.data[0], red.id, self.operand(red)
        name = x.name if x.varying else f"all({x.name})"
        say = self.w.lines["body"].append
        if kind.startswith("arg"):
            if len(self.w.row) > 1:
                raise Unsupported("an index over several dimensions")
            largest = "true" if kind == "argmax" else "false"
            start = "-__builtin_inff()" if kind == "argmax" else "__builtin_inff()"
            say(f"const vf y{n} = whole(b, {name}, left, {start});")
            first = f"((at{n}[u] < 0) & (y{n} == best{n}[u]))"
            say(f"const vi won{n} = whole(b, better<{largest}>(y{n}, best{n}[u]) | {first}, left, false);")
            say(f"best{n}[u] = where(won{n}, y{n}, best{n}[u]); at{n}[u] = where(won{n}, lane32() + (int)k, at{n}[u]);")
            return
        neutral = INIT[kind, red.args[0].lane]
        if kind in ("max", "min") and red.args[0].lane == "f":
            say(f"const vf y{n} = whole(b, {name}, left, {neutral});")
            say(f"acc{n}[u] = {'above' if kind == 'max' else 'below'}(y{n}, acc{n}[u]);")
            if self.tells_nan(red):
                say(f"top{n}[u] = top(y{n}, top{n}[u]);")
            return
        text = COMBINE[kind].format(f"acc{n}[u]", f"whole(b, {name}, left, {neutral})")
        say(f"acc{n}[u] = {text};")

    def folded(self, red: Val) -> str:
        kind, n = red.data[0], red.id
        if kind.startswith("arg"):
            return f"index_of<{'true' if kind == 'argmax' else 'false'}>(best{n}, at{n})"
        if kind == "sum":
            return f"sum(total(acc{n}))"
        if kind in ("max", "min") and red.args[0].lane == "f":
            folded = f"{'highest' if kind == 'max' else 'lowest'}(acc{n})"
            return f"unless_nan({folded}, top{n})" if self.tells_nan(red) else folded
        return f"{FOLD[kind]}(joined(acc{n}, [](auto x, auto y) {{ return {COMBINE[kind].format('x', 'y')}; }}))"

    def tells_nan(self, red: Val) -> bool:
        """Whether it is an extreme that is NaN where one of its operands is."""
        if red.data[0] not in ("max", "min") or red.args[0].lane != "f":
            return False
        return red not in self.nest.reductions or not told_by_a_sum(self.nest, red, self.exports)

    def finish(self, red: Val) -> None:
        say = self.w.lines["row"].append
        say(f"const {SCALAR[red.lane]} red{red.id} = {self.folded(red)};")
        self.keep(red)

    def keep(self, red: Val) -> None:
        """Where a later nest needs the row's result: write it down."""
        if red in self.exports:
            self.w.lines["row"].append(f"put_one(kept{red.id} + {self.flat_index(red)}, red{red.id});")

    def flat(self, red: Val) -> Affine:
        """Where a result lies among those of all rows."""
        return flattened(canonical(red.dims, self.w.graph.sizes), red.shape)

    def flat_index(self, red: Val) -> str:
        return self.w.access(self.flat(red)).c()

    # ------------------------------------------------------------ accumulations

    def add_partial(self, acc: Val, x: Ex) -> None:
        kind = acc.data[0]
        if any(acc.dims):
            slot = f"part{acc.id}[slice * {self.kept_size(acc).c()} + {self.flat_index(acc)}]"
        else:
            slot = f"part{acc.id}[slice * 8]"
        self.w.lines["row"].append(f"{slot} = {COMBINE[kind].format(slot, self.partial_cast(acc, x.name))};")

    def partial_type(self, acc: Val) -> str:
        if acc.lane == "f":
            return "double" if acc.data[0] == "sum" and not any(acc.dims) else "float"
        return SCALAR[acc.lane]

    def partial_cast(self, acc: Val, text: str) -> str:
        return f"({self.partial_type(acc)})({text})"

    def kept_size(self, acc: Val) -> Mono:
        size = ONE
        for s in acc.shape:
            size = size * s
        return size

    def column_step(self, acc: Val) -> None:
        if acc.lane != "f":
            raise Unsupported("an integer reduction across rows")
        w = self.w
        x = self.operand(acc)
        form = w.access(self.flat(acc))
        if not form.coefficient(w.vector or "").is_one:
            raise Unsupported("a column reduction that is not contiguous")
        pointer = w.pointer(f"(part{acc.id} + slice * {self.kept_size(acc).c()})", "float", form.without(w.vector or ""), "")
        name = x.name if x.varying else f"all({x.name})"
        text = COMBINE[acc.data[0]].format(f"load(b, {pointer} + k, left)", name)
        w.say("body", f"store(b, {pointer} + k, {text}, left);")

    # ------------------------------------------------------------ stores

    def store_form(self, store: Store) -> Affine:
        spec = self.w.graph.workload.output_specs[store.output]
        form = Affine()
        for d, (i, stride) in enumerate(zip(canonical(store.val.dims, self.w.graph.sizes), spec.strides, strict=True)):
            if d == store.dim and store.offset:
                i = i + Affine({}, store.offset)
            form = form + i.scaled(mono(stride))
        return form

    def read_first(self, stores: list[Store]) -> None:
        """Where outputs lie over inputs, name every value before the first store: its inputs are read by then."""
        if self.w.graph.workload.aliases:
            for store in stores:
                self.w.value(store.val, canonical(store.val.dims, self.w.graph.sizes))

    def store_vector(self, store: Store) -> None:
        w = self.w
        spec = w.graph.workload.output_specs[store.output]
        plain = self.choices.stores == "cached" and not w.graph.workload.aliases
        source = w.plain_copy(store.val, spec.dtype) if plain else None
        x = Ex("", "", "body") if source else w.value(store.val, canonical(store.val.dims, w.graph.sizes))
        form = w.access(self.store_form(store))
        m = form.coefficient(w.vector or "")
        pointer = w.pointer(f"out{store.output}", STORED[spec.dtype], form.without(w.vector or ""), "")
        name = x.name if x.varying else f"all({x.name})"
        if source and not m.is_one:
            name = w.value(store.val, canonical(store.val.dims, w.graph.sizes)).name
        if m.is_one and source:
            w.say("body", f"copy(b, {pointer} + k, {source}, left);")
        elif m.is_one:
            if self.choices.stores == "streamed":
                w.say("body", f"stream(b, {pointer} + k, {name}, left, {self.past(store)});")
            else:
                w.say("body", f"store(b, {pointer} + k, {name}, left);")
        else:
            w.say("body", f"scatter(b, {pointer} + {m.c()}*k, {m.c()}, {name}, left);")
        if m.is_one and self.passes < 2 and not (w.shape.tile or w.graph.workload.aliases):
            self.ask_to_write(store, pointer, " + AHEAD")

    def past(self, store: Store) -> str:
        """Whether a streamed output is too large to be read from the caches, as C++."""
        spec = self.w.graph.workload.output_specs[store.output]
        size = ONE
        for s in spec.shape:
            size = size * mono(s)
        return f"{size.c()} * {ITEM_BYTES[spec.dtype]} > STREAM_BYTES"

    def row_roots(self) -> None:
        w, nest = self.w, self.nest
        w.segment = None
        self.read_first([store for store in nest.stores if row_level(nest, store) or not nest.row])
        for store in nest.stores:
            if row_level(nest, store) or not nest.row:
                x = w.value(store.val, canonical(store.val.dims, w.graph.sizes))
                form = w.access(self.store_form(store))
                w.say("row", f"put_one(out{store.output} + {form.c()}, {x.name});")
        for acc in nest.accumulations:
            if row_level(nest, acc) or not nest.row:
                self.add_partial(acc, self.operand(acc))

    # ------------------------------------------------------------ the frame around rows

    def frame(self, inside: Sequence[str] = (), elements: Mono | None = None) -> list[str]:
        """The whole nest. `inside`: what follows on each of its rows, as `inside` of the next nest gives it; `elements`: how many
        elements that computes for all rows."""
        w = self.w
        count, length = self.product(w.par), self.product(w.row)
        out = [f"// nest {w.number + 1}: {count.c()} rows of {length.c()}" + (", in blocks" if self.blocked else ""), "{"]
        vector = w.sizes[w.row[-1]] if w.row else ONE
        if w.shape.tile:
            size_u = w.sizes[w.shape.tile].c()
            out.append(f"  const int64_t nu = ({size_u} + TILE - 1) / TILE, nv = ({vector.c()} + TILE - 1) / TILE;")
            others = " * ".join(f"({w.sizes[a].c()})" for a in w.par if a != w.shape.tile) or "1"
            out.append(f"  const int64_t items = {others} * nu * nv;")
            out.append("  const int64_t n = slices(threads, items, 1 + GRAIN / (TILE * TILE));")
        elif self.blocked:
            out.append(f"  {self.blocks()}")
            out.append(f"  const int64_t items = ({count.c()}) * blocks;")
            out.append(
                f"  const int64_t n = slices(threads, items, 1 + GRAIN / ({vector.c()} < BLOCK ? 1 + {vector.c()} : BLOCK));"
            )
        else:
            out.append(f"  const int64_t items = {count.c()};")
            each = length.c() if elements is None else f"{length.c()} + {elements.c()} / (1 + items)"
            out.append(f"  const int64_t n = slices(threads, items, 1 + GRAIN / (1 + {each}));")
        out += self.partials()
        out.append("  parallel(n, items, [&](int64_t begin, int64_t end, int64_t slice) {")
        for key in sorted(w.shape.buffered, key=lambda k: (k[0], str(k[1]))):
            name = w.buffer(key)
            if not length.symbols and length.coef <= ON_STACK:
                out.append(f"    alignas(64) float {name}[{length.coef} + VEC];")  # which the compiler may keep in registers
            else:
                out.append(f"    Scratch<float> {name}_({length.c()} + VEC); float* const {name} = {name}_.data;")
        out.append("    for (int64_t r = begin; r < end; ++r) {")
        out += ["      " + line for line in [*self.decode(), *w.lines["row"], *inside]]
        out += ["    }", "  });"]
        out += ["  " + line for line in self.combine()]
        out.append("}")
        hoisted = [*self.kept_arrays(), *self.results()]
        return hoisted + out

    def blocks(self) -> str:
        return f"const int64_t blocks = ({self.w.sizes[self.w.row[-1]].c()} + BLOCK - 1) / BLOCK;"

    def product(self, atoms: Iterable[str]) -> Mono:
        size = ONE
        for atom in atoms:
            size = size * self.w.sizes[atom]
        return size

    def row_number(self, par: Sequence[str]) -> Affine:
        """Which row it is, counted in the order of these loops."""
        return flattened([Affine({atom: ONE}) for atom in par], [self.w.sizes[atom] for atom in par])

    def inside(self, outer: NestText) -> list[str]:
        """This nest's rows that read results of one row `r` of `outer` alone, as lines that follow that row. Empty where this
        nest has to wait for all of `outer`: where the two differ in their outer loops, a result is read by another row, or
        outputs lie over inputs."""
        w, rows = self.w, outer.product(outer.w.par)
        if not self.blocked or outer.blocked or w.shape.tile or w.graph.workload.aliases or rows.is_one:
            return []
        if self.nest.accumulations or outer.nest.accumulations:
            return []
        leading = next((n for n in range(len(w.par) + 1) if self.product(w.par[:n]) == rows), 0)
        read = [(value, form) for value, form in w.kept if value in outer.nest.reductions]
        if not (leading and read) or any(form != self.row_number(w.par[:leading]) for _, form in read):
            return []
        if any(outer.w.merge(outer.flat(value)) != outer.row_number(outer.w.par) for value, _ in read):
            return []
        each = f"({self.product(w.par[leading:]).c()}) * blocks"
        rows_text = ["    " + line for line in [*self.decode(), *w.lines["row"]]]
        return [
            f"// nest {w.number + 1}: the rows that belong to this one",
            "{",
            f"  {self.blocks()}",
            f"  for (int64_t next = r * ({each}); next < (r + 1) * ({each}); ++next) {{",
            "    const int64_t r = next;",
            *rows_text,
            "  }",
            "}",
        ]

    def decode(self) -> list[str]:
        w = self.w
        out = []
        row, par = "r", w.par
        if w.shape.tile:
            out += ["const int64_t vb = r % nv;", "const int64_t ub = r / nv % nu;"]
            row, par = "(r / nv / nu)", [a for a in w.par if a != w.shape.tile]
        elif self.blocked:
            out.append("const int64_t j0 = (r % blocks) * BLOCK;")
            row = "(r / blocks)"
        for position, atom in enumerate(reversed(par)):
            last = position == len(par) - 1
            out.append(f"const int64_t {atom} = {row};" if last else f"const int64_t {atom} = {row} % ({w.sizes[atom].c()});")
            row = f"{row} / ({w.sizes[atom].c()})"
        used = "\n".join(w.lines["row"])
        return [line for line in out if line.split()[2] in ("j0", "ub", "vb") or line.split()[2] in used]

    def partials(self) -> list[str]:
        out = []
        for acc in self.nest.accumulations:
            size = f"n * ({self.kept_size(acc).c()})" if any(acc.dims) else "n * 8"
            kind = self.partial_type(acc)
            init = INIT[acc.data[0], acc.lane]
            out.append(f"  Scratch<{kind}> part{acc.id}_({size}); {kind}* const part{acc.id} = part{acc.id}_.data;")
            out.append(f"  for (int64_t i = 0; i < {size}; ++i) part{acc.id}[i] = {init};")
        return out

    def kept_arrays(self) -> list[str]:
        out = []
        for val in [*self.nest.reductions, *self.nest.accumulations]:
            if val in self.exports and (any(val.dims) or val in self.nest.reductions):
                kind = SCALAR_STORED[val.lane]
                size = self.kept_size(val).c()
                out.append(f"Scratch<{kind}> kept{val.id}_({size}); {kind}* const kept{val.id} = kept{val.id}_.data;")
        return out

    def results(self) -> list[str]:
        return [f"{SCALAR[a.lane]} red{a.id};" for a in self.nest.accumulations if not any(a.dims)]

    def combine(self) -> list[str]:
        """Slices are joined in their order, so that the result depends on the number of threads only."""
        out = []
        for acc in self.nest.accumulations:
            n, kind = acc.id, acc.data[0]
            if any(acc.dims):
                size = self.kept_size(acc).c()
                join = COMBINE[kind].format("v", f"part{n}[s * ({size}) + i]")
                out.append(
                    f"for (int64_t i = 0; i < {size}; ++i) {{ float v = part{n}[i]; "
                    f"for (int64_t s = 1; s < n; ++s) v = {join}; kept{n}[i] = v; }}"
                )
            else:
                join = COMBINE[kind].format(f"part{n}[0]", f"part{n}[s * 8]")
                out.append(f"for (int64_t s = 1; s < n; ++s) part{n}[0] = {join};")
                out.append(f"red{n} = ({SCALAR[acc.lane]})part{n}[0];")
        return out


__all__ = ["Choices", "NestText", "join", "write_nest"]
