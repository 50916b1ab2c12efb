"""The text of a product's kernel: tiles in grouped order, a loop over k, an epilogue; split sums; persistent programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accelopt_backends.loops.affine import Mono
from accelopt_backends.triton.expressions import ELEMENT, STORED, library
from accelopt_backends.triton.matmul_operands import Function, Operand, Statistic, Statistics, finish, operand
from accelopt_backends.triton.matmul_problem import ITEM, Problem
from accelopt_backends.triton.tiles import NEUTRAL, finished, joined
from accelopt_compile.records import Workload

MULTIPLIED = {
    "dot": '''
@triton.jit
def multiplied(a, b, acc, WIDE: tl.constexpr):
    """acc + a @ b on {element} operands; WIDE, for an interpreter that cannot, on their values in float32."""
    if WIDE:
        acc = tl.dot(a.to({element}).to(tl.float32), b.to({element}).to(tl.float32), acc, input_precision="ieee")
    else:
        acc = tl.dot(a.to({element}), b.to({element}), acc, input_precision="ieee")
    return acc
''',
    "dot f32": '''
@triton.jit
def multiplied(a, b, acc, WIDE: tl.constexpr):
    """acc + a @ b."""
    return tl.dot(a, b, acc, input_precision="{precision}")
''',
    "sum": '''
@triton.jit
def multiplied(a, b, acc, WIDE: tl.constexpr):
    """acc + a @ b without tensor cores: a few rows would leave most of one empty."""
    return acc + tl.sum(a[:, :, None] * b[None, :, :], axis=1)
''',
}

SWIZZLED = '''
@triton.jit
def tile_at(place, tiles_m, tiles_n, GROUP: tl.constexpr):
    """(row, column) of a tile: GROUP rows of tiles at a time, column by column, so that both operands are found in cache."""
    first = place // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    inside = place % (GROUP * tiles_n)
    return (first + inside % height).to(tl.int32), (inside // height).to(tl.int32)
'''

FINISH_ROWS, FINISH_COLUMNS = 16, 128
"""The tile of the launch that adds up split sums."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Structural choices, and which tiles reach beyond the end of rows, columns and k."""

    multiply: str
    split: bool
    persistent: bool
    masked: tuple[bool, bool, bool]
    tunables: dict[str, tuple[int, ...]]
    precision: str


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The device functions of a problem. Each use has its left and right operand's (shared ones appear once in all)."""

    pairs: tuple[tuple[Function, Function], ...]
    statistics: tuple[Statistic, ...]
    finish: Function

    @property
    def operands(self) -> list[Function]:
        return list(dict.fromkeys(f for pair in self.pairs for f in pair))


def parts(problem: Problem, layout: Layout) -> Parts:
    """Raises Unsupported."""
    m, n, k = layout.masked
    statistics = Statistics(problem)
    made: dict[object, Function] = {}
    names = {True: "left", False: "right"}

    def side(number: int, left: bool) -> Function:
        use = problem.uses[number]
        own = use.index[-2] if left else use.index[-1]
        key = (use.product.args[0 if left else 1].id, use.index[:-2], own, tuple(use.product.data), left)
        if key not in made:
            count = 1 + sum(f.name.startswith(names[left]) for f in made.values())
            found: Operand = operand(problem, use, statistics, f"{names[left]}{count}", left=left, masked=(m if left else n, k))
            made[key] = found.function
        return made[key]

    pairs = tuple((side(u, True), side(u, False)) for u in range(len(problem.uses)))
    done = finish(problem, (m or layout.split, n or layout.split))
    return Parts(pairs=pairs, statistics=tuple(statistics.found.values()), finish=done)


def text(workload: Workload, problem: Problem, layout: Layout, header: Sequence[str]) -> str:
    """The whole source file. Raises Unsupported."""
    found = parts(problem, layout)
    functions = [s.operand for s in found.statistics] + [*found.operands, found.finish]
    kernels = [_product(problem, layout, found), *([_added(problem, found)] if layout.split else [])]
    written = "\n\n".join(f.text() for f in functions) + "\n\n" + "\n\n".join(kernels)
    kind = "dot f32" if layout.multiply == "dot" and problem.dtype == "f32" else layout.multiply
    own = MULTIPLIED[kind].format(element=ELEMENT[problem.dtype], precision=layout.precision) + "\n" + SWIZZLED
    lefts, rights = (len({pair[side] for pair in found.pairs}) for side in (0, 1))
    depth = problem.depth.static
    tile = (
        f"# A tile: {len(found.pairs)} products, {lefts} left and {rights} right operands of {ITEM[problem.dtype]} bytes, "
        f"by {layout.multiply}, over {'?' if depth is None else depth}"
    )
    head = [*header, tile, "import triton", "import triton.language as tl", library(written)]
    return "\n".join([*head, own, "", written, "", "", *_host(workload, problem, layout, found), ""])


