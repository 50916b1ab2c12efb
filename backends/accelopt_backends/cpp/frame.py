"""What stands around the rows of a nest: memory for results, the parallel loop, which row it is. And nests one after another."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt_backends.cpp.emit import NestWriter
from accelopt_backends.cpp.folds import MOST_SLICES
from accelopt_backends.cpp.lines import Key
from accelopt_backends.cpp.nest_text import NestText
from accelopt_backends.loops.affine import ONE, Affine, Mono
from accelopt_backends.loops.pull import flattened

ON_STACK = 4096
"""Floats of a row's buffer at most that lie on the stack."""

Array = tuple[str, str, str]
"""(type of an element, name, how many)."""


def join(texts: Sequence[NestText], *, together: bool) -> list[str]:
    """The lines of all nests. `together`: what is computed with a row's results follows that row, which the caches still hold.

    All memory is asked for before anything is written: outputs may lie over inputs, and a kernel that declines has to leave
    them as they were."""
    lines: list[str] = []
    arrays: list[Array] = []
    at = 0
    while at < len(texts):
        text, following = texts[at], texts[at + 1] if at + 1 < len(texts) else None
        inside = _rows_inside(following, text) if together and following is not None else []
        elements = following.w.product([*following.w.par, *following.w.row]) if inside and following is not None else None
        arrays += _arrays(text)
        lines += _frame(text, inside, elements)
        at += 2 if inside else 1
    return [*declared(arrays), *lines]


def declared(arrays: Sequence[Array]) -> list[str]:
    """Statements that make the arrays, or decline the call."""
    if not arrays:
        return []
    made = [f"Scratch<{kind}> {name}_({size}); {kind}* const {name} = {name}_.data;" for kind, name, size in arrays]
    return [*made, f"if (!({' && '.join(f'{name}_.raw' for _, name, _ in arrays)})) return 1;"]


def _arrays(text: NestText) -> list[Array]:
    """The memory of a nest: results that later nests read, partial results of the slices, rows that are kept."""
    w = text.w
    # As many as `_items` makes slices at most: with 8 threads two rows of 80 MB asked for 640 MB.
    most = MOST_SLICES if w.shape.tile or text.blocked else f"slices(threads, {w.product(w.par).c()}, 1)"
    rows = [("float", _shared(w, key), f"{most} * ({_room(w)})") for key in _buffered(w) if not _on_stack(w)]
    return [*text.folds.kept_arrays(), *text.folds.partial_arrays(), *rows]


def _buffered(w: NestWriter) -> list[Key]:
    return sorted(w.shape.buffered, key=lambda k: (k[0], str(k[1])))


def _shared(w: NestWriter, key: Key) -> str:
    """The rows of all slices."""
    return f"rows{w.number + 1}_{w.buffer(key)}"


def _room(w: NestWriter) -> str:
    """Elements of a kept row, and of what lies between two: slices share no cache line."""
    return f"{w.product(w.row).c()} + VEC + 16"


def _on_stack(w: NestWriter) -> bool:
    """Whether the compiler may keep a row in registers."""
    length = w.product(w.row)
    return not length.symbols and length.coef <= ON_STACK


def _frame(text: NestText, inside: Sequence[str] = (), elements: Mono | None = None) -> list[str]:
    """The whole nest. `inside`: what follows on each of its rows, as `_rows_inside` gives it for the next nest; `elements`: how
    many elements that computes for all rows."""
    w = text.w
    count, length = w.product(w.par), w.product(w.row)
    out = [f"// nest {w.number + 1}: {count.c()} rows of {length.c()}" + (", in blocks" if text.blocked else ""), "{"]
    out += ["  " + line for line in _items(text, count, length, elements)]
    out += text.folds.partials()
    out.append("  parallel(n, items, [=, &bad](int64_t begin, int64_t end, int64_t slice) INLINED {")
    for key in _buffered(w):
        if _on_stack(w):
            out.append(f"    alignas(64) float {w.buffer(key)}[{length.coef} + VEC];")
        else:
            out.append(f"    float* const {w.buffer(key)} = {_shared(w, key)} + slice * ({_room(w)});")
    out.append("    for (int64_t r = begin; r < end; ++r) {")
    out += ["      " + line for line in [*_decode(text), *w.lines["row"], *inside]]
    out += ["    }", "  });"]
    out += ["  " + line for line in text.folds.combine()]
    out.append("}")
    return text.folds.results() + out


