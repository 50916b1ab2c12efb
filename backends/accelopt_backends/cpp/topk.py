"""The k best elements of each row (`aten.topk` over the last dimension) as one kernel.

`matches` says whether a workload is one; `render` writes its C++ from the template beside this file and the prelude.
Scaling and conversion before the selection keep or turn the order, so they are applied to the k chosen values only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from accelopt_backends.cpp.expressions import STORED, prelude
from accelopt_backends.cpp.frame import Array, declared
from accelopt_backends.cpp.topk_problem import NotATopK, Problem, find
from accelopt_compile.records import KernelSource, Workload

GRAMMAR: Mapping[str, tuple[str, ...]] = {"bound": ("blocks", "groups", "running")}
"""bound, below which nothing is kept: from the best element of each block, a row being read once and a few blocks again;
from the best of each of fewer, interleaved groups, a row being read twice; or from the candidates so far, in one pass."""

_TUNABLES: Mapping[str, tuple[int, ...]] = {
    "BLOCK": (512, 256, 128, 1024),
    "SPARE": (1024, 256, 4096),
    "GRAIN": (16384, 4096, 65536),
}
_MOST = 1 << 16


def matches(workload: Workload) -> bool | str:
    """True when `render` can write a kernel for `workload`, else the reason why not (one line, lower case)."""
    try:
        find(workload)
    except NotATopK as reason:
        return str(reason)
    return True


def grammar(workload: Workload) -> Mapping[str, tuple[str, ...]]:
    """The structural choices that make a difference, default first. Raises ValueError when it is not a top-k."""
    problem = _problem(workload)
    length = problem.static_length
    bounds = GRAMMAR["bound"]
    if length is not None and length < 2 * min(_TUNABLES["BLOCK"]) * problem.k:
        bounds = bounds[1:]
    if length is not None and length < 2 * _groups(problem):
        bounds = bounds[1:]
    return {"bound": bounds}


def _groups(problem: Problem) -> int:
    """How many interleaved groups bound the answer: at least 4 k, whole vectors."""
    return max(64, -(-4 * problem.k // 64) * 64)


def render(workload: Workload, structure: Mapping[str, str]) -> KernelSource:
    """The kernel at `structure` (missing choices at their default). Raises ValueError for a choice outside the grammar
    and for a workload that is not a top-k."""
    problem = _problem(workload)
    choices = grammar(workload)
    for name, value in structure.items():
        if value not in choices.get(name, ()):
            raise ValueError(f"structure {name}={value!r} is outside the grammar {dict(choices)}")
    full = {name: structure.get(name, values[0]) for name, values in choices.items()}
    text = "\n".join(
        [_head(problem), prelude(set(problem.sections)), _names(problem, full), _template(), _entry(workload, problem)]
    )
    return KernelSource(language="cpp", text=text, tunables=dict(_TUNABLES), structure=full)


def valid(source: KernelSource, tunables: Mapping[str, int]) -> bool:
    """Whether a block is whole vectors on every machine, and the room for candidates is not negative."""
    t = {**source.defaults(), **tunables}
    return 0 < t["BLOCK"] <= _MOST and t["BLOCK"] % 64 == 0 and 0 <= t["SPARE"] <= _MOST and 0 < t["GRAIN"] < 1 << 30


@lru_cache(maxsize=64)
def _problem(workload: Workload) -> Problem:
    try:
        return find(workload)
    except NotATopK as reason:
        raise ValueError(str(reason)) from reason


@lru_cache(maxsize=1)
def _template() -> str:
    return Path(__file__).with_name("topk.cpp.tmpl").read_text(encoding="utf-8")


def _head(problem: Problem) -> str:
    kind = "largest" if problem.largest else "smallest"
    return f"// The {problem.k} {kind} elements of each row, with their positions. Written by the seed.\n"


def _names(problem: Problem, structure: Mapping[str, str]) -> str:
    """What this workload fixes, and the tunables with their defaults."""
    flags = {
        "LARGEST": problem.largest,
        "NAN_FIRST": problem.nan_first,
        "BY_BLOCKS": structure["bound"] == "blocks",
        "GROUPED": structure["bound"] == "groups",
    }
    lines = [f"typedef {STORED[problem.dtype]} T;"]
    lines += [f"constexpr bool {name} = {str(value).lower()};" for name, value in flags.items()]
    for name, values in _TUNABLES.items():
        lines.append(f"#ifndef {name}\n#define {name} {values[0]}  // {', '.join(map(str, values))}\n#endif")
    lines.append(f"constexpr int64_t K = {problem.k}, GROUPS = {_groups(problem)}, ROOM = 2 * K + BLOCK + SPARE;")
    return "\n".join(lines) + "\n"


_ARRAYS: Sequence[Array] = (
    ("uint64_t", "kept", "most * kept_room"),
    ("uint64_t", "spare", "most * spare_room"),
    ("float", "bests", "shared ? rows * blocks : bounded ? most * own_room : 1"),
)


def _entry(workload: Workload, problem: Problem) -> str:
    """The entry point: rows over threads; few long rows have their blocks shared between threads first."""
    lines = ['extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {']
    lines += [f"  const int64_t {s} = sizes[{i}];" for i, s in enumerate(workload.symbols)]
    lines.append("  (void)sizes;")
    lines.append(f"  const T* const in = (const T*)tensors[{problem.source}] + {problem.offset};")
    for number, output in enumerate(problem.outputs):
        kind = STORED[output.dtype]
        lines.append(f"  {kind}* const out{number} = ({kind}*)tensors[{len(workload.inputs) + number}];")
    lines.append(f"  const int64_t length = {problem.length}, rows = {problem.rows};")
    lines += [
        "  if (rows <= 0) return 0;",
        "  if (length < K || length >= (int64_t)1 << 32) return 1;",
        "  const int64_t blocks = GROUPED ? GROUPS : length / BLOCK;",
        "  const bool bounded = GROUPED ? length >= 2 * GROUPS : BY_BLOCKS && blocks >= 2 * K;",
        "  const bool shared = BY_BLOCKS && bounded && rows < threads && rows * length >= 2 * GRAIN;",
        "  auto row = [&](int64_t r) {",
        "    const T* x = in;",
        *(f"    {line}" for line in _decode(problem)),
        "    return x;",
        "  };",
        "  const int64_t most = slices(threads, rows, 1);",
        "  const int64_t kept_room = ROOM + VEC, spare_room = K + (bounded ? blocks : 0) + VEC, own_room = blocks + VEC;",
        *(f"  {line}" for line in declared(_ARRAYS)),
        "  if (shared) {",
        "    const int64_t items = rows * blocks;",
        "    parallel(slices(threads, items, 1 + GRAIN / BLOCK), items, [&](int64_t begin, int64_t end, int64_t) {",
        "      for (int64_t i = begin; i < end;) {",
        "        const int64_t r = i / blocks, stop = (r + 1) * blocks < end ? (r + 1) * blocks : end;",
        "        block_bests(row(r), i - r * blocks, stop - r * blocks, bests + r * blocks);",
        "        i = stop;",
        "      }",
        "    });",
        "  }",
        "  parallel(slices(threads, rows, 1 + GRAIN / (1 + length)), rows, [&](int64_t begin, int64_t end, int64_t slice) {",
        "    uint64_t* const kept_here = kept + slice * kept_room;",
        "    for (int64_t r = begin; r < end; ++r) {",
        "      const T* const x = row(r);",
        "      float* const best = bests + (shared ? r * blocks : slice * own_room);",
        "      if (BY_BLOCKS && bounded && !shared) block_bests(x, 0, blocks, best);",
        "      best_of_row(x, length, bounded ? best : nullptr, blocks, kept_here, spare + slice * spare_room);",
        "      for (int64_t i = 0; i < K; ++i) {",
        *(f"        {line}" for line in _stores(problem)),
        "      }",
        "    }",
        "  });",
        "  return 0;",
        "}",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _decode(problem: Problem) -> list[str]:
    """Statements that move x to row r: the leading dimensions as (size, stride), innermost first."""
    lines = []
    for number, (size, stride) in enumerate(reversed(problem.leading)):
        last = number == len(problem.leading) - 1
        lines.append(f"x += {'r' if last else f'(r % ({size}))'} * ({stride});")
        if not last:
            lines.append(f"r /= {size};")
    return lines or ["(void)r;"]


def _stores(problem: Problem) -> list[str]:
    lines = []
    if any(not o.indices for o in problem.outputs):
        lines.append("const float v0 = better(value(kept_here[i]));")
    for number, output in enumerate(problem.outputs):
        if output.indices:
            lines.append(f"put_one(out{number} + r * K + i, place(kept_here[i]));")
            continue
        name = "v0"
        for step, text in enumerate(output.steps, 1):
            lines.append(f"const float v{number}_{step} = {text.format(name)};")
            name = f"v{number}_{step}"
        lines.append(f"put_one(out{number} + r * K + i, {name});")
    return lines


__all__ = ["GRAMMAR", "grammar", "matches", "render", "valid"]
