"""Row kernels: a nest's reductions over each row and its stores, in one launch.

A program takes ROWS rows. Where a row fits, it holds all of it and reads it once ("whole"); else it walks the row in blocks,
once per pass ("looped"). A nest without reductions has no rows to keep together: its columns are split among programs too.
"""

from __future__ import annotations

from collections.abc import Sequence

from accelopt_backends.loops.affine import Unsupported
from accelopt_backends.loops.nests import Nest, Store, scans_of
from accelopt_backends.loops.passes import mergeable, pass_levels, pass_of, row_level
from accelopt_backends.loops.pull import canonical
from accelopt_backends.loops.values import Graph, Val
from accelopt_backends.triton.emit import COLUMNS, KEPT, ROWS, Ex
from accelopt_backends.triton.expressions import ELEMENT, LANE
from accelopt_backends.triton.tiles import NEUTRAL, KernelText, RowWriter, choices, finished, joined, next_power, powers, product

WHOLE_LIMIT = 16384
"""Elements of a row at most that one program holds."""

TILE = 4096
"""Elements of a tile by default, where a program holds whole rows; a quarter of it where it only computes."""


class RowKernel:
    """The text of one nest's row kernel. `rows` "looped" asks for blocks where a whole row would fit; "online" also for sums
    of e**(x - max x) in the pass that finds the maximum (online softmax, arXiv 1805.02867)."""

    def __init__(self, graph: Graph, nest: Nest, name: str, done: frozenset[Val], exports: set[Val], *, rows: str) -> None:
        self.graph, self.nest, self.name, self.done, self.exports = graph, nest, name, done, exports
        self.looped = rows != "whole"
        self.online = sums_with_maximum(nest) if rows == "online" else {}
        self.levels = pass_levels(nest, self.online)
        self.merges: list[tuple[str, str]] = []

    def text(self) -> KernelText:
        """The kernel, written again with each pair of loops that walk memory as one."""
        kernel, writer = self._written()
        while (pair := mergeable(writer)) is not None:
            self.merges.append(pair)
            kernel, writer = self._written()
        return kernel

    # ------------------------------------------------------------ one writing

    def _written(self) -> tuple[KernelText, RowWriter]:
        w = self.w = RowWriter(self.graph, self.nest, self.merges, self.done)
        self.kept: list[tuple[str, str, str]] = []
        nest = self.nest
        self.blocked = bool(w.row) and not (
            nest.reductions or any(row_level(nest, s) for s in nest.stores) or any(scans_of(s.val) for s in nest.stores)
        )
        if self.blocked:
            w.par, w.row = [*w.par, *w.row[:-1]], w.row[-1:]
        self.rows, self.length = product([w.sizes[a] for a in w.par]), product([w.sizes[a] for a in w.row])
        static = self.length.static
        self.whole = not self.blocked and (not w.row or (static is not None and static <= WHOLE_LIMIT and not self.looped))
        w.holds_rows = self.whole
        if self.whole or self.blocked:
            w.inner = w.outer
        w.scope = {**dict.fromkeys(w.par, ROWS), **dict.fromkeys(w.row, COLUMNS)}
        w.masks = {0: "mr" if w.par else "", 1: "mk" if w.row else ""}
        body = self._passes()
        return self._framed(body), w

    def _passes(self) -> list[str]:
        w, nest = self.w, self.nest
        last = max([*self.levels.values(), *(pass_of(nest, s, self.levels) for s in nest.stores)], default=0)
        for number in range(last + 1):
            reds = [r for r in nest.reductions if self.levels[r] == number]
            stores = [s for s in nest.stores if pass_of(nest, s, self.levels) == number]
            wide = [s for s in stores if not row_level(nest, s) and nest.row]
            if self.whole or self.blocked:
                for red in reds:
                    self._reduce_whole(red)
                self._store(wide)
            elif reds or wide:
                self._loop(reds, wide)
            self._keep(reds)
            self._store([s for s in stores if s not in wide])
        return w.outer

    def _store(self, stores: Sequence[Store]) -> None:
        for store in stores:  # outputs may lie over inputs: all are read before the first is written
            self.w.value(store.val)
        for store in stores:
            self.w.store(store.output, store.val, store.dim, store.offset)

    def _keep(self, reds: Sequence[Val]) -> None:
        for red in reds:
            if red in self.exports:
                form = self.w.flat(canonical(red.dims, self.graph.sizes), red.shape)
                self.w.put(f"kept{red.id}", form, self.w.given[red], ELEMENT[KEPT[red.lane]])
                pointer = {"f32": "fp32", "i64": "i64", "i32": "i32"}[KEPT[red.lane]]
                self.kept.append((f"kept{red.id}", pointer, product(red.shape).c()))

    # ------------------------------------------------------------ reductions

    def _operand(self, red: Val, neutral: str) -> str:
        x = self.w.value(red.args[0])
        return f"tl.where(mk, {x.name}, {neutral})"

    def _kind(self, red: Val) -> tuple[str, str]:
        kind, lane = str(red.data[0]), red.args[0].lane
        if kind.startswith("arg") or (kind, lane) in NEUTRAL:
            return kind, lane
        raise Unsupported(f"{kind} of this type")

    def _reduce_whole(self, red: Val) -> None:
        w = self.w
        kind, lane = self._kind(red)
        say = w.outer.append
        if kind.startswith("arg"):
            best, worst = ("top", 'float("-inf")') if kind == "argmax" else ("bottom", 'float("inf")')
            x = w.define(ROWS | COLUMNS, "f", f"tl.broadcast_to({self._operand(red, worst)}, (ROWS, BLOCK))")
            say(f"red{red.id} = place({x.name}, {best}({x.name}, 1), k, mk).to(tl.int64)")
        else:
            say(f"red{red.id} = {finished(kind, lane, self._operand(red, NEUTRAL[kind, lane]))}")
        w.given[red] = Ex(f"red{red.id}", red.lane, ROWS)

    def _loop(self, reds: Sequence[Val], stores: Sequence[Store]) -> None:
        """One pass over the row in blocks."""
        w = self.w
        w.inner, w.loop_memo, w.scans = [], {}, []
        self.after: list[str] = []
        steps: list[str] = []
        for total in (r for r in reds if r in self.online):
            self._together(self.online[total], total)
        together = {*self.online, *self.online.values()} & set(reds)
        reds = [r for r in reds if r not in together]
        for red in reds:
            kind, lane = self._kind(red)
            n = red.id
            if kind.startswith("arg"):
                best, worst = ("top", 'float("-inf")') if kind == "argmax" else ("bottom", 'float("inf")')
                w.outer.append(f"best{n} = tl.full((ROWS, 1), {worst}, tl.float32)")
                w.outer.append(f"at{n} = tl.zeros((ROWS, 1), tl.int64)")
                x = w.define(ROWS | COLUMNS, "f", f"tl.broadcast_to({self._operand(red, worst)}, (ROWS, BLOCK))")
                sign = ">" if kind == "argmax" else "<"
                w.inner.append(f"new{n} = {best}({x.name}, 1)")
                w.inner.append(f"won{n} = (new{n} {sign} best{n}) | ((new{n} != new{n}) & (best{n} == best{n}))")
                w.inner.append(f"at{n} = tl.where(won{n}, place({x.name}, new{n}, k, mk).to(tl.int64), at{n})")
                w.inner.append(f"best{n} = tl.where(won{n}, new{n}, best{n})")
                continue
            kept = "tl.int32" if kind == "any" else LANE[lane]
            neutral = NEUTRAL[kind, lane]
            w.outer.append(f"acc{n} = tl.full((ROWS, BLOCK), {'0' if kind == 'any' else neutral}, {kept})")
            steps.append(f"acc{n} = {joined(kind, lane, f'acc{n}', self._operand(red, neutral))}")
        w.inner += steps
        self._store(stores)
        for carry in dict.fromkeys(w.scans):
            w.outer.append(f"{carry} = tl.zeros((ROWS, 1), tl.float32)")
        far = "k0" if self.length.static is None or self.length.coef < 1 << 30 else "k0.to(tl.int64)"
        w.outer += [
            f"for k0 in range(0, {self.length.c()}, BLOCK):",
            f"    k = ({far} + tl.arange(0, BLOCK))[None, :]",
            f"    mk = k < {self.length.c()}",
            *("    " + line for line in [*w.decoded(w.row, "k"), *w.inner]),
        ]
        for red in reds:
            kind, lane = self._kind(red)
            n = red.id
            text = f"at{n}" if kind.startswith("arg") else finished(kind, "l" if kind == "any" else lane, f"acc{n}")
            w.outer.append(f"red{n} = {text}")
            w.given[red] = Ex(f"red{n}", red.lane, ROWS)
        w.outer += self.after
        w.loop_memo = {}

    def _together(self, most: Val, total: Val) -> None:
        """The maximum of x and the sum of e**(x - maximum), rescaled when the maximum moves. -inf alone gives NaN, as apart."""
        w, m, s = self.w, f"red{most.id}", f"red{total.id}"
        w.outer += [f'{m} = tl.full((ROWS, 1), float("-inf"), tl.float32)', f"{s} = tl.zeros((ROWS, 1), tl.float32)"]
        x = self._operand(most, 'float("-inf")')
        w.inner += [
            f"x{s} = {x}",
            f"new{m} = largest({m}, top(x{s}, 1))",
            f'by{m} = tl.where(new{m} == float("-inf"), 0.0, new{m})',
            f"{s} = {s} * tl.exp(tl.where({m} == new{m}, 0.0, {m} - by{m}))",
            f"{s} += tl.sum(tl.where(mk, tl.exp(x{s} - by{m}), 0.0), axis=1, keep_dims=True)",
            f"{m} = new{m}",
        ]
        self.after.append(f'{s} = tl.where({m} == float("-inf"), float("nan"), {s})')
        w.given[most], w.given[total] = Ex(m, "f", ROWS), Ex(s, "f", ROWS)

    # ------------------------------------------------------------ the frame

    def _framed(self, body: list[str]) -> KernelText:
        w = self.w
        suffix = self.name.removeprefix("rows")
        head = ["pid = tl.program_id(0)"]
        rows, length = self.rows.c(), self.length.c()
        static = self.length.static
        tunables: dict[str, tuple[int, ...]] = {}
        constants: dict[str, str] = {}
        if self.blocked:
            widest = 4096 if static is None else min(4096, next_power(static))
            tunables[f"BLOCK{suffix}"] = choices(TILE // 4, powers(min(widest, 16), widest)[-7:])
            constants["BLOCK"] = f"BLOCK{suffix}"
            block = tunables[f"BLOCK{suffix}"][0]
        elif self.whole:
            block = next_power(max(1, static or 1))
            constants["BLOCK"] = str(block)
        else:
            widest = 8192 if static is None else min(8192, next_power(static))
            tunables[f"BLOCK{suffix}"] = choices(2048, powers(min(256, widest), widest))
            constants["BLOCK"] = f"BLOCK{suffix}"
            block = tunables[f"BLOCK{suffix}"][0]
        self._rows_per_program(tunables, constants, suffix, block)
        at = "pid"
        if self.blocked:
            head.append(f"blocks = tl.cdiv({length}, BLOCK)")
            at = "(pid // blocks)"
            wide = static is None or static >= 1 << 30
            head.append(f"k = ((pid % blocks){'.to(tl.int64)' if wide else ''} * BLOCK + tl.arange(0, BLOCK))[None, :]")
            head.append(f"mk = k < {length}")
        elif self.whole and w.row:
            head += ["k = tl.arange(0, BLOCK)[None, :]", f"mk = k < {length}"]
        if w.par:
            head += [f"r = ({at}.to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]", f"mr = r < {rows}"]
            head += w.decoded(w.par, "r")
        if self.blocked or self.whole:
            head += w.decoded(w.row, "k")
        columns = f" * triton.cdiv({length}, {constants['BLOCK']})" if self.blocked else ""
        grid = (f"triton.cdiv({rows}, {constants['ROWS']})" if w.par else "1") + columns
        tunables[f"WARPS{suffix}"] = (4, 8, 2, 1, 16)
        options = {"num_warps": f"WARPS{suffix}"}
        if not (self.blocked or self.whole):
            tunables[f"STAGES{suffix}"] = (2, 1, 3, 4)
            options["num_stages"] = f"STAGES{suffix}"
        used = {*w.used, *self.rows.symbols, *self.length.symbols, *(s for a in (*w.par, *w.row) for s in w.sizes[a].symbols)}
        how = "in blocks" if self.blocked else "a program holds them" if self.whole else "walked in blocks"
        comment = f"{rows} rows of {length}, {how}"
        return KernelText(self.name, [*head, *body], used, grid, tunables, constants, options, self.kept, comment)

    def _rows_per_program(self, tunables: dict[str, tuple[int, ...]], constants: dict[str, str], suffix: str, block: int) -> None:
        count = self.rows.static
        most = next_power(count) if count else 64
        if not self.w.par or most <= 1:
            constants["ROWS"] = "1"
            return
        wanted = (TILE // 4 if self.blocked else TILE if self.whole else 2048) // block
        values = powers(1, max(1, min(most, 4 * max(1, wanted), 64)))
        tunables[f"ROWS{suffix}"] = choices(max(1, wanted), values)
        constants["ROWS"] = f"ROWS{suffix}"


def sums_with_maximum(nest: Nest) -> dict[Val, Val]:
    """Sums of e**(x - max x) over a row, each with its maximum; one for each maximum."""
    found: dict[Val, Val] = {}
    for total in nest.reductions:
        power = total.args[0]
        if total.data[0] != "sum" or power.kind != "point" or power.data != "exp":
            continue
        shifted = power.args[0]
        if shifted.kind != "point" or shifted.data != "sub":
            continue
        x, most = shifted.args
        if most in nest.reductions and most.data[0] == "max" and most.args[0] is x and most not in found.values():
            found[total] = most
    return found
