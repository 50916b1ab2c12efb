"""The loops inside a row, around the statements of one pass: a sweep of the vector atom, or tiles."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt_backends.cpp.emit import NestWriter

FAR = 1 << 12
"""Elements between two times that sums are put aside: 64 running sums have 64 terms each then, and one (where the inner loop is
short) 256."""


def sweep(w: NestWriter, low: str, high: str, *, place: str = "", spills: Sequence[str] = (), carries: bool = True) -> None:
    """From `low` to `high` by vectors, inside the loops over the row's outer atoms; at a `place` of 64 / VEC, one of each.
    `spills` are done every `FAR` elements, and at the end. Without `carries` running sums go on with what is there."""
    out = w.lines["row"]
    out += ["{"] if w.scans or spills else []
    out += ["int64_t since = 0;"] if spills else []
    depth = 0
    for atom in w.row[:-1]:
        size = w.sizes[atom].c()
        start, end = (f"{place} * ({size}) * VEC / 64", f"{place} * ({size}) * VEC / 64 + 1") if place else ("0", size)
        out.append("  " * depth + f"for (int64_t {atom} = {start}; {atom} < {end}; ++{atom}) {{")
        depth += 1
    pad = "  " * depth
    out += [pad + f"double {carry} = 0.0;" for carry in dict.fromkeys(w.scans if carries else ())]
    out += [pad + line for line in w.lines["inner"]]
    if spills:
        out.append(pad + f"for (int64_t from = {low}; from < {high}; from += {FAR}) {{")
        out.append(pad + f"const int64_t to = from + {FAR} < {high} ? from + {FAR} : {high};")
        low, high = "from", "to"
    out.append(pad + f"sweep<UNROLL>({low}, {high}, [&](auto b, int64_t j, int64_t left) INLINED {{")
    out.append(pad + '  _Pragma("GCC unroll 16") for (int u = 0; u < b.N; ++u) {')
    out.append(pad + "    const int64_t k = j + u * VEC;")
    out += [pad + "    " + line for line in w.lines["body"]]
    out += [pad + "  }", pad + "});"]
    if spills:
        out.append(pad + f"if ((since += to - from) >= {FAR}) {{")
        out += [pad + "  " + line for line in spills]
        out += [pad + "  since = 0;", pad + "}", pad + "}"]
    out += ["  " * d + "}" for d in reversed(range(depth))]
    out += spills
    out += ["}"] if w.scans or spills else []


def tile_loops(w: NestWriter) -> None:
    """Tiles of TILE x TILE, inside them VEC x VEC: transposed operands are turned once, then rows are written."""
    u, size_u, size_v = str(w.shape.tile), w.sizes[str(w.shape.tile)].c(), w.sizes[w.row[-1]].c()
    w.sections.add("transpose")
    statements = [*w.lines["row"], *w.lines["inner"], *w.lines["body"]]
    out = [
        f"const int64_t u_end = ub * TILE + TILE < {size_u} ? ub * TILE + TILE : {size_u};",
        f"const int64_t v_end = vb * TILE + TILE < {size_v} ? vb * TILE + TILE : {size_v};",
        "for (int64_t u0 = ub * TILE; u0 < u_end; u0 += VEC)",
        "  for (int64_t k = vb * TILE; k < v_end; k += VEC) {",
        "    const int64_t us = u_end - u0 < VEC ? u_end - u0 : VEC, left = v_end - k < VEC ? v_end - k : VEC;",
    ]
    for n, (base, form) in enumerate(w.stages):
        rest = form.without(u).without(w.row[-1])
        stride = form.coefficient(w.row[-1]).c()
        out.append(f"    alignas(64) float tile{n}[VEC * VEC];")
        out.append(f"    transpose({base} + {rest.c()} + u0 + {stride}*k, {stride}, us, left, tile{n});")
    out.append("    auto line = [&](auto b, int64_t uu) INLINED {")
    out.append(f"      const int64_t {u} = u0 + uu;")
    out += ["      " + line for line in statements]
    out += [
        "    };",
        "    if (left == VEC) for (int64_t uu = 0; uu < us; ++uu) line(Block<1, false>(), uu);",
        "    else for (int64_t uu = 0; uu < us; ++uu) line(Block<1, true>(), uu);",
        "  }",
    ]
    w.lines["row"] = out
