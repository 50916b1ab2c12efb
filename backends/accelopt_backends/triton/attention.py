"""Attention as one source: flash forward and backward, grouped heads without the expanded copy, masks, split keys.

`matches` says whether a workload is one; `render` writes it from the templates beside this file. Rows are packed: a row is
one query of one head of a group, so that keys are read once for all heads that share them, and a decode step of one query
still fills a product.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from accelopt_backends.loops.attention_problem import BACKWARD, Problem, find
from accelopt_backends.loops.attention_views import NotAView
from accelopt_backends.triton.attention_text import host, kept, names_of, tokens
from accelopt_backends.triton.targets import TARGETS, Target
from accelopt_compile.records import KernelSource, Workload

_FEW_ROWS = 64
_MANY_ROWS = 1024
_NARROW = re.compile(r"return x\.to\(tl\.b?float16\)")
_OURS = re.compile(r"^def (?:attend|key_gradients|query_gradients)\(", re.MULTILINE)


def matches(workload: Workload) -> bool | str:
    """True when `render` can write a kernel for `workload`, else the reason why not (one line, lower case)."""
    try:
        _found(workload)
    except NotAView as reason:
        return str(reason)
    return True


def grammar(workload: Workload) -> Mapping[str, tuple[str, ...]]:
    """The structural choices that make a difference for `workload`, default first. `keys`: one program goes over all keys of
    its rows, or several share them and a second launch joins their parts. Raises ValueError when it is not attention."""
    problem = _problem(workload)
    rows = _static_rows(problem)
    if problem.backward or (rows is not None and rows > _MANY_ROWS):
        return {}
    return {"keys": ("split", "whole") if rows is not None and rows <= _FEW_ROWS else ("whole", "split")}


def render(workload: Workload, structure: Mapping[str, str]) -> KernelSource:
    """The source at `structure` (missing choices at their default). Raises ValueError for a choice outside the grammar and
    for a workload that is not attention."""
    problem = _problem(workload)
    choices = grammar(workload)
    for name, value in structure.items():
        if value not in choices.get(name, ()):
            raise ValueError(f"structure {name}={value!r} is outside the grammar {dict(choices)}")
    full = {name: structure.get(name, values[0]) for name, values in choices.items()}
    split = full.get("keys") == "split"
    tunables = _tunables(problem, split)
    names = names_of(workload, problem, split)
    parts = ["common", "backward"] if problem.backward else ["common", "forward", *(["joined"] if split else [])]
    text = tokens(kept(parts, names.flags), workload, problem, names)
    return KernelSource(
        language="triton", text=text + host(workload, problem, names, tunables), tunables=tunables, structure=full
    )


def valid(source: KernelSource, tunables: Mapping[str, int], target: Target | None = None) -> bool:
    """Whether blocks and pipeline fit the shared memory of `target` (default: the backend's default) and the accumulators
    its registers; true for a source of another generator. A lower bound: the build has the last word."""
    if not _OURS.search(source.text):
        return True
    t = {**source.defaults(), **tunables}
    device = target or TARGETS["triton-cuda-sm_90"]
    dim, item = _constant(source.text, "BLOCK_D"), 2 if _NARROW.search(source.text) else 4
    threads = t["WARPS"] * device.warp
    # The cuda pipeline holds one buffer a stage; the hip one keeps one of them in registers.
    stages = max(1, t["STAGES"] - (device.kind == "hip"))
    for rows, columns, accumulators in _blocks(t):
        tile = (rows + 2 * columns * stages) * dim * item
        registers = (accumulators * dim + 2 * rows * columns) // threads
        if tile > device.shared_bytes or registers > device.most_registers - 32:
            return False
    return True


def _blocks(t: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """(rows held, rows streamed, rows of accumulators) of each kernel with a product."""
    if "KEYS_N" not in t:
        return [(t["BLOCK_M"], t["BLOCK_N"], t["BLOCK_M"])]
    return [(2 * t["KEYS_N"], t["KEYS_M"], 2 * t["KEYS_N"]), (2 * t["QUERIES_M"], t["QUERIES_N"], t["QUERIES_M"])]


def _constant(text: str, name: str) -> int:
    found = re.search(rf"^{name} = tl\.constexpr\((\d+)\)$", text, re.MULTILINE)
    assert found is not None
    return int(found[1])


@lru_cache(maxsize=64)
def _found(workload: Workload) -> Problem:
    return find(workload, backward=any(n.op == BACKWARD for n in workload.nodes))


def _problem(workload: Workload) -> Problem:
    try:
        return _found(workload)
    except NotAView as reason:
        raise ValueError(str(reason)) from reason


def _static_rows(problem: Problem) -> int | None:
    return None if problem.queries is None or problem.group is None else problem.queries * problem.group


def _tunables(problem: Problem, split: bool) -> dict[str, tuple[int, ...]]:
    """Blocks that keep a head of this size in registers, the default first."""
    large = problem.dim > 128 or problem.dtype == "f32"
    if problem.backward:
        first = (32, 64, 16) if large else (64, 32, 128)
        return {
            "KEYS_N": first,
            "KEYS_M": (32, 64, 16),
            "QUERIES_M": first,
            "QUERIES_N": (32, 64, 16),
            "WARPS": (4, 8),
            "STAGES": (1, 2, 3) if large else (2, 1, 3),
        }
    rows = _static_rows(problem)
    fitting = 128 if rows is None else min(128, max(16, 1 << (rows - 1).bit_length()))
    block = min(fitting, 64 if large else 128)
    others = tuple(n for n in (64, 128, 32, 16) if n != block)
    found = {"BLOCK_M": (block, *others), "BLOCK_N": (32, 64, 16) if large else (64, 32, 128)}
    heavy = block > 32 and (problem.dim > 64 or problem.dtype == "f32")
    found |= {"WARPS": (8, 4, 2) if heavy else (4, 8, 2), "STAGES": (2, 1, 3, 4)}
    return found | ({"SPLITS": (8, 4, 16, 32, 2)} if split else {})
