"""What a nest folds: a reduction to one result a row, an accumulation to one of all rows.

A reduction is declared before its pass, takes a step in it for each vector, and is finished after it. An accumulation has a part
for each slice of the rows; the parts are joined when all rows are done.
"""

from __future__ import annotations

from accelopt_backends.cpp.emit import SCALAR_STORED, NestWriter
from accelopt_backends.cpp.expressions import SCALAR, VECTOR
from accelopt_backends.cpp.lines import Ex
from accelopt_backends.loops.affine import ONE, Affine, Mono, Unsupported
from accelopt_backends.loops.nans import told_by_a_sum
from accelopt_backends.loops.nests import reduced_atoms
from accelopt_backends.loops.passes import row_level
from accelopt_backends.loops.pull import canonical, flattened
from accelopt_backends.loops.values import Val

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


CHAIN = 512
"""Terms of a sum in float32 that are added one after another before they are put aside: of equal ones 65536 were 6e-4 off."""

LONG_ROW = 1 << 16
"""Elements of a row whose sums are put aside in between: with 64 running sums that is 1024 terms each."""

MOST_SLICES = "slices(threads, threads, 1)"
"""How many slices of work there are at most, whatever the items."""


class Folds:
    """The reductions and accumulations of one nest, through its writer. `exports` are the results that later nests read;
    `blocked` says that a row is cut into blocks."""

    def __init__(self, writer: NestWriter, exports: set[Val], *, blocked: bool) -> None:
        self.w, self.nest, self.exports, self.blocked = writer, writer.nest, exports, blocked

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
        if self.chained(red):
            say(f"vf far{n}[UNROLL] = {{}};")
        say(f"{VECTOR[lane]} acc{n}[UNROLL]; for (int u = 0; u < UNROLL; ++u) acc{n}[u] = all({INIT[kind, lane]});")

    def chained(self, red: Val) -> bool:
        """Whether a row's sum may have more terms than one chain should."""
        length = self.w.product(self.w.row).static
        long = length is None or length > LONG_ROW
        return red.data[0] == "sum" and red.args[0].lane == "f" and long and not self.blocked

    def spill(self, red: Val) -> str:
        """Put a row's sums aside."""
        n = red.id
        return f"for (int u = 0; u < UNROLL; ++u) {{ far{n}[u] += acc{n}[u]; acc{n}[u] = vf{{}}; }}"

    def operand(self, red: Val) -> Ex:
        return self.w.value(red.args[0], canonical(red.args[0].dims, self.w.graph.sizes))

    def step(self, red: Val) -> None:
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
            return f"sum(total({'far' if self.chained(red) else 'acc'}{n}))"
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

    # ------------------------------------------------------------ around all rows

    def partials(self) -> list[str]:
        out = []
        for acc in self.nest.accumulations:
            init = INIT[acc.data[0], acc.lane]
            size = f"n * ({self.partial_size(acc)})"
            out += [f"  for (int64_t i = 0; i < {size}; ++i) {name}[i] = {init};" for name in self.names(acc)]
        return out

    def names(self, acc: Val) -> list[str]:
        """The arrays of a slice's partial results: sums of many terms in float32 are put aside in a second one."""
        return [f"part{acc.id}", *([f"far{acc.id}"] if self.every(acc) else [])]

    def every(self, acc: Val) -> str:
        """After how many rows each element of a partial result has had `CHAIN` terms; "" where it never has so many."""
        if acc.data[0] != "sum" or acc.lane != "f" or not any(acc.dims) or self.w.shape.tile:
            return ""
        one_each = row_level(self.nest, acc) or set(self.nest.row) <= reduced_atoms(acc)
        rows, row, size = self.w.product(self.w.par), ONE if one_each else self.w.product(self.w.row), self.kept_size(acc)
        terms = (rows * row).static
        if not self.blocked and terms is not None and size.static is not None and terms <= CHAIN * size.static:
            return ""
        touched = f"({row.c()})"
        if self.blocked and not one_each:
            touched = f"({touched} < BLOCK ? {touched} : BLOCK)"
        return f"{CHAIN} * (1 + ({size.c()} - 1) / {touched})"

    def put_aside(self) -> list[str]:
        """At the end of a row."""
        out = []
        for acc in self.nest.accumulations:
            if every := self.every(acc):
                n, size = acc.id, self.kept_size(acc).c()
                out.append(f"if ((r - begin + 1) % ({every}) == 0) for (int64_t i = 0; i < {size}; ++i) {{")
                out.append(f"  float &near = part{n}[slice * ({size}) + i], &away = far{n}[slice * ({size}) + i];")
                out.append("  away += near; near = 0.0f;")
                out.append("}")
        return out

    def partial_size(self, acc: Val) -> str:
        """Elements of one slice's partial results."""
        return self.kept_size(acc).c() if any(acc.dims) else "8"

    def partial_arrays(self) -> list[tuple[str, str, str]]:
        return [
            (self.partial_type(a), name, f"{MOST_SLICES} * ({self.partial_size(a)})")
            for a in self.nest.accumulations
            for name in self.names(a)
        ]

    def kept_arrays(self) -> list[tuple[str, str, str]]:
        out = []
        for val in [*self.nest.reductions, *self.nest.accumulations]:
            if val in self.exports and (any(val.dims) or val in self.nest.reductions):
                out.append((SCALAR_STORED[val.lane], f"kept{val.id}", self.kept_size(val).c()))
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
                one, other = (" + ".join(f"{name}[{at}]" for name in self.names(acc)) for at in ("i", f"s * ({size}) + i"))
                join = COMBINE[kind].format("v", f"({other})" if len(self.names(acc)) > 1 else other)
                out.append(
                    f"for (int64_t i = 0; i < {size}; ++i) {{ {SCALAR[acc.lane]} v = {one}; "
                    f"for (int64_t s = 1; s < n; ++s) v = {join}; kept{n}[i] = v; }}"
                )
            else:
                join = COMBINE[kind].format(f"part{n}[0]", f"part{n}[s * 8]")
                out.append(f"for (int64_t s = 1; s < n; ++s) part{n}[0] = {join};")
                out.append(f"red{n} = ({SCALAR[acc.lane]})part{n}[0];")
        return out
