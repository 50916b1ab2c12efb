"""Strided views through chains of view-like nodes: where an element of q, k or v lies in the workload's inputs.

A logical dimension is a list of (size, stride) factors, outer first, so that what grouped-query models do to their keys
(unsqueeze, expand, clone, reshape: heads = KV heads x group, the group with stride 0) is still a view of the input.

Sizes are compared by value at fixed large primes instead of symbolically: two expressions over symbols that agree on
all probes are the same polynomial for every purpose here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accelopt_compile.records import Dim, Node, Ref, SymbolArg, TensorSpec, Workload, evaluate_dim

_PRIMES = (15485863, 32452843, 49979687, 67867967, 86028121, 104395301, 122949823, 141650939, 160481183, 179424673)


class NotAView(Exception):
    """The chain is not a strided view; the text is the reason."""


@dataclass(frozen=True)
class Size:
    """An integer expression: text over the symbols as a workload writes its sizes, and its value at the probes."""

    text: str
    probe: tuple[int, ...]

    @staticmethod
    def of(dim: Dim, symbols: Sequence[str]) -> Size:
        bindings = [{s: _PRIMES[(i + 3 * p) % len(_PRIMES)] for i, s in enumerate(symbols)} for p in range(3)]
        text = str(dim) if isinstance(dim, int) or dim.isidentifier() else f"({dim})"
        return Size(text, tuple(evaluate_dim(dim, b) for b in bindings))

    @staticmethod
    def number(value: int) -> Size:
        return Size(str(value), (value,) * 3)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.probe == other.probe

    def __hash__(self) -> int:
        return hash(self.probe)

    def __mul__(self, other: Size) -> Size:
        for a, b in ((self, other), (other, self)):
            if a.static == 1:
                return b
            if a.static == 0:
                return a
        probe = tuple(x * y for x, y in zip(self.probe, other.probe, strict=True))
        return Size.number(probe[0]) if len(set(probe)) == 1 else Size(f"{self.text}*{other.text}", probe)

    def __add__(self, other: Size) -> Size:
        probe = tuple(x + y for x, y in zip(self.probe, other.probe, strict=True))
        return Size.number(probe[0]) if len(set(probe)) == 1 else Size(f"({self.text} + {other.text})", probe)

    def over(self, other: Size) -> Size | None:
        """The exact quotient, or None."""
        if any(b == 0 or a % b for a, b in zip(self.probe, other.probe, strict=True)):
            return None
        probe = tuple(a // b for a, b in zip(self.probe, other.probe, strict=True))
        return Size.number(probe[0]) if len(set(probe)) == 1 else Size(f"({self.text})//({other.text})", probe)

    @property
    def static(self) -> int | None:
        """The integer, when no symbol is involved."""
        return self.probe[0] if len(set(self.probe)) == 1 else None


ONE = Size.number(1)
ZERO = Size.number(0)
Factor = tuple[Size, Size]
Factors = tuple[Factor, ...]


@dataclass(frozen=True, kw_only=True)
class View:
    """`dims[i]` are the factors of logical dimension i of a value that lies in `source`, `offset` elements in."""

    source: Ref
    offset: Size
    dims: tuple[Factors, ...]


def merged(factors: Sequence[Factor]) -> Factors:
    """Without factors of size 1, and with neighbours that lie contiguously joined."""
    out: list[Factor] = []
    for size, stride in factors:
        if size == ONE:
            continue
        if out and out[-1][1] == size * stride:
            out[-1] = (out[-1][0] * size, stride)
        else:
            out.append((size, stride))
    return tuple(out)


def view_of(source: Ref, spec: TensorSpec, symbols: Sequence[str]) -> View:
    """The identity view of an input."""
    pairs = zip(spec.shape, spec.strides, strict=True)
    return View(source=source, offset=ZERO, dims=tuple(((Size.of(n, symbols), Size.of(s, symbols)),) for n, s in pairs))


def size_of(factors: Factors) -> Size:
    """Elements of one logical dimension."""
    total = ONE
    for size, _ in factors:
        total = total * size
    return total


def _reshape(view: View, shape: Sequence[Size]) -> View:
    rest = list(merged([f for dim in view.dims for f in dim]))
    dims: list[Factors] = []
    for target in shape:
        taken: list[Factor] = []
        while target != ONE:
            if not rest:
                raise NotAView("a reshape does not fit the layout")
            size, stride = rest.pop(0)
            if (left := target.over(size)) is not None:
                taken.append((size, stride))
                target = left
            elif (inner := size.over(target)) is not None:
                taken.append((target, inner * stride))
                rest.insert(0, (inner, stride))
                target = ONE
            else:
                raise NotAView("a reshape does not fit the layout")
        dims.append(tuple(taken))
    if rest:
        raise NotAView("a reshape does not fit the layout")
    return View(source=view.source, offset=view.offset, dims=tuple(dims))


def _single(factors: Factors) -> Factor:
    joined = merged(factors)
    if len(joined) > 1:
        raise NotAView("a slice of a dimension that is not one stride")
    return joined[0] if joined else (ONE, ZERO)


def _index(arg: object, symbols: Sequence[str]) -> Size:
    if isinstance(arg, SymbolArg):
        return Size.of(arg.expr, symbols)
    if isinstance(arg, int):
        return Size.number(arg)
    raise NotAView(f"an index is {arg!r}")


RESHAPES = {"view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "_reshape_copy"}
SAME = {"clone", "alias", "contiguous", "detach", "lift_fresh_copy"}
VIEW_OPS = RESHAPES | SAME | {"permute", "transpose", "t", "expand", "slice", "select"}


def op_name(node: Node) -> str:
    """ "permute" of "aten.permute.default"."""
    return node.op.split(".")[1]


def apply_view(node: Node, view: View, workload: Workload) -> View:
    """`view` seen through one view-like node. Raises NotAView."""
    symbols, dims, name = workload.symbols, view.dims, op_name(node)
    shape = [Size.of(d, symbols) for d in node.outputs[0].shape]
    args = node.args
    if name in SAME:
        return view
    if name in RESHAPES:
        return _reshape(view, shape)
    if name == "permute":
        order = args[1] if len(args) == 2 and isinstance(args[1], tuple) else args[1:]
        return View(source=view.source, offset=view.offset, dims=tuple(dims[int(i)] for i in order))
    if name in ("transpose", "t"):
        a, b = (int(args[1]) % len(dims), int(args[2]) % len(dims)) if name == "transpose" else (0, len(dims) - 1)
        swapped = list(dims)
        swapped[a], swapped[b] = dims[b], dims[a]
        return View(source=view.source, offset=view.offset, dims=tuple(swapped))
    if name == "expand":
        old = ((),) * (len(shape) - len(dims)) + dims
        new = tuple(d if size_of(d) == n else ((n, ZERO),) for d, n in zip(old, shape, strict=True))
        if any(size_of(d) != n and size_of(d) != ONE for d, n in zip(old, shape, strict=True)):
            raise NotAView("an expand of a dimension that is not 1")
        return View(source=view.source, offset=view.offset, dims=new)
    return _cut(name, args, view, shape, symbols)


def _cut(name: str, args: Sequence[object], view: View, shape: Sequence[Size], symbols: Sequence[str]) -> View:
    """slice.Tensor and select.int."""
    axis = int(args[1]) if len(args) > 1 and isinstance(args[1], int) else 0
    axis %= len(view.dims)
    size, stride = _single(view.dims[axis])
    start = _index(args[2] if len(args) > 2 and args[2] is not None else 0, symbols)
    if start.probe[0] < 0:
        start = start + size
    offset = view.offset + start * stride
    before, after = view.dims[:axis], view.dims[axis + 1 :]
    if name == "select":
        return View(source=view.source, offset=offset, dims=before + after)
    step = _index(args[4] if len(args) > 4 else 1, symbols)
    return View(source=view.source, offset=offset, dims=(*before, ((shape[axis], stride * step),), *after))