# ---------------------------------------------------------------- the product's kernel


def _memory(
    functions: Sequence[Function], workload: Workload, extra: Sequence[str] = (), sizes: Sequence[Mono] = ()
) -> list[str]:
    """Tensors and sizes that a kernel takes for the functions that it calls, in the host's order."""
    wanted = {t for f in functions for t in f.takes} | set(extra) | {s for size in sizes for s in size.symbols}
    order = [f"in{k}" for k in range(len(workload.inputs))] + [f"out{k}" for k in range(len(workload.output_specs))]
    return [t for t in (*order, "part", *workload.symbols) if t in wanted]


def _takes(problem: Problem, layout: Layout, found: Parts) -> list[str]:
    functions = [s.operand for s in found.statistics] + found.operands + ([] if layout.split else [found.finish])
    sizes = [*_sizes(problem), problem.depth, *(s.length for s in found.statistics)]
    return _memory(functions, problem.graph.workload, ["part"] if layout.split else [], sizes)


def _sizes(problem: Problem) -> tuple[Mono, Mono, Mono]:
    return problem.size(problem.batch), problem.size(problem.rows), problem.size(problem.columns)


def _constants(layout: Layout) -> list[str]:
    return ["BM", "BN", "BK", "GROUP", *(["SPLIT"] if layout.split else []), "WIDE"]


def _product(problem: Problem, layout: Layout, found: Parts) -> str:
    batch, rows, columns = (size.c() for size in _sizes(problem))
    takes = ", ".join([*_takes(problem, layout, found), *(f"{name}: tl.constexpr" for name in _constants(layout))])
    body = _tile(problem, layout, found)
    head = [f"tiles_m = tl.cdiv({rows}, BM)", f"tiles_n = tl.cdiv({columns}, BN)"]
    if layout.persistent:
        head.append(f"for place in range(tl.program_id(0), tiles_m * tiles_n * ({batch}), tl.num_programs(0)):")
        body = ["    " + line for line in body]
    else:
        head.append("place = tl.program_id(0)")
    lines = "\n".join("    " + line for line in [*head, *body])
    says = f"{len(found.pairs)} products of {rows} x {columns} over {problem.depth.c()}, {batch} times"
    return f'@triton.jit\ndef product({takes}):\n    """{says}."""\n{lines}\n'


def _tile(problem: Problem, layout: Layout, found: Parts) -> list[str]:
    """One tile, from its place to its stores."""
    depth = problem.depth.c()
    lines = [
        "b = place // (tiles_m * tiles_n)",
        "i, j = tile_at(place % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP)",
        "r = (i * BM + tl.arange(0, BM))[:, None]",
        "n = (j * BN + tl.arange(0, BN))[None, :]",
    ]
    for s in found.statistics:
        lines += _statistic(s)
    lines += [f"acc{k + 1} = tl.zeros((BM, BN), tl.float32)" for k in range(len(found.pairs))]
    if layout.split:
        lines += [
            "split = tl.program_id(1)",
            f"low = split * (tl.cdiv(tl.cdiv({depth}, BK), SPLIT) * BK)",
            f"high = tl.minimum({depth}, low + tl.cdiv(tl.cdiv({depth}, BK), SPLIT) * BK)",
        ]
    lines.append(f"for k0 in range({'low, high' if layout.split else f'0, {depth}'}, BK):")
    lines += ["    k = k0 + tl.arange(0, BK)"]
    calls = {left: left.call("b", "r", "k[None, :]") for left, _ in found.pairs}
    calls |= {right: right.call("b", "k[:, None]", "n") for _, right in found.pairs}
    lines += [f"    {f.name}_tile = {call}" for f, call in calls.items()]
    lines += [
        f"    acc{u + 1} = multiplied({left.name}_tile, {right.name}_tile, acc{u + 1}, WIDE)"
        for u, (left, right) in enumerate(found.pairs)
    ]
    return lines + (_partial(problem, layout, found) if layout.split else [found.finish.call("b", "r", "n")])


def _statistic(s: Statistic) -> list[str]:
    return [
        f"{s.name} = tl.full((BM, BK), {NEUTRAL[s.kind, 'f']}, tl.float32)",
        f"for k0 in range(0, {s.length.c()}, BK):",
        f"    {s.name} = {joined(s.kind, 'f', s.name, s.operand.call('b', 'r', '(k0 + tl.arange(0, BK))[None, :]'))}",
        f"{s.name} = {finished(s.kind, 'f', s.name)}",
    ]


