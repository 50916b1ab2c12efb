"""Masks made within the region: a boolean expression over inputs and positions.

Decoder models build their mask from comparisons of positions and a padding mask. Where the region contains that
arithmetic, a kernel evaluates it itself. The expression is data; a backend writes it in its language.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from accelopt_backends.loops.attention_views import VIEW_OPS, NotAView, Size, View, apply_view, merged, op_name, view_of
from accelopt_compile.records import Arg, Node, Ref, SymbolArg, Workload

INTEGERS = ("b8", "i64", "i32", "u8")

_BINARY = {
    "bitwise_and": "&", "logical_and": "&&", "bitwise_or": "|", "logical_or": "||", "bitwise_xor": "^",
    "le": "<=", "lt": "<", "ge": ">=", "gt": ">", "eq": "==", "ne": "!=",
}  # fmt: skip
_INTEGER = {"add": "+", "sub": "-", "mul": "*"}
_SAME = {"alias", "clone", "expand", "detach"}


@dataclass(frozen=True)
class Number:
    """A literal, or a size."""

    value: Size | int


@dataclass(frozen=True)
class Element:
    """The element of input `source` at `offset` plus each stride times its index (b, h, i or j); the address itself where
    `source` is None, which is what an iota holds."""

    source: int | None
    dtype: str
    offset: Size
    strides: tuple[tuple[str, Size], ...]


@dataclass(frozen=True)
class Call:
    """One element-wise call: "not", "nonzero", or one of C's binary operators."""

    op: str
    args: tuple[Condition, ...]


Condition = Number | Element | Call


@dataclass(frozen=True, kw_only=True)
class MadeMask:
    """`condition` at (b, h, i, j): may query i see key j; `sizes` are the mask's four sizes."""

    condition: Condition
    sizes: tuple[Size, Size, Size, Size]


def made_mask(workload: Workload, ref: Ref, used: Callable[[int], None]) -> MadeMask:
    """The mask that `ref` computes; reports each node that takes part to `used`. Raises NotAView with the reason."""
    shape = workload.spec_of(ref).shape
    if len(shape) > 4 or workload.spec_of(ref).dtype != "b8":
        raise NotAView("a mask of another kind")
    b, h, i, j = (Size.of(d, workload.symbols) for d in (*(1,) * (4 - len(shape)), *shape))
    return MadeMask(condition=_Mask(workload, used).condition(ref), sizes=(b, h, i, j))


class _Mask:
    def __init__(self, workload: Workload, used: Callable[[int], None]) -> None:
        self.workload = workload
        self.used = used

    def condition(self, arg: Arg) -> Condition:
        if isinstance(arg, bool | int):
            return Number(int(arg))
        if isinstance(arg, SymbolArg):
            return Number(Size.of(arg.expr, self.workload.symbols))
        if not isinstance(arg, Ref):
            raise NotAView(f"a mask made with {arg!r}")
        if self.workload.spec_of(arg).dtype not in INTEGERS:
            raise NotAView(f"a mask made of {self.workload.spec_of(arg).dtype}")
        if (leaf := self.leaf(arg)) is not None:
            return leaf
        node = self.workload.nodes[arg.index]
        self.used(arg.index)
        return self.call(node)

    def call(self, node: Node) -> Condition:
        """One pointwise call. Broadcasting needs nothing: leaves have stride 0 where their size is 1."""
        name = op_name(node)
        integer = all(self.workload.spec_of(a).dtype in ("i64", "i32") for a in node.args if isinstance(a, Ref))
        if name in ("full", "scalar_tensor"):
            return self.condition(node.args[1 if name == "full" else 0])
        if name in _SAME:
            return self.condition(node.args[0])
        if name in ("bitwise_not", "logical_not") and node.outputs[0].dtype == "b8":
            return Call("not", (self.condition(node.args[0]),))
        if name in ("convert_element_type", "_to_copy") and node.outputs[0].dtype == "b8":
            return Call("nonzero", (self.condition(node.args[0]),))
        if name in _BINARY or (name in _INTEGER and integer and not node.kwargs):
            a, b = node.args
            return Call((_BINARY | _INTEGER)[name], (self.condition(a), self.condition(b)))
        raise NotAView(f"{node.op} before the attention")

    def leaf(self, ref: Ref) -> Element | None:
        """An element of an input, or a position, seen through views; None when it is computed."""
        touched: list[int] = []
        view = self.view(ref, touched)
        if view is None:
            return None
        for index in touched:
            self.used(index)
        dims = ((),) * (4 - len(view.dims)) + view.dims
        if len(dims) > 4:
            raise NotAView("a mask of more than four dimensions")
        strides = []
        for name, factors in zip("bhij", dims, strict=True):
            joined = merged(factors)
            if len(joined) > 1:
                raise NotAView("a mask with a dimension that is not one stride")
            if joined and joined[0][1].static != 0:
                strides.append((name, joined[0][1]))
        source = None if view.source.kind == "n" else view.source.index
        dtype = "i64" if source is None else self.workload.inputs[source].dtype
        return Element(source, dtype, view.offset, tuple(strides))

    def view(self, ref: Ref, touched: list[int]) -> View | None:
        """Down to an input or an iota; an iota is a tensor whose elements are their own addresses."""
        symbols = self.workload.symbols
        if ref.kind == "i":
            return view_of(ref, self.workload.inputs[ref.index], symbols)
        node, name = self.workload.nodes[ref.index], op_name(self.workload.nodes[ref.index])
        if name == "iota":
            touched.append(ref.index)
            options = dict(node.kwargs)
            start, step = (self._size(options.get(k, d)) for k, d in (("start", 0), ("step", 1)))
            return View(source=ref, offset=start, dims=(((Size.of(node.outputs[0].shape[0], symbols), step),),))
        if name not in VIEW_OPS or not isinstance(node.args[0], Ref):
            return None
        below = self.view(node.args[0], touched)
        touched.append(ref.index)
        return None if below is None else apply_view(node, below, self.workload)

    def _size(self, value: Arg) -> Size:
        if isinstance(value, SymbolArg):
            return Size.of(value.expr, self.workload.symbols)
        if isinstance(value, int):
            return Size.number(value)
        raise NotAView(f"a position of {value!r}")
