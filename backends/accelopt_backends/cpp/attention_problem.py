"""What one attention region asks for: found in the workload, or the reason why it is not one.

The region is `aten._scaled_dot_product_flash_attention_for_cpu` on views of its inputs, its mask perhaps made by
`where(keep, 0, -inf)`, its output perhaps viewed once more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from accelopt_backends.cpp.attention_mask import MadeMask, made_mask
from accelopt_backends.cpp.attention_views import (
    ONE,
    VIEW_OPS,
    ZERO,
    Factor,
    NotAView,
    Size,
    View,
    apply_view,
    merged,
    op_name,
    size_of,
    view_of,
)
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records import Arg, Node, Ref, TensorSpec, Workload

FLASH = "aten._scaled_dot_product_flash_attention_for_cpu.default"
C_TYPES = {"f32": "float", "bf16": "bf16", "f16": "f16"}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Everything the text needs. `fields` are C++ expressions over the symbols, by the names in struct Problem;
    `tensors` the C++ pointer expressions; `mask` is "", a C type of an additive mask, or "b8"; `mask_keeps` says
    whether true means "may be seen"."""

    dtype: str
    dim: int
    causal: bool
    scale: float
    mask: str
    mask_keeps: bool
    made: MadeMask | None
    fields: Mapping[str, str]
    tensors: Mapping[str, str]
    unit_kv: bool
    group: int | None
    queries: int | None


def find(workload: Workload) -> Problem:
    """The attention problem in `workload`. Raises NotAView with the reason when there is none."""
    places = [i for i, n in enumerate(workload.nodes) if n.op == FLASH]
    if len(places) != 1:
        raise NotAView("not exactly one flash attention")
    try:
        return _Finder(workload, places[0]).problem()
    except InvalidRecord as failure:
        raise NotAView(str(failure)) from failure


