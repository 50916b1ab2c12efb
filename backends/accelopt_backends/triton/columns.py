"""Column kernels: reductions across rows, split among programs and joined in a second launch, in a fixed order.

No atomics: two runs are equal bit by bit. Reductions over the same loops share a launch, and what they read.
"""

from __future__ import annotations

from collections.abc import Sequence

from accelopt_backends.loops.affine import Mono, Unsupported
from accelopt_backends.loops.nests import Nest, reduced_atoms, scan_atom
from accelopt_backends.loops.passes import mergeable
from accelopt_backends.loops.pull import canonical
from accelopt_backends.loops.values import Graph, Val
from accelopt_backends.triton.emit import COLUMNS, KEPT, ROWS, Ex
from accelopt_backends.triton.expressions import ELEMENT, LANE
from accelopt_backends.triton.tiles import NEUTRAL, KernelText, RowWriter, choices, decoded, joined, next_power, powers, product

POINTER = {"f": "fp32", "l": "i64", "b": "i32"}


def groups(nest: Nest) -> list[list[Val]]:
    """The nest's reductions across rows, those over the same loops together."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Val]] = {}
    for acc in nest.accumulations:
        kept = tuple(a for d in acc.dims for a in d)
        found.setdefault((kept, tuple(sorted(reduced_atoms(acc)))), []).append(acc)
    return list(found.values())


HELD = 4096
"""Elements at most along which a sum runs that is then reduced across rows."""


class ColumnKernel:
    """One group: the launch that makes partial results, and the launches that join them."""

    def __init__(self, graph: Graph, nest: Nest, group: Sequence[Val], name: str, done: frozenset[Val]) -> None:
        self.graph, self.group, self.name, self.done = graph, list(group), name, done
        first = group[0]
        reduced = reduced_atoms(first)
        operand = [a for d in first.args[0].dims for a in d]
        self.kept_atoms = [a for a in operand if a not in reduced]
        self.reduced_atoms = [a for a in operand if a in reduced]
        self.along = 0 if nest.vector in reduced or not self.kept_atoms else 1
        """The axis of what is kept: the columns where memory runs along it."""
        self.walked = scan_atom([acc.args[0] for acc in group]) or ""
        if self.walked in reduced:
            raise Unsupported("a running sum that is reduced with other rows")
        if self.walked:
            self.along = 1
        last = self.walked or nest.vector
        for atoms in (self.kept_atoms, self.reduced_atoms):
            if last in atoms:
                atoms.sort(key=lambda a: a == last)
        rows, columns = (self.reduced_atoms, self.kept_atoms) if self.along else (self.kept_atoms, self.reduced_atoms)
        self.nest = Nest(rows, columns[-1:] if self.walked else columns, reductions=list(group))
        self.merges: list[tuple[str, str]] = []

    def texts(self) -> list[KernelText]:
        partial, writer = self._written()
        while (pair := mergeable(writer)) is not None:
            self.merges.append(pair)
            partial, writer = self._written()
        return [partial, *(self._join(acc) for acc in self.group)]

    def _written(self) -> tuple[KernelText, RowWriter]:
        w = self.w = RowWriter(self.graph, self.nest, self.merges, self.done)
        w.loop_axis = 1 - self.along
        w.holds_rows = bool(self.walked)
        w.scope = {**dict.fromkeys(w.par, ROWS), **dict.fromkeys(w.row, COLUMNS)}
        w.masks = {0: "mr", 1: "mk"}
        kept, reduced = (w.row, w.par) if self.along else (w.par, w.row)
        others = self.kept_atoms[:-1] if self.walked else []
        kept_size, reduced_size = product([w.sizes[a] for a in [*others, *kept]]), product([w.sizes[a] for a in reduced])
        steps, before, after = [], [], []
        for acc in self.group:
            before_, step, after_ = self._one(acc, kept_size.c())
            before.append(before_)
            steps.append(step)
            after += after_
        suffix = self.name.removeprefix("columns")
        kept_name, reduced_name, reduced_block = ("k", "r", "ROWS") if self.along else ("r", "k", "BLOCK")
        reduced_shape, reduced_mask = ("[:, None]", "mr") if self.along else ("[None, :]", "mk")
        tiles, positions = self._positions(kept_size, suffix)
        head = [
            "pid = tl.program_id(0)",
            *positions,
            "part = (pid // tiles).to(tl.int64)",
            f"share = tl.cdiv({reduced_size.c()}, SPLIT)",
            "begin = part * share",
            f"end = tl.minimum(begin + share, {reduced_size.c()})",
        ]
        decoded = w.decoded(kept, kept_name)
        loop = [
            f"for start in range(begin, end, {reduced_block}):",
            f"    {reduced_name} = (start + tl.arange(0, {reduced_block})){reduced_shape}",
            f"    {reduced_mask} = {reduced_name} < end",
            *("    " + line for line in [*w.decoded(reduced, reduced_name), *w.inner, *steps]),
        ]
        text = [*head, *decoded, *w.outer, *before, *loop, *after]
        tunables = self._tunables(kept_size, reduced_size, suffix)
        used = {*w.used, *(f"part{a.id}" for a in self.group), *kept_size.symbols, *reduced_size.symbols}
        used |= {s for a in (*w.par, *w.row) for s in w.sizes[a].symbols}
        constants = {name: f"{name}{suffix}" for name in ("ROWS", "BLOCK", "SPLIT")}
        if self.walked:
            constants["BLOCK"] = str(self._held())
        grid = f"{tiles} * SPLIT{suffix}"
        kept_memory = [(f"part{a.id}", POINTER[a.lane], f"SPLIT{suffix} * ({kept_size.c()})") for a in self.group]
        comment = f"sums over {reduced_size.c()} for each of {kept_size.c()}, in SPLIT parts"
        options = {"num_warps": f"WARPS{suffix}"}
        return KernelText(self.name, text, used, grid, tunables, constants, options, kept_memory, comment), w

    def _positions(self, kept: Mono, suffix: str) -> tuple[str, list[str]]:
        """How many tiles there are of what is kept, for the grid; and the lines that find a program's positions in it."""
        w = self.w
        if self.walked:  # a program holds the whole of what runs, at one place of all else
            others = self.kept_atoms[:-1]
            tiles = product([w.sizes[a] for a in others]).c()
            whole = ["k = tl.arange(0, BLOCK)[None, :]", f"mk = k < {w.sizes[self.walked].c()}"]
            return tiles, [f"tiles = {tiles}", *whole, *w.decoded(others, "(pid % tiles).to(tl.int64)")]
        name, block, shape, mask = ("k", "BLOCK", "[None, :]", "mk") if self.along else ("r", "ROWS", "[:, None]", "mr")
        return f"triton.cdiv({kept.c()}, {block}{suffix})", [
            f"tiles = tl.cdiv({kept.c()}, {block})",
            f"{name} = ((pid % tiles).to(tl.int64) * {block} + tl.arange(0, {block})){shape}",
            f"{mask} = {name} < {kept.c()}",
        ]

    def _tunables(self, kept: Mono, reduced: Mono, suffix: str) -> dict[str, tuple[int, ...]]:
        columns, rows = (kept, reduced) if self.along else (reduced, kept)
        widest = 1024 if columns.static is None else min(1024, next_power(columns.static))
        deepest = 64 if rows.static is None else min(64, next_power(rows.static))
        if self.walked:
            deepest = max(1, min(deepest, 8192 // self._held()))
        block = {} if self.walked else {f"BLOCK{suffix}": choices(256, powers(min(16, widest), widest))}
        return block | {
            f"ROWS{suffix}": choices(16 if self.along and not self.walked else 4, powers(1, deepest)),
            f"SPLIT{suffix}": choices(64, powers(1, max(1, min(256, (reduced.static or 1 << 20) // 16)))),
            f"WARPS{suffix}": (4, 8, 2),
        }

    def _one(self, acc: Val, kept: str) -> tuple[str, str, list[str]]:
        """(accumulator, step in the loop, what stores it) of one reduction."""
        w, n = self.w, acc.id
        kind, lane = str(acc.data[0]), acc.args[0].lane
        if (kind, lane) not in NEUTRAL:
            raise Unsupported(f"{kind} of this type across rows")
        x = w.value(acc.args[0])
        neutral = NEUTRAL[kind, lane]
        tile = f"tl.where(mr & mk, {x.name}, {neutral})"
        flag = kind == "any"
        start = f"acc{n} = tl.full((ROWS, BLOCK), {'0' if flag else neutral}, {'tl.int32' if flag else LANE[lane]})"
        step = f"acc{n} = {joined(kind, lane, f'acc{n}', tile)}"
        axis = 1 - self.along
        total = self._folded(kind, lane, f"acc{n}", axis)
        place, mask = ("k", "mk") if self.along else ("r", "mr")
        if self.walked:
            place = f"(pid % tiles).to(tl.int64) * ({w.sizes[self.walked].c()}) + k"
        element = ELEMENT[KEPT[acc.lane]]
        store = f"tl.store(part{n} + part * ({kept}) + {place}, ({total}).to({element}), mask={mask})"
        return start, step, [store]

    def _held(self) -> int:
        """Elements of a tile's row, where a program holds all that runs."""
        size = self.graph.sizes[self.walked].static
        if size is None or size > HELD:
            raise Unsupported("a running sum along so many, reduced across rows")
        return next_power(size)

    def _folded(self, kind: str, lane: str, acc: str, axis: int) -> str:
        if kind == "sum":
            return f"tl.sum({acc}, axis={axis}, keep_dims=True)"
        if lane == "f":
            return f"{'top' if kind == 'max' else 'bottom'}({acc}, {axis})"
        return f"tl.{'max' if kind == 'any' else kind}({acc}, axis={axis}, keep_dims=True)"

    # ------------------------------------------------------------ joining

    def _join(self, acc: Val) -> KernelText:
        """The parts of one reduction, one after another, into `kept`, in the order of the reduction's own dimensions."""
        n = acc.id
        kind, lane = str(acc.data[0]), acc.args[0].lane
        kept = product(acc.shape).c()
        element = ELEMENT[KEPT[acc.lane]]
        typed = lane if kind != "any" else "l"
        neutral = "0" if kind == "any" else NEUTRAL[kind, lane]
        where = self._place_in_part(acc)
        lines = [
            "i = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))",
            f"m = i < {kept}",
            *where,
            f"total = tl.full((BLOCK,), {neutral}, {element})",
            "for part in range(0, SPLIT):",
            f"    x = tl.load(part{n} + part * ({kept}) + j, mask=m, other=0)",
            f"    total = {joined('max' if kind == 'any' else kind, typed, 'total', 'x')}",
            f"tl.store(kept{n} + i, total, mask=m)",
        ]
        suffix = self.name.removeprefix("columns")
        symbols = {s for size in acc.shape for s in size.symbols}
        used = {f"part{n}", f"kept{n}", *symbols, *(s for a in self.kept_atoms for s in self.graph.sizes[a].symbols)}
        return KernelText(
            f"join{n}", lines, used, f"triton.cdiv({kept}, 256)", {}, {"BLOCK": "256", "SPLIT": f"SPLIT{suffix}"},
            {"num_warps": "4"}, [(f"kept{n}", POINTER[acc.lane], kept)], "the parts joined in their order",
        )  # fmt: skip

    def _place_in_part(self, acc: Val) -> list[str]:
        """`j`, where element `i` of the result lies in a part: parts run over the kept atoms in the kernel's own order."""
        own = [a for d in acc.dims for a in d]
        if own == self.kept_atoms:
            return ["j = i"]
        lines = decoded(own, "i", self.graph.sizes)
        return [*lines, f"j = {canonical([self.kept_atoms], self.graph.sizes)[0].c()}"]


__all__ = ["ColumnKernel", "Ex", "groups"]
