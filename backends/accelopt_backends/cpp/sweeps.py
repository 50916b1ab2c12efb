"""The loops inside a row, around the statements of one pass: a sweep of the vector atom, or tiles."""

from __future__ import annotations

from accelopt_backends.cpp.emit import NestWriter


def sweep(w: NestWriter, low: str, high: str, *, place: str = "") -> None:
    """From `low` to `high` by vectors, inside the loops over the row's outer atoms; at a `place` of 64 / VEC, one of each."""
    out = w.lines["row"]
    out += ["{"] if w.scans else []
    depth = 0
    for atom in w.row[:-1]:
        size = w.sizes[atom].c()
        start, end = (f"{place} * ({size}) * VEC / 64", f"{place} * ({size}) * VEC / 64 + 1") if place else ("0", size)
        out.append("  " * depth + f"for (int64_t {atom} = {start}; {atom} < {end}; ++{atom}) {{")
        depth += 1
    pad = "  " * depth
    out += [pad + f"double {carry} = 0.0;" for carry in dict.fromkeys(w.scans)]
    out += [pad + line for line in w.lines["inner"]]
    out.append(pad + f"sweep<UNROLL>({low}, {high}, [&](auto b, int64_t j, int64_t left) INLINED {{")
    out.append(pad + '  _Pragma("GCC unroll 16") for (int u = 0; u < b.N; ++u) {')
    out.append(pad + "    const int64_t k = j + u * VEC;")
    out += [pad + "    " + line for line in w.lines["body"]]
    out += [pad + "  }", pad + "});"]
    out += ["  " * d + "}" for d in reversed(range(depth))]
    out += ["}"] if w.scans else []


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
