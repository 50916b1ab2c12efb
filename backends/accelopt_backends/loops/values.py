"""A workload as a graph of values, each a function of its index; views only move indices.

`build` turns every ATen node into a `Val` of a small set of kinds and assigns atoms (indivisible loop axes) to all
dimensions: element-wise operands share atoms, a reshape splits them, a reduction drops them, a slice or a
concatenation starts a new one. The nests (nests.py) loop over atoms; the emitter pulls values at an index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelopt_backends.loops.affine import ONE, Mono, Unsupported, mono
from accelopt_compile.records import Arg, DtypeArg, Node, Ref, SymbolArg, Workload

FLOATS = ("f32", "bf16", "f16")
NARROW = ("i32", "i16", "i8", "u8")
INTS = ("i64", *NARROW)


def lane_of(dtype: str) -> str:
    """The arithmetic type of a stored type: "f" (float), "l" (int64), "b" (bool mask)."""
    if dtype in FLOATS:
        return "f"
    if dtype in INTS:
        return "l"
    if dtype == "b8":
        return "b"
    raise Unsupported(f"{dtype} arithmetic")


@dataclass(eq=False)
class Val:
    """One value. `kind`: input, const, iota, point, reduce, scan, reshape, permute, expand, slice, cat, lookup, product.

    `dims` holds, per dimension, the atoms it is made of (outer first; none for size 1). `data` is the kind's own:
    point: operator name; reduce: (kind, dims); slice: (dim, start, step); lookup: ("rows" or "gather", dim, whether
    negative positions count from the end, as aten.index takes them and the others do not); product: atoms of what is
    summed over; const: the number.
    """

    id: int
    kind: str
    shape: tuple[Mono, ...]
    dtype: str
    args: tuple[Val, ...] = ()
    data: Any = None
    dims: list[list[str]] = field(default_factory=list)

    @property
    def lane(self) -> str:
        return lane_of(self.dtype)


class Graph:
    """All values of a workload, its outputs, and the sizes of its atoms. `summed` are the sums that matrix products became."""

    def __init__(self, workload: Workload, *, moments: str = "shifted", products: str = "whole") -> None:
        self.workload, self.moments, self._products = workload, moments, products
        self.vals: list[Val] = []
        self.summed: set[Val] = set()
        self.sizes: dict[str, Mono] = {}
        self._parent: dict[str, list[str]] = {}
        self._nodes: dict[tuple[int, int], Val] = {}
        self.inputs = [self._input(k) for k in range(len(workload.inputs))]
        if workload.aliases:
            self._walk_together()
        from accelopt_backends.loops.translate import translate

        for index, node in enumerate(workload.nodes):
            results = translate(self, node)
            for k, val in enumerate(results):
                if val is not None:
                    self._nodes[index, k] = val
        self.outputs = [self.value(r) for r in workload.outputs]
        for val in self.vals:
            val.dims = [self.resolve(d) for d in val.dims]
            if val.kind == "product":
                val.data = self.resolve(val.data)

    # ------------------------------------------------------------ building

    def _input(self, k: int) -> Val:
        spec = self.workload.inputs[k]
        return self.new("input", tuple(mono(d) for d in spec.shape), spec.dtype, data=k)

    def _walk_together(self) -> None:
        """Inputs of one shape share their atoms: what is overwritten must be written by one loop."""
        for val in self.inputs:
            first = next(v for v in self.inputs if v.shape == val.shape)
            for a, b in zip(first.dims, val.dims, strict=True):
                self.unify(a, b)

    def value(self, ref: Ref) -> Val:
        if ref.kind == "i":
            return self.inputs[ref.index]
        try:
            return self._nodes[ref.index, ref.output]
        except KeyError:
            raise Unsupported(f"result {ref.output} of {self.workload.nodes[ref.index].op}") from None

    def operand(self, arg: Arg, dtype: str) -> Val:
        """A tensor operand, or a scalar as a constant of `dtype`'s lane."""
        if isinstance(arg, Ref):
            return self.value(arg)
        if isinstance(arg, SymbolArg):
            return self.new("const", (), "i64", data=arg.expr)
        if isinstance(arg, bool):
            return self.new("const", (), "b8", data=arg)
        if isinstance(arg, int):
            return self.new("const", (), dtype if dtype in FLOATS else "i64", data=float(arg) if dtype in FLOATS else arg)
        if isinstance(arg, float):
            return self.new("const", (), "f32", data=arg)
        raise Unsupported(f"operand {arg!r}")

    def new(
        self,
        kind: str,
        shape: Sequence[Mono],
        dtype: str,
        args: Sequence[Val] = (),
        data: Any = None,
        dims: list[list[str]] | None = None,
    ) -> Val:
        val = Val(len(self.vals), kind, tuple(shape), dtype, tuple(args), data)
        val.dims = [[] if s.is_one else [self.atom(s)] for s in shape] if dims is None else dims
        self.vals.append(val)
        return val

    def point(self, op: str, args: Sequence[Val], dtype: str) -> Val:
        """An element-wise value; operands broadcast against each other and share atoms."""
        rank = max((len(a.shape) for a in args), default=0)
        shape: list[Mono] = []
        dims: list[list[str]] = []
        for d in range(rank):
            size, atoms = ONE, list[str]()
            for a in args:
                k = d - rank + len(a.shape)
                if k < 0 or a.shape[k].is_one:
                    continue
                if size.is_one:
                    size, atoms = a.shape[k], self._apart(a.dims[k], dims)
                elif size != a.shape[k]:
                    raise Unsupported(f"operands of {op} with sizes {size.c()} and {a.shape[k].c()}")
                elif not set(self.resolve(a.dims[k])) & {other for d in dims for other in self.resolve(d)}:
                    self.unify(atoms, a.dims[k])
            shape.append(size)
            dims.append(list(atoms))
        return self.new("point", shape, dtype, args, op, dims)

    def _apart(self, atoms: list[str], others: list[list[str]]) -> list[str]:
        """`atoms`, or a new one of their size where another dimension loops over one of them already (x against x.T)."""
        taken = {a for d in others for a in self.resolve(d)}
        mine = self.resolve(atoms)
        if not taken & set(mine):
            return atoms
        size = ONE
        for a in mine:
            size = size * self.sizes[a]
        return [self.atom(size)]

    def reshape(self, val: Val, shape: Sequence[Mono]) -> Val:
        out = self.new("reshape", shape, val.dtype, (val,))
        flat_in = [a for d in val.dims for a in d]
        flat_out = [a for d in out.dims for a in d]
        self.unify(flat_in, flat_out)
        return out

    def permute(self, val: Val, order: Sequence[int]) -> Val:
        return self.new("permute", [val.shape[p] for p in order], val.dtype, (val,), tuple(order), [val.dims[p] for p in order])

    def expand(self, val: Val, shape: Sequence[Mono]) -> Val:
        lead = len(shape) - len(val.shape)
        dims = []
        for d, size in enumerate(shape):
            if d >= lead and val.shape[d - lead] == size:
                dims.append(val.dims[d - lead])
            else:
                dims.append([] if size.is_one else [self.atom(size)])
        return self.new("expand", shape, val.dtype, (val,), None, dims)

    def slice(self, val: Val, dim: int, start: int, size: Mono, step: int = 1) -> Val:
        shape = [size if d == dim else s for d, s in enumerate(val.shape)]
        dims = [([] if size.is_one else [self.atom(size)]) if d == dim else v for d, v in enumerate(val.dims)]
        return self.new("slice", shape, val.dtype, (val,), (dim, start, step), dims)

    def reduce(self, kind: str, val: Val, over: Sequence[int], dtype: str, keepdim: bool) -> Val:
        over = sorted({d % len(val.shape) for d in over}) if over else list(range(len(val.shape)))
        shape, dims = [], []
        for d, size in enumerate(val.shape):
            if d not in over:
                shape.append(size)
                dims.append(val.dims[d])
            elif keepdim:
                shape.append(ONE)
                dims.append([])
        return self.new("reduce", shape, dtype, (val,), (kind, tuple(over), keepdim), dims)

    def product(self, left: Val, right: Val, dtype: str) -> Val:
        """left [..., m, k] times right [..., k, n]. `data` holds the atoms of k; no two of batch, m, k and n share one.
        With products as "sums", it is written as what it is: products of elements, summed over k."""
        if self._products == "sums":
            return self._summed(left, right, dtype)
        batch = list(left.dims[:-2])
        for a, b in zip(batch, right.dims[:-2], strict=True):
            if a and b:
                self.unify(a, b)
        m = left.dims[-2]
        k = self._apart(left.dims[-1], [*batch, m])
        if k is left.dims[-1] and k:
            self.unify(k, right.dims[-2])
        n = self._apart(right.dims[-1], [*batch, m, k])
        shape = (*left.shape[:-1], right.shape[-1])
        return self.new("product", shape, dtype, (left, right), list(k), [*batch, list(m), list(n)])

    def _summed(self, left: Val, right: Val, dtype: str) -> Val:
        (*batch, m, k), n, rank = left.shape, right.shape[-1], len(left.shape)
        turned = self.permute(right, [*range(rank - 2), rank - 1, rank - 2])
        factors = [self.reshape(left, [*batch, m, ONE, k]), self.reshape(turned, [*right.shape[:-2], ONE, n, k])]
        total = self.reduce("sum", self.point("mul", factors, "f32"), [rank], dtype, False)
        self.summed.add(total)
        return total

    # ------------------------------------------------------------ atoms

    def atom(self, size: Mono) -> str:
        name = f"a{len(self.sizes)}"
        self.sizes[name] = size
        return name

    def resolve(self, atoms: Sequence[str]) -> list[str]:
        """The current, indivisible atoms behind a list."""
        out: list[str] = []
        for a in atoms:
            out += self.resolve(self._parent[a]) if a in self._parent else [a]
        return out

    def unify(self, left: Sequence[str], right: Sequence[str]) -> None:
        """Make two products of atoms one: equal sizes join, a larger atom splits into the smaller and the rest.

        Sharing atoms only aligns loops; indices are right without it. So two loops of one value (x and its transpose
        added) are left apart."""
        a, b = self.resolve(left), self.resolve(right)
        while a and b:
            x, y = a.pop(), b.pop()
            if x == y:
                continue
            if self._together(x, y):
                return
            sx, sy = self.sizes[x], self.sizes[y]
            if sx == sy:
                self._parent[y] = [x]
            elif (rest := sx.divide(sy)) is not None:
                a.append(self._split(x, rest, y))
            elif (rest := sy.divide(sx)) is not None:
                b.append(self._split(y, rest, x))
            else:
                raise Unsupported(f"sizes {sx.c()} and {sy.c()} do not divide each other in a reshape")
            a, b = self.resolve(a), self.resolve(b)
        if a or b:
            raise Unsupported("a reshape that changes the number of elements")

    def _together(self, x: str, y: str) -> bool:
        """Whether some value loops over both."""
        return any({x, y} <= {a for d in v.dims for a in self.resolve(d)} for v in self.vals)

    def _split(self, atom: str, rest: Mono, inner: str) -> str:
        outer = self.atom(rest)
        self._parent[atom] = [outer, inner]
        return outer


Translate = Callable[[Graph, Node], Sequence[Val | None]]


def dtype_of(arg: Arg, default: str) -> str:
    return arg.dtype if isinstance(arg, DtypeArg) else default


def static_count(m: Mono) -> float:
    """Elements of a size for cost estimates: symbols count as 256."""
    return m.coef * math.pow(256, len(m.symbols))