class _Finder:
    def __init__(self, workload: Workload, place: int) -> None:
        self.workload = workload
        self.place = place
        self.node = workload.nodes[place]
        self.used = {place}
        self.fields: dict[str, str] = {}
        self.tensors: dict[str, str] = {}
        self.made: MadeMask | None = None

    def problem(self) -> Problem:
        spec = self.node.outputs[0]
        kwargs = dict(self.node.kwargs)
        args = (*self.node.args, 0.0, False)[:5] if len(self.node.args) == 3 else (*self.node.args, False)[:5]
        dim = spec.shape[-1]
        if spec.dtype not in C_TYPES or len(spec.shape) != 4:
            raise NotAView(f"attention in {spec.dtype}")
        if not isinstance(dim, int) or not 1 <= dim <= 512:
            raise NotAView("the head size is not a number from 1 to 512")
        if kwargs.get("dropout_p", args[3]) != 0:
            raise NotAView("attention with dropout")
        scale = kwargs.get("scale")
        if scale is not None and not isinstance(scale, int | float):
            raise NotAView("the scale is not a number")
        if scale is not None and not 1e-30 < abs(scale) < 1e30:
            raise NotAView(f"a scale of {scale}")
        q, k, v = (self.view(a, spec.dtype) for a in args[:3])
        group = self.sizes(q, k, v)
        self.strides("q", q)
        mask, keeps = self.mask(kwargs.get("attn_mask"))
        self.outputs()
        for i, node in enumerate(self.workload.nodes):
            if i not in self.used:
                raise NotAView(f"{node.op} beside the attention")
        return Problem(
            dtype=spec.dtype, dim=dim, causal=bool(kwargs.get("is_causal", args[4])), mask=mask, mask_keeps=keeps, made=self.made,
            scale=1.0 / math.sqrt(dim) if scale is None else float(scale), fields=self.fields, tensors=self.tensors,
            unit_kv=self.fields["kd"] == self.fields["vd"] == "1", group=group.static, queries=size_of(q.dims[2]).static,
        )  # fmt: skip

    def view(self, arg: Arg, dtype: str) -> View:
        """The strided view behind an argument, through view-like nodes down to an input."""
        if not isinstance(arg, Ref):
            raise NotAView(f"an operand is {arg!r}")
        spec = self.workload.spec_of(arg)
        if spec.dtype != dtype:
            raise NotAView(f"an operand in {spec.dtype} beside {dtype}")
        if arg.kind == "i":
            return view_of(arg, spec, self.workload.symbols)
        node = self.workload.nodes[arg.index]
        if op_name(node) not in VIEW_OPS or arg.index > self.place:
            raise NotAView(f"{node.op} before the attention")
        self.used.add(arg.index)
        return apply_view(node, self.view(node.args[0], dtype), self.workload)

    def sizes(self, q: View, k: View, v: View) -> Size:
        """Sizes and the strides of k and v; returns the group: how many query heads share a KV head."""
        heads = size_of(q.dims[1])
        kv, group = _heads(k, heads)
        if _heads(v, heads)[0] != kv:
            raise NotAView("keys and values differ in their heads")
        sizes = {"batch": size_of(q.dims[0]), "kv_heads": kv, "group": group}
        sizes |= {"queries": size_of(q.dims[2]), "keys": size_of(k.dims[2])}
        self.fields |= {name: size.text for name, size in sizes.items()}
        for name, view in (("k", k), ("v", v)):
            outer = [f for f in merged(view.dims[1]) if f[1] != ZERO or f[0] != group or group == ONE]
            dims = (view.dims[0], tuple(outer), *view.dims[2:])
            self.strides(name, View(source=view.source, offset=view.offset, dims=dims))
        return group

    def strides(self, name: str, view: View, broadcast: bool = False) -> None:
        """Pointer and the four strides of `view` (fewer dimensions: from the right)."""
        letters = "bhsk" if broadcast else "bhsd"
        dims = ((),) * (4 - len(view.dims)) + view.dims
        for letter, factors in zip(letters, dims, strict=True):
            self.fields[name[0] + letter] = _one_stride(factors)[1].text
        self.tensors["mask" if broadcast else name] = f"tensors[{view.source.index}] + {view.offset.text}"

    def mask(self, arg: Arg) -> tuple[str, bool]:
        if arg is None:
            return "", True
        node = self.workload.nodes[arg.index] if isinstance(arg, Ref) and arg.kind == "n" else None
        if isinstance(arg, Ref) and node is not None and op_name(node) in ("expand", "alias", "clone") and self._selects(node):
            # A view of the made mask is the made mask of a view: broadcasting only widens dimensions.
            self.used.add(arg.index)
            return self.mask(node.args[0])
        if node is not None and op_name(node) == "where":
            self.used.add(arg.index)
            keeps = [self.constant(a) for a in node.args[1:]]
            if keeps not in ([0.0, -math.inf], [-math.inf, 0.0]):
                raise NotAView("a mask made of other values than 0 and -inf")
            try:
                self.strides("mask", self.view(node.args[0], "b8"), broadcast=True)
            except NotAView:
                self.made = made_mask(self.workload, node.args[0], self.used.add)
            return "b8", keeps[0] == 0.0
        dtype = self.workload.spec_of(arg).dtype if isinstance(arg, Ref) else ""
        if dtype not in C_TYPES:
            raise NotAView(f"a mask in {dtype}")
        self.strides("mask", self.view(arg, dtype), broadcast=True)
        return C_TYPES[dtype], True

    def _selects(self, node: Node) -> bool:
        source = node.args[0]
        return isinstance(source, Ref) and source.kind == "n" and op_name(self.workload.nodes[source.index]) == "where"

    def constant(self, arg: Arg) -> float:
        """A literal, or what scalar_tensor or full makes of one."""
        if isinstance(arg, Ref) and arg.kind == "n":
            node = self.workload.nodes[arg.index]
            position = {"scalar_tensor": 0, "full": 1}.get(op_name(node))
            if position is not None:
                self.used.add(arg.index)
                return self.constant(node.args[position])
        if not isinstance(arg, int | float):
            raise NotAView("a mask made of tensors")
        return float(arg)

    def outputs(self) -> None:
        """Strides of the output and, where asked for, of the logsumexp."""
        self.tensors |= {"out": "", "lse": ""}
        self.fields |= {"lb": "0", "lh": "0", "ls": "0"}
        for number, (ref, spec) in enumerate(zip(self.workload.outputs, self.workload.output_specs, strict=True)):
            name = self._output(ref, spec)
            if self.tensors[name]:
                raise NotAView("an output twice")
            self.tensors[name] = f"tensors[{len(self.workload.inputs) + number}]"
        if not self.tensors["out"]:
            raise NotAView("the attention's output is not an output")

    def _output(self, ref: Ref, spec: TensorSpec) -> str:
        chain: list[Node] = []
        while ref.kind == "n" and ref.index != self.place and op_name(self.workload.nodes[ref.index]) in VIEW_OPS:
            self.used.add(ref.index)
            chain.insert(0, self.workload.nodes[ref.index])
            ref = chain[0].args[0]
        if ref.kind != "n" or ref.index != self.place:
            raise NotAView("an output beside the attention")
        source = self.node.outputs[ref.output]
        axes = ("ob", "oh", "os", "od") if ref.output == 0 else ("lb", "lh", "ls")
        sizes = [Size.of(d, self.workload.symbols) for d in source.shape]
        # Strides that no product of sizes equals: each axis can be told apart at the end of the chain.
        tags = [Size(f"tag{i}", (7 ** (20 + i),) * 3) for i in range(len(axes))]
        view = View(source=ref, offset=ZERO, dims=tuple(((n, t),) for n, t in zip(sizes, tags, strict=True)))
        for node in chain:
            view = apply_view(node, view, self.workload)
        found = dict.fromkeys(axes, ZERO)
        for factors, stride in zip(view.dims, spec.strides, strict=True):
            inner = Size.of(stride, self.workload.symbols)
            for size, tag in reversed(factors):
                if size == ONE:
                    continue
                axis = tags.index(tag) if tag in tags else -1
                if axis < 0 or size != sizes[axis]:
                    raise NotAView("an output that is not a permutation of the attention's")
                found[axes[axis]] = inner
                inner = inner * size
        if view.offset != ZERO:
            raise NotAView("an output that is a part of the attention's")
        self.fields |= {name: stride.text for name, stride in found.items()}
        return "out" if ref.output == 0 else "lse"


def _one_stride(factors: tuple[Factor, ...]) -> Factor:
    joined = merged(factors)
    if len(joined) > 1:
        raise NotAView("a dimension that is not one stride")
    return joined[0] if joined else (ONE, ZERO)


def _heads(view: View, heads: Size) -> tuple[Size, Size]:
    """(KV heads, group) of the heads dimension of k or v: expanded within the workload, or fewer than the query's."""
    factors = merged(view.dims[1])
    if len(factors) == 2 and factors[1][1] == ZERO:
        kv, group = factors[0][0], factors[1][0]
    elif len(factors) == 1 and factors[0][1] == ZERO and factors[0][0] == heads:
        kv, group = ONE, heads
    elif len(factors) <= 1:
        kv = size_of(factors)
        quotient = heads.over(kv)
        if quotient is None:
            raise NotAView("the query's heads are no multiple of the keys'")
        group = quotient
    else:
        raise NotAView("heads that are not one stride")
    if kv * group != heads:
        raise NotAView("the query's heads are no multiple of the keys'")
    return kv, group
