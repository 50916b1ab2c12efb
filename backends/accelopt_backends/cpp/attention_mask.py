"""Masks made within the region: a boolean expression over inputs and positions, as C++ text.

Decoder models build their mask from comparisons of positions and a padding mask. Where the region contains that
arithmetic, the kernel evaluates it once per call into scratch, for as many batches and heads as the mask has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from accelopt_backends.cpp.attention_views import VIEW_OPS, NotAView, Size, View, apply_view, merged, op_name, view_of
from accelopt_compile.records import Arg, Node, Ref, SymbolArg, Workload

C_INTEGERS = {"b8": "unsigned char", "i64": "long long", "i32": "int", "u8": "unsigned char"}

_BINARY = {
    "bitwise_and": "&", "logical_and": "&&", "bitwise_or": "|", "logical_or": "||", "bitwise_xor": "^",
    "le": "<=", "lt": "<", "ge": ">=", "gt": ">", "eq": "==", "ne": "!=",
}  # fmt: skip
_INTEGER = {"add": "+", "sub": "-", "mul": "*"}
_SAME = {"alias", "clone", "expand", "detach"}


@dataclass(frozen=True, kw_only=True)
class MadeMask:
    """`text` is the condition at (b, h, i, j): may query i see key j; `sizes` C++ text of the mask's four sizes."""

    text: str
    sizes: tuple[str, str, str, str]


def made_mask(workload: Workload, ref: Ref, used: Callable[[int], None]) -> MadeMask:
    """The mask that `ref` computes; reports each node that takes part to `used`. Raises NotAView with the reason."""
    shape = workload.spec_of(ref).shape
    if len(shape) > 4 or workload.spec_of(ref).dtype != "b8":
        raise NotAView("a mask of another kind")
    texts = [Size.of(d, workload.symbols).text for d in (*(1,) * (4 - len(shape)), *shape)]
    return MadeMask(text=_Mask(workload, used).text(ref), sizes=(texts[0], texts[1], texts[2], texts[3]))


class _Mask:
    def __init__(self, workload: Workload, used: Callable[[int], None]) -> None:
        self.workload = workload
        self.used = used

    def text(self, arg: Arg) -> str:
        if isinstance(arg, bool | int):
            return str(int(arg))
        if isinstance(arg, SymbolArg):
            return f"(i64){Size.of(arg.expr, self.workload.symbols).text}"
        if not isinstance(arg, Ref):
            raise NotAView(f"a mask made with {arg!r}")
        if self.workload.spec_of(arg).dtype not in C_INTEGERS:
            raise NotAView(f"a mask made of {self.workload.spec_of(arg).dtype}")
        if (leaf := self.leaf(arg)) is not None:
            return leaf
        node = self.workload.nodes[arg.index]
        self.used(arg.index)
        return self.call(node)

    def call(self, node: Node) -> str:
        """One pointwise call. Broadcasting needs nothing: leaves have stride 0 where their size is 1."""
        name = op_name(node)
        integer = all(self.workload.spec_of(a).dtype in ("i64", "i32") for a in node.args if isinstance(a, Ref))
        if name in ("full", "scalar_tensor"):
            return self.text(node.args[1 if name == "full" else 0])
        if name in _SAME:
            return self.text(node.args[0])
        if name in ("bitwise_not", "logical_not") and node.outputs[0].dtype == "b8":
            return f"!({self.text(node.args[0])})"
        if name in ("convert_element_type", "_to_copy") and node.outputs[0].dtype == "b8":
            return f"(({self.text(node.args[0])}) != 0)"
        if name in _BINARY or (name in _INTEGER and integer and not node.kwargs):
            a, b = node.args
            return f"({self.text(a)} {(_BINARY | _INTEGER)[name]} {self.text(b)})"
        raise NotAView(f"{node.op} before the attention")

    def leaf(self, ref: Ref) -> str | None:
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
        place = [view.offset.text] if view.offset.static != 0 else []
        for name, factors in zip("bhij", dims, strict=True):
            joined = merged(factors)
            if len(joined) > 1:
                raise NotAView("a mask with a dimension that is not one stride")
            if joined and joined[0][1].static != 0:
                place.append(f"{name}*{joined[0][1].text}")
        index_text = " + ".join(place) or "0"
        if view.source.kind == "n":
            return f"({index_text})"
        kind = C_INTEGERS[self.workload.inputs[view.source.index].dtype]
        return f"((const {kind}*)tensors[{view.source.index}])[{index_text}]"

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
