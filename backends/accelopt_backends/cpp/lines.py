"""The lines of one loop nest, by the level that they live at: names, definitions, and what is read from memory.

A level is row, inner (inside the outer row atoms) or body (per vector): a line stands at the innermost one that it depends on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from accelopt_backends.cpp.expressions import SCALAR, VECTOR
from accelopt_backends.loops.affine import ONE, Affine, Mono
from accelopt_backends.loops.nests import Nest
from accelopt_backends.loops.pull import Index, canonical
from accelopt_backends.loops.values import Graph

Key = tuple[int, Index]
LEVELS = ("row", "inner", "body")


@dataclass(frozen=True)
class Ex:
    """A named value in the text: its lane, the level it lives at, and whether computing it is heavy."""

    name: str
    lane: str
    level: str
    heavy: bool = False

    @property
    def varying(self) -> bool:
        return self.level == "body"


@dataclass
class Shape:
    """What the dry run learned: loops merged into one, where the sweep is cut, values kept in a row buffer."""

    merges: list[tuple[str, str]] = field(default_factory=list)
    cuts: set[int] = field(default_factory=set)
    buffered: set[Key] = field(default_factory=set)
    tile: str | None = None


class Lines:
    """The lines of one nest, with its loops merged as `shape` says. `accesses` records what the dry run needs."""

    def __init__(self, graph: Graph, nest: Nest, shape: Shape) -> None:
        self.graph, self.nest, self.shape = graph, nest, shape
        self.sizes = dict(graph.sizes)
        self.par, self.row = list(nest.par), list(nest.row)
        for outer, inner in shape.merges:
            self.sizes[inner] = self.sizes[outer] * self.sizes[inner]
            (self.par if outer in self.par else self.row).remove(outer)
            if not self.row and self.par and self.par[-1] == inner:
                self.row = [self.par.pop()]
        self.vector = self.row[-1] if self.row else None
        self.sections: set[str] = set()
        self.accesses: list[Affine] = []
        self.lines: dict[str, list[str]] = {level: [] for level in LEVELS}
        self.memo: dict[str, dict[object, Ex]] = {level: {} for level in LEVELS}
        self.scope: dict[str, str] = {}
        self.names = 0
        self.pass_number = 0
        self.heads = False
        self.touched: dict[str, int] = {}
        self.across: dict[str, int] = {}
        self.stages: list[tuple[str, Affine]] = []
        self.streams: list[tuple[str, str, Affine]] = []
        """What moves through inputs from row to row: an input, its type, and where in it a row's vectors begin."""

    def product(self, atoms: Iterable[str]) -> Mono:
        """How many turns these loops take together."""
        size = ONE
        for atom in atoms:
            size = size * self.sizes[atom]
        return size

    # ------------------------------------------------------------ names, levels

    def fresh(self, prefix: str = "t") -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def merge(self, form: Affine) -> Affine:
        """`form` with merged loops; the outer one's term is implied by the inner one's."""
        if self.shape.merges:
            gone = {outer for outer, _ in self.shape.merges}
            form = Affine({a: m for a, m in form.terms.items() if a not in gone}, form.const)
        return form

    def level(self, form: Affine) -> str:
        level = "row"
        for atom in form.terms:
            at = self.scope.get(atom, "body" if atom == self.vector else "inner" if atom in self.row else "row")
            level = max(level, at, key=LEVELS.index)
        return level

    def access(self, form: Affine) -> Affine:
        self.accesses.append(form)
        return self.merge(form)

    def say(self, level: str, line: str) -> None:
        self.lines[level].append(line)

    def define(self, level: str, lane: str, text: str, heavy: bool = False) -> Ex:
        name = self.fresh()
        kind = VECTOR[lane] if level == "body" else SCALAR[lane]
        self.say(level, f"const {kind} {name} = {text};")
        return Ex(name, lane, level, heavy)

    def row_position(self) -> str:
        return self.at(canonical([self.row], self.sizes)[0])

    def at(self, form: Affine) -> str:
        """Text of an index inside the body, where the vector atom's value is `k`."""
        if self.vector is not None and self.vector in form.terms:
            m = form.terms[self.vector]
            rest = form.without(self.vector)
            tail = "" if not rest.terms and not rest.const else f" + {rest.c()}"
            return ("k" if m.is_one else f"{m.c()}*k") + tail
        return form.c()

    # ------------------------------------------------------------ memory

    def load(self, base: str, stored: str, form: Affine, lane: str) -> Ex:
        form = self.access(form)
        level = self.level(form)
        if level != "body":
            return self.define(level, lane, f"one({base} + {form.c()})")
        dynamic = [a for a in form.terms if self.scope.get(a) == "body"]
        if dynamic:
            return self._gathered(base, form, lane)
        m = form.coefficient(self.vector or "")
        rest = form.without(self.vector or "")
        pointer = self.pointer(base, stored, rest)
        if m.is_one:
            ahead = rest.terms or self.graph.workload.aliases  # several rows, or several streams
            how = "fetch" if base.startswith("in") and ahead and self.first_touch(base) else "load"
            if how == "fetch" and self.par and rest.coefficient(self.par[-1]).coef and {*rest.terms} <= {*self.par, *self.row}:
                self.streams.append((base, stored, rest))
            return self.define("body", lane, f"{how}(b, {pointer} + k, left)")
        if self.shape.tile and lane == "f" and form.coefficient(self.shape.tile).is_one:
            self.stages.append((base, form))
            return self.define("body", lane, f"full(tile{len(self.stages) - 1} + uu * VEC)")
        for atom in self.par:
            if form.coefficient(atom).is_one and lane == "f":
                self.across[atom] = self.across.get(atom, 0) + 1
        return self.define("body", lane, f"strided(b, {pointer} + {m.c()}*k, {m.c()}, left)")

    def first_touch(self, base: str) -> bool:
        """Whether this pass is the first that reads `base`: only that one asks for what comes next."""
        return not self.heads and self.touched.setdefault(base, self.pass_number) == self.pass_number

    def _gathered(self, base: str, form: Affine, lane: str) -> Ex:
        parts = []
        for atom, m in sorted(form.terms.items()):
            if self.scope.get(atom) == "body":
                parts.append(f"{atom} * all((int64_t)({m.c()}))")
            elif atom == self.vector:
                parts.append(f"(lane64() + k) * all((int64_t)({m.c()}))")
            else:
                parts.append(f"all((int64_t)({m.c()}*{atom}))")
        parts.append(f"all((int64_t){form.const})")
        return self.define("body", lane, f"gather(b, {base}, {' + '.join(parts)}, left)", True)

    def pointer(self, base: str, stored: str, rest: Affine, const: str = "const ") -> str:
        level = self.level(rest)
        key = ("pointer", base, rest, const)
        if key in self.memo[level]:
            return self.memo[level][key].name
        name = self.fresh("p")
        self.say(level, f"{const}{stored}* {name} = {base} + {rest.c()};")
        self.memo[level][key] = Ex(name, "l", level)
        return name