def _items(text: NestText, count: Mono, length: Mono, elements: Mono | None) -> list[str]:
    """How many items of work there are, and into how many slices the threads cut them."""
    w = text.w
    vector = w.sizes[w.row[-1]] if w.row else ONE
    if w.shape.tile:
        size_u = w.sizes[w.shape.tile].c()
        others = " * ".join(f"({w.sizes[a].c()})" for a in w.par if a != w.shape.tile) or "1"
        return [
            f"const int64_t nu = ({size_u} + TILE - 1) / TILE, nv = ({vector.c()} + TILE - 1) / TILE;",
            f"const int64_t items = {others} * nu * nv;",
            "const int64_t n = slices(threads, items, 1 + GRAIN / (TILE * TILE));",
        ]
    if text.blocked:
        return [
            _blocks(w),
            f"const int64_t items = ({count.c()}) * blocks;",
            f"const int64_t n = slices(threads, items, 1 + GRAIN / ({vector.c()} < BLOCK ? 1 + {vector.c()} : BLOCK));",
        ]
    each = length.c() if elements is None else f"{length.c()} + {elements.c()} / (1 + items)"
    return [
        f"const int64_t items = {count.c()};",
        f"const int64_t n = slices(threads, items, 1 + GRAIN / (1 + {each}));",
    ]


def _rows_inside(text: NestText, outer: NestText) -> list[str]:
    """This nest's rows that read results of one row `r` of `outer` alone, as lines that follow that row. Empty where this
    nest has to wait for all of `outer`: where the two differ in their outer loops, a result is read by another row, or
    outputs lie over inputs."""
    w, rows = text.w, outer.w.product(outer.w.par)
    if not text.blocked or outer.blocked or w.shape.tile or w.graph.workload.aliases or rows.is_one:
        return []
    if text.nest.accumulations or outer.nest.accumulations:
        return []
    leading = next((n for n in range(len(w.par) + 1) if w.product(w.par[:n]) == rows), 0)
    read = [(value, form) for value, form in w.kept if value in outer.nest.reductions]
    if not (leading and read) or any(form != _row_number(w, w.par[:leading]) for _, form in read):
        return []
    if any(outer.w.merge(outer.folds.flat(value)) != _row_number(outer.w, outer.w.par) for value, _ in read):
        return []
    each = f"({w.product(w.par[leading:]).c()}) * blocks"
    rows_text = ["    " + line for line in [*_decode(text), *w.lines["row"]]]
    return [
        f"// nest {w.number + 1}: the rows that belong to this one",
        "{",
        f"  {_blocks(w)}",
        f"  for (int64_t next = r * ({each}); next < (r + 1) * ({each}); ++next) {{",
        "    const int64_t r = next;",
        *rows_text,
        "  }",
        "}",
    ]


def _decode(text: NestText) -> list[str]:
    w = text.w
    out = []
    row, par = "r", w.par
    if w.shape.tile:
        out += ["const int64_t vb = r % nv;", "const int64_t ub = r / nv % nu;"]
        row, par = "(r / nv / nu)", [a for a in w.par if a != w.shape.tile]
    elif text.blocked:
        out.append("const int64_t j0 = (r % blocks) * BLOCK;")
        row = "(r / blocks)"
    for position, atom in enumerate(reversed(par)):
        last = position == len(par) - 1
        out.append(f"const int64_t {atom} = {row};" if last else f"const int64_t {atom} = {row} % ({w.sizes[atom].c()});")
        row = f"{row} / ({w.sizes[atom].c()})"
    used = "\n".join(w.lines["row"])
    return [line for line in out if line.split()[2] in ("j0", "ub", "vb") or line.split()[2] in used]


def _blocks(w: NestWriter) -> str:
    return f"const int64_t blocks = ({w.sizes[w.row[-1]].c()} + BLOCK - 1) / BLOCK;"


def _row_number(w: NestWriter, par: Sequence[str]) -> Affine:
    """Which row it is, counted in the order of these loops."""
    return flattened([Affine({atom: ONE}) for atom in par], [w.sizes[atom] for atom in par])
