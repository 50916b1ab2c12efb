"""Attention as one kernel: prefill and decode, grouped heads without the expanded copy, masks, any strides.

`matches` says whether a workload is one; `render` writes its C++ from the templates beside this file. The text is
complete and stands alone: a person can compile it with g++ and call it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from accelopt_backends.cpp.attention_text import C_TYPES, fields, made_mask, pointers
from accelopt_backends.loops.attention_mask import MadeMask
from accelopt_backends.loops.attention_problem import Problem, find
from accelopt_backends.loops.attention_views import NotAView
from accelopt_compile.records import KernelSource, Workload

GRAMMAR: Mapping[str, tuple[str, ...]] = {
    "keys": ("in_place", "copied"),
    "softmax": ("online", "two_pass"),
    "decode": ("split", "whole"),
}
"""keys: K and V are read where they lie, or a block is first copied (and widened to float) into contiguous scratch.
softmax: in decode, block by block with rescaling, or over all keys at once. decode: few heads share their keys between
threads, or one thread a KV head."""

_TILE_TUNABLES: Mapping[str, tuple[int, ...]] = {
    "Q_VECS": (4, 3, 2),
    "K_TILE": (6, 4, 8, 12),
    "D_TILE": (6, 4, 8, 12),
    "K_BLOCK": (96, 48, 192, 384),
    "EDGE_BLOCK": (24, 12, 48),
    "UNROLL": (4, 1, 2),
}
_ROW_TUNABLES: Mapping[str, tuple[int, ...]] = {
    "ROW_LIMIT": (8, 4, 16, 32),
    "ROW_BLOCK": (256, 64, 128, 512),
    "DIM_VECS": (8, 4, 2),
    "PREFETCH": (8, 0, 4, 16),
    "MIN_SPLIT": (256, 128, 512),
}
_COMMON_TUNABLES: Mapping[str, tuple[int, ...]] = {"GRAIN": (1, 2, 4)}
_REGISTERS = 32


def matches(workload: Workload) -> bool | str:
    """True when `render` can write a kernel for `workload`, else the reason why not (one line, lower case)."""
    try:
        find(workload)
    except NotAView as reason:
        return str(reason)
    return True


def grammar(workload: Workload) -> Mapping[str, tuple[str, ...]]:
    """The structural choices that make a difference for `workload`, default first. Raises ValueError when it is not
    attention."""
    problem = _problem(workload)
    chosen = dict(GRAMMAR)
    if not problem.unit_kv:
        chosen["keys"] = ("copied",)
    elif problem.dim >= 128 and _may_be_tiles(problem):  # rows that lie pages apart push each other out of the caches
        chosen["keys"] = ("copied", "in_place")
    if not _may_be_rows(problem):
        del chosen["softmax"], chosen["decode"]
    return chosen


def render(workload: Workload, structure: Mapping[str, str]) -> KernelSource:
    """The kernel at `structure` (missing choices at their default). Raises ValueError for a choice outside the grammar
    and for a workload that is not attention."""
    problem = _problem(workload)
    choices = grammar(workload)
    for name, value in structure.items():
        if value not in choices.get(name, ()):
            raise ValueError(f"structure {name}={value!r} is outside the grammar {dict(choices)}")
    full = {name: structure.get(name, values[0]) for name, values in choices.items()}
    tunables = dict(_COMMON_TUNABLES)
    if _may_be_tiles(problem):
        tunables |= _TILE_TUNABLES
        if problem.dim >= 128:  # a block of values should stay in the first-level cache
            tunables["K_BLOCK"] = (48, 96, 192)
    if _may_be_rows(problem):
        tunables |= _ROW_TUNABLES
        tile = _row_tile(problem)
        tunables["ROW_TILE"] = (tile, *(n for n in (1, 2, 3, 4) if n != tile))
    parts = [_head(workload, problem, full, tunables), _template("common")]
    parts += [_template("tile")] if _may_be_tiles(problem) else []
    parts += [_template("rows")] if _may_be_rows(problem) else []
    parts.append(_entry(workload, problem))
    return KernelSource(language="cpp", text="\n".join(parts), tunables=tunables, structure=full)


def valid(source: KernelSource, tunables: Mapping[str, int]) -> bool:
    """Whether the accumulators of both tiles stay in registers, and blocks are whole tiles."""
    t = {**source.defaults(), **tunables}
    if "Q_VECS" not in t:
        return True
    columns = t["Q_VECS"]
    fits = all(tile * columns + columns + 1 <= _REGISTERS for tile in (t["K_TILE"], t["D_TILE"]))
    return fits and t["K_BLOCK"] % t["K_TILE"] == 0 and t["EDGE_BLOCK"] % t["K_TILE"] == 0


@lru_cache(maxsize=64)
def _problem(workload: Workload) -> Problem:
    try:
        return find(workload)
    except NotAView as reason:
        raise ValueError(str(reason)) from reason


def _static_rows(problem: Problem) -> int | None:
    return None if problem.queries is None or problem.group is None else problem.queries * problem.group


def _may_be_rows(problem: Problem) -> bool:
    """Few enough queries for the decode kernel, or not known."""
    rows = _static_rows(problem)
    return rows is None or rows <= max(_ROW_TUNABLES["ROW_LIMIT"])


def _row_tile(problem: Problem) -> int:
    """How many queries the decode kernel takes together, at first: those of one group, at most 4."""
    rows = _static_rows(problem) or problem.group or 4
    return max(1, min(4, rows))


def _may_be_tiles(problem: Problem) -> bool:
    rows = _static_rows(problem)
    return rows is None or rows > min(_ROW_TUNABLES["ROW_LIMIT"])


@lru_cache(maxsize=8)
def _template(name: str) -> str:
    return Path(__file__).with_name(f"attention_{name}.cpp.tmpl").read_text(encoding="utf-8")


def _head(workload: Workload, problem: Problem, structure: Mapping[str, str], tunables: Mapping[str, tuple[int, ...]]) -> str:
    """What this workload fixes, and the tunables with their defaults."""
    defines: dict[str, object] = {
        "DIM": problem.dim,
        "CAUSAL": int(problem.causal),
        "SCALE_LOG2E": repr(abs(problem.scale) / math.log(2.0)),
        "SCALE_SIGN": -1 if problem.scale < 0 else 1,
        "MASK": 0 if not problem.mask else 2 if problem.mask == "b8" else 1,
        "MASK_KEEPS": int(problem.mask_keeps),
        "MASK_T": C_TYPES[problem.mask or "b8"],
        "T": C_TYPES[problem.dtype],
        "IS_F32": int(problem.dtype == "f32"),
        "IS_BF16": int(problem.dtype == "bf16"),
        "MOST_ROWS": max(_ROW_TUNABLES["ROW_LIMIT"]),
        "KV_UNIT": int(problem.unit_kv),
        "COPY_KV": int(structure["keys"] == "copied"),
        "TWO_PASS": int(structure.get("softmax") == "two_pass"),
        "SPLIT_KEYS": int(structure.get("decode") == "split"),
    }
    lines = [
        "// Attention: out = softmax(q k^T * scale + mask) v, for one call of every batch and head.",
        "// Written by the seed.",
    ]
    lines += [f"#define {name} {value}" for name, value in defines.items()]
    for name, values in tunables.items():
        lines.append(f"#ifndef {name}\n#define {name} {values[0]}  // {', '.join(map(str, values))}\n#endif")
    return "\n".join(lines) + "\n"


def _entry(workload: Workload, problem: Problem) -> str:
    """The entry point: sizes and strides from the symbols, then the kernel that suits the number of queries."""
    lines = ['extern "C" int accelopt_kernel(void* const* tensors, const i64* sizes, i64 threads) {']
    lines += [f"  const i64 {s} = sizes[{i}];" for i, s in enumerate(workload.symbols)]
    lines += ["  (void)sizes;", "  Problem p = {};"]
    lines += [f"  p.{name} = {text};" for name, text in pointers(problem)]
    lines += [f"  p.{name} = {text};" for name, text in fields(problem).items()]
    lines.append("  if (p.batch <= 0 || p.kv_heads <= 0 || p.group <= 0 || p.queries <= 0) return 0;")
    if not _may_be_tiles(problem):
        call = "run_rows(p, threads)"
    elif not _may_be_rows(problem):
        call = "run_tiles(p, threads)"
    else:
        call = "p.queries * p.group <= ROW_LIMIT ? run_rows(p, threads) : run_tiles(p, threads)"
    lines += [f"  return {call};"] if problem.made is None else _with_made_mask(problem.made, call)
    return "\n".join([*lines, "}", ""])


def _with_made_mask(made: MadeMask, call: str) -> list[str]:
    """The mask evaluated into scratch, the call, the scratch freed."""
    condition, texts = made_mask(made)
    sizes = ", ".join(f"{name} = {text}" for name, text in zip(("mB", "mH", "mQ", "mK"), texts, strict=True))
    return [
        f"  const i64 {sizes};",
        "  b8* made = (b8*)aligned_alloc(64, (mB * mH * mQ * mK + 64) / 64 * 64);",
        "  if (!made) return 1;",
        "#pragma omp parallel for collapse(3) num_threads((int)threads) if (threads > 1 && mB * mH * mQ > 1)",
        "  for (i64 b = 0; b < mB; ++b)",
        "    for (i64 h = 0; h < mH; ++h)",
        "      for (i64 i = 0; i < mQ; ++i)",
        f"        for (i64 j = 0; j < mK; ++j) made[((b * mH + h) * mQ + i) * mK + j].value = (unsigned char)({condition});",
        "  p.mask = made;",
        "  p.mb = mB == 1 ? 0 : mH * mQ * mK;",
        "  p.mh = mH == 1 ? 0 : mQ * mK;",
        "  p.ms = mQ == 1 ? 0 : mK;",
        "  p.mk = mK == 1 ? 0 : 1;",
        f"  const int status = {call};",
        "  free(made);",
        "  return status;",
    ]