def _partial(problem: Problem, layout: Layout, found: Parts) -> list[str]:
    """This program's share of the sums, kept for the second launch."""
    batch, rows, columns = _sizes(problem)
    masks = [f"({name} < {size.c()})" for name, size, m in zip("rn", (rows, columns), layout.masked, strict=False) if m]
    mask = f", mask={' & '.join(masks)}" if masks else ""
    at = f"r.to(tl.int64) * ({columns.c()}) + n"
    lines = []
    for k in range(len(found.pairs)):
        base = f"((split * {len(found.pairs)} + {k}) * ({batch.c()}) + b).to(tl.int64) * ({(rows * columns).c()})"
        lines.append(f"tl.store(part + ({base} + {at}), acc{k + 1}{mask})")
    return lines


def _added(problem: Problem, found: Parts) -> str:
    """The second launch: shares added in their order, so that two runs agree, and the epilogue."""
    sizes = _sizes(problem)
    batch, rows, columns = (size.c() for size in sizes)
    memory = _memory([found.finish], problem.graph.workload, ["part"], sizes)
    takes = ", ".join([*memory, "FM: tl.constexpr", "FN: tl.constexpr", "SPLIT: tl.constexpr"])
    count = len(found.pairs)
    lines = [
        f"tiles_n = tl.cdiv({columns}, FN)",
        f"tiles = tl.cdiv({rows}, FM) * tiles_n",
        "b = tl.program_id(0) // tiles",
        "place = tl.program_id(0) % tiles",
        "r = (place // tiles_n * FM + tl.arange(0, FM))[:, None]",
        "n = (place % tiles_n * FN + tl.arange(0, FN))[None, :]",
        f"real = (r < {rows}) & (n < {columns})",
        *(f"acc{k + 1} = tl.zeros((FM, FN), tl.float32)" for k in range(count)),
        "for split in range(0, SPLIT):",
    ]
    for k in range(count):
        base = f"((split * {count} + {k}) * ({batch}) + b).to(tl.int64) * ({(sizes[1] * sizes[2]).c()})"
        lines.append(f"    acc{k + 1} += tl.load(part + ({base} + r.to(tl.int64) * ({columns}) + n), mask=real, other=0)")
    lines.append(found.finish.call("b", "r", "n"))
    body = "\n".join("    " + line for line in lines)
    return f'@triton.jit\ndef added({takes}):\n    """Split sums added in their order, then the epilogue."""\n{body}\n'


# ---------------------------------------------------------------- the host


def _host(workload: Workload, problem: Problem, layout: Layout, found: Parts) -> list[str]:
    tensors = [f'in{k}: "*{STORED[s.dtype]}"' for k, s in enumerate(workload.inputs)]
    tensors += [f'out{k}: "*{STORED[s.dtype]}"' for k, s in enumerate(workload.output_specs)]
    chosen = [f"{name}={v if len(v) > 1 else f'({v[0]},)'}" for name, v in layout.tunables.items()]
    symbols = [f'{s}: "i64"' for s in workload.symbols]
    lines = [f"def accelopt_kernel({', '.join([*tensors, *symbols, '*', *chosen])}):"]
    sizes = _sizes(problem)
    batch, rows, columns = (size.c() for size in sizes)
    grid = f"triton.cdiv({rows}, BM) * triton.cdiv({columns}, BN) * ({batch})"
    if layout.persistent:
        grid = f"min({grid}, PROGRAMS)"
    if layout.split:
        elements = (sizes[0] * sizes[1] * sizes[2]).c()
        lines.append(f'    part = scratch("fp32", SPLIT * {len(found.pairs)} * ({elements}))')
        grid += ", SPLIT"
    values = [*(f"{name}={name}" for name in _constants(layout) if name != "WIDE"), "WIDE=INTERPRETED"]
    options = ["num_warps=WARPS", "num_stages=STAGES"]
    lines.append(f"    product[({grid},)]({', '.join([*_takes(problem, layout, found), *values, *options])})")
    if layout.split:
        again = f"triton.cdiv({rows}, {FINISH_ROWS}) * triton.cdiv({columns}, {FINISH_COLUMNS}) * ({batch})"
        memory = _memory([found.finish], workload, ["part"], sizes)
        fixed = [f"FM={FINISH_ROWS}", f"FN={FINISH_COLUMNS}", "SPLIT=SPLIT", "num_warps=4"]
        lines.append(f"    added[({again},)]({', '.join([*memory, *fixed])})")
    return lines


__all__ = ["Layout", "text"]
