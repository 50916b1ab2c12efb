"""Matrix products with what is done before and after them: mm, addmm, bmm and baddbmm of a region, up to three of one shape.

Structure: "multiply" by tensor cores or by sums (a few rows), "k" whole or split among programs (few tiles), "tiles" one a
program or several ("persistent"). 8-bit floats are left out: a workload has no such type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from accelopt_backends.loops.affine import Mono, Unsupported
from accelopt_backends.loops.heading import heading
from accelopt_backends.triton.matmul_problem import ITEM, Problem, find
from accelopt_backends.triton.matmul_text import Layout, text
from accelopt_backends.triton.source import parse
from accelopt_backends.triton.targets import Target
from accelopt_backends.triton.tiles import choices, next_power
from accelopt_compile.records import KernelSource, Workload

FEW_ROWS = 16
"""Below so many rows most of a tensor core's tile is empty."""

MOST_HELD = 128
"""Elements of a tile that a thread holds in registers at most."""

_TILE = re.compile(r"# A tile: (\d+) products, (\d+) left and (\d+) right operands of (\d+) bytes, by (\w+), over (\d+|\?)\n")


def matches(workload: Workload) -> bool | str:
    """True when there is a kernel for the workload, else why not."""
    return True if not isinstance(found := _rendered(workload, ()), str) else found


def grammar(workload: Workload) -> Mapping[str, tuple[str, ...]]:
    """Structural choices, default first."""
    try:
        problem = find(workload)
    except Unsupported:
        return {}
    return {name: values for name, values in _offered(problem).items() if len(values) > 1}


def render(workload: Workload, structure: Mapping[str, str]) -> KernelSource:
    """The kernel with these choices. Raises ValueError."""
    found = _rendered(workload, tuple(sorted(structure.items())))
    if isinstance(found, str):
        raise ValueError(f"no kernel with {dict(structure)}: {found}")
    return found


def valid(source: KernelSource, tunables: Mapping[str, int], target: Target | None = None) -> bool:
    """Whether the tiles can be held in registers and in the shared memory of `target` (where one is given), and each program
    has a share of k. True for other kernels."""
    tile = _TILE.search(source.text)
    if tile is None:
        return True
    products, how, depth = int(tile[1]), tile[5], tile[6]
    t = source.defaults() | dict(tunables)
    threads = 32 * t["WARPS"]
    bm, bn, bk = t["BM"], t["BN"], t["BK"]
    if how == "sum" and bm * bk * bn > MOST_HELD * threads:
        return False
    if products * bm * bn > MOST_HELD * threads or max(bm, bn) * bk > MOST_HELD * threads:
        return False
    if target is not None and _shared_bytes(tile, t, target) > target.shared_bytes:
        return False
    return "SPLIT" not in t or depth == "?" or t["SPLIT"] * bk <= max(int(depth), bk)


def _shared_bytes(tile: re.Match[str], t: Mapping[str, int], target: Target) -> int:
    """Shared memory for the tiles under way, at their width in the product: weights that are stored in fewer bits take less."""
    if tile[5] == "sum":
        return 0
    lefts, rights, item = (int(tile[k]) for k in (2, 3, 4))
    buffers = max(1, t["STAGES"] - 1) if target.kind == "hip" else t["STAGES"]
    return buffers * item * t["BK"] * (lefts * t["BM"] + rights * t["BN"])


# ---------------------------------------------------------------- rendering


@lru_cache(maxsize=256)
def _rendered(workload: Workload, structure: tuple[tuple[str, str], ...]) -> KernelSource | str:
    """The kernel, or why there is none."""
    try:
        problem = find(workload)
        chosen = {name: values[0] for name, values in _offered(problem).items()} | dict(structure)
        written = text(workload, problem, _layout(workload, problem, chosen), heading(workload, "#"))
    except Unsupported as reason:
        return str(reason)
    return KernelSource(
        language="triton", text=written, tunables=dict(parse(written).tunables), structure=dict(structure), origin="seed"
    )


def _offered(problem: Problem) -> dict[str, tuple[str, ...]]:
    """All choices that make sense, the default first."""
    rows = problem.size(problem.rows).static
    depth = problem.depth.static or 0
    few = rows is not None and rows < FEW_ROWS
    multiply = ("sum", "dot") if rows is not None and rows <= 4 else ("dot", "sum") if few or rows is None else ("dot",)
    split = ("split", "whole") if few and depth >= 1024 else ("whole", "split") if depth >= 256 else ("whole",)
    return {"multiply": multiply, "k": split, "tiles": ("single", "persistent")}


def _layout(workload: Workload, problem: Problem, chosen: Mapping[str, str]) -> Layout:
    rows, columns = problem.size(problem.rows), problem.size(problem.columns)
    sums, split, persistent = chosen["multiply"] == "sum", chosen["k"] == "split", chosen["tiles"] == "persistent"
    wide, products = ITEM[problem.dtype] == 4, len(problem.uses)
    bm: tuple[int, ...]
    bn: tuple[int, ...]
    bk: tuple[int, ...]
    if sums:
        bm, bn, bk = (1, 2, 4, 8), (32, 64, 16, 128), (32, 64, 16, 128)
        wanted = (min(8, next_power(rows.static or 8)), 32, 64)
    else:
        bm, bn, bk = (16, 32, 64, 128, 256), (16, 32, 64, 128, 256), (16, 32, 64, 128)
        wanted = (64 if wide or rows.static is None else 128, 64 if wide or products > 1 else 128, 32)
    tiles = [
        _tiles(size, values, want)
        for size, values, want in zip((rows, columns, problem.depth), (bm, bn, bk), wanted, strict=True)
    ]
    tunables = {name: values for name, (values, _) in zip(("BM", "BN", "BK"), tiles, strict=True)}
    tunables["GROUP"] = (8, 1, 4, 16)
    if split:
        tunables["SPLIT"] = (4, 2, 8, 16)
    if persistent:
        tunables["PROGRAMS"] = (132, 108, 148, 264, 304)
    tunables["WARPS"] = choices(8 if tunables["BM"][0] * tunables["BN"][0] * products >= 128 * 128 else 4, (2, 4, 8, 16))
    tunables["STAGES"] = (3, 2, 4, 5)
    high = dict(workload.numerics).get("float32_matmul_precision", "highest") != "highest"
    return Layout(
        multiply=chosen["multiply"],
        split=split,
        persistent=persistent,
        masked=(tiles[0][1], tiles[1][1], tiles[2][1]),
        tunables=tunables,
        precision="tf32" if high else "ieee",
    )


def _tiles(size: Mono, values: tuple[int, ...], wanted: int) -> tuple[tuple[int, ...], bool]:
    """(lengths of a tile, the default first; whether one may reach beyond the end): those that divide a size that is known,
    where there are some of use."""
    if size.static is not None:
        dividing = [v for v in values if size.static and size.static % v == 0]
        if dividing and dividing[-1] >= min(32, values[-1]):
            return choices(wanted, sorted(dividing)), False
        least = max(min(values), next_power(max(1, size.static)))
        values = tuple(v for v in values if v <= least)
    return choices(wanted, sorted(values)), True
