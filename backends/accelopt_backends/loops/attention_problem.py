"""What one attention region asks for: found in the workload, or the reason why it is not one.

The region is one attention operator, forward or backward, on views of its inputs, its mask perhaps made by
`where(keep, 0, -inf)`, its outputs perhaps viewed once more. Workloads spell every device's operator one way
(accelopt_compile/attention.py); sizes and strides are data, each backend writes them in its language.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accelopt_backends.loops.attention_mask import MadeMask, made_mask
from accelopt_backends.loops.attention_views import (
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

FORWARD = "aten._scaled_dot_product_flash_attention_for_cpu.default"
BACKWARD = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
DTYPES = ("f32", "bf16", "f16")
_FORWARD_OUTPUTS = (("out", "bhsd"), ("lse", "bhs"))
_BACKWARD_OUTPUTS = (("dq", "bhsd"), ("dk", "bhsd"), ("dv", "bhsd"))
_LETTER = {"mask": "m", "out": "o", "lse": "l", "grad": "g"}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a tensor starts: `number` counts inputs, then outputs; `offset` in elements."""

    number: int
    offset: Size


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Everything a kernel's text needs. `sizes` has batch, kv_heads, group (query heads that share a KV head), queries,
    keys; `strides` has a tensor's letters (q, k, v, m: mask, o: out, l: lse, g: gradient, dq, dk, dv) followed by b, h, s
    (or k: a mask's keys) or d. `mask` is "" or the mask's dtype; "b8" is one that `mask_keeps` says the meaning of:
    whether true means "may be seen". `made` is that mask where the region computes it."""

    backward: bool
    dtype: str
    dim: int
    causal: bool
    scale: float
    mask: str
    mask_keeps: bool
    made: MadeMask | None
    sizes: Mapping[str, Size]
    strides: Mapping[str, Size]
    tensors: Mapping[str, Place]

    @property
    def unit_kv(self) -> bool:
        """Whether the elements of a key, and of a value, lie side by side."""
        return self.strides["kd"] == self.strides["vd"] == ONE

    @property
    def group(self) -> int | None:
        return self.sizes["group"].static

    @property
    def queries(self) -> int | None:
        return self.sizes["queries"].static


def find(workload: Workload, *, backward: bool = False) -> Problem:
    """The attention problem in `workload`, of its forward or its backward operator. Raises NotAView with the reason when
    there is none."""
    places = [i for i, n in enumerate(workload.nodes) if n.op == (BACKWARD if backward else FORWARD)]
    if len(places) != 1:
        raise NotAView(f"not exactly one flash attention{' backward' * backward}")
    try:
        return _Finder(workload, places[0], backward).problem()
    except InvalidRecord as failure:
        raise NotAView(str(failure)) from failure


class _Finder:
    def __init__(self, workload: Workload, place: int, backward: bool) -> None:
        self.workload = workload
        self.place = place
        self.backward = backward
        self.node = workload.nodes[place]
        self.used = {place}
        self.sizes: dict[str, Size] = {}
        self.strides: dict[str, Size] = {}
        self.tensors: dict[str, Place] = {}
        self.made: MadeMask | None = None

    def problem(self) -> Problem:
        spec = self.node.outputs[0]
        kwargs = dict(self.node.kwargs)
        tensors, dropout, causal = self.arguments()
        dim = spec.shape[-1]
        if spec.dtype not in DTYPES or len(spec.shape) != 4:
            raise NotAView(f"attention in {spec.dtype}")
        if not isinstance(dim, int) or not 1 <= dim <= 512:
            raise NotAView("the head size is not a number from 1 to 512")
        if kwargs.get("dropout_p", dropout) != 0:
            raise NotAView("attention with dropout")
        scale = kwargs.get("scale")
        if scale is not None and not isinstance(scale, int | float):
            raise NotAView("the scale is not a number")
        if scale is not None and not 1e-30 < abs(scale) < 1e30:
            raise NotAView(f"a scale of {scale}")
        views = {name: self.view(tensors[name], "f32" if name == "lse" else spec.dtype) for name in tensors}
        self.measure(views["q"], views["k"], views["v"])
        for name in [n for n in views if n not in ("k", "v")]:
            self.lay(name, views[name])
        mask, keeps = self.mask(kwargs.get("attn_mask"))
        self.outputs(_BACKWARD_OUTPUTS if self.backward else _FORWARD_OUTPUTS)
        for i, node in enumerate(self.workload.nodes):
            if i not in self.used:
                raise NotAView(f"{node.op} beside the attention")
        return Problem(
            backward=self.backward, dtype=spec.dtype, dim=dim, causal=bool(kwargs.get("is_causal", causal)), mask=mask,
            mask_keeps=keeps, made=self.made, scale=1.0 / math.sqrt(dim) if scale is None else float(scale),
            sizes=self.sizes, strides=self.strides, tensors=self.tensors,
        )  # fmt: skip

    def arguments(self) -> tuple[dict[str, Arg], Arg, Arg]:
        """(tensors by name, dropout, causal) of the call."""
        names = ("grad", "q", "k", "v", "out", "lse") if self.backward else ("q", "k", "v")
        count, defaults = len(names), (0.0, False)
        options = (*self.node.args[count:], *defaults[max(0, len(self.node.args) - count) :])
        return dict(zip(names, self.node.args, strict=False)), options[0], options[1]

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

    def measure(self, q: View, k: View, v: View) -> None:
        """Sizes, and the strides of k and v."""
        heads = size_of(q.dims[1])
        kv, group = _heads(k, heads)
        if _heads(v, heads)[0] != kv:
            raise NotAView("keys and values differ in their heads")
        if self.backward and size_of(k.dims[1]) != kv:
            raise NotAView("gradients of heads that the region expands")
        self.sizes = {"batch": size_of(q.dims[0]), "kv_heads": kv, "group": group}
        self.sizes |= {"queries": size_of(q.dims[2]), "keys": size_of(k.dims[2])}
        for name, view in (("k", k), ("v", v)):
            outer = [f for f in merged(view.dims[1]) if f[1] != ZERO or f[0] != group or group == ONE]
            dims = (view.dims[0], tuple(outer), *view.dims[2:])
            self.lay(name, View(source=view.source, offset=view.offset, dims=dims))

    def lay(self, name: str, view: View) -> None:
        """Place and strides of `view` (a mask of fewer dimensions: from the right)."""
        letters = "bhsk" if name == "mask" else "bhsd"[: 3 if name == "lse" else 4]
        if len(view.dims) > len(letters):
            raise NotAView(f"{len(view.dims)} dimensions")
        dims = ((),) * (len(letters) - len(view.dims)) + view.dims
        for letter, factors in zip(letters, dims, strict=True):
            self.strides[_LETTER.get(name, name) + letter] = _one_stride(factors)[1]
        self.tensors[name] = Place(number=view.source.index, offset=view.offset)

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
                self.lay("mask", self.view(node.args[0], "b8"))
            except NotAView:
                self.made = made_mask(self.workload, node.args[0], self.used.add)
            return "b8", keeps[0] == 0.0
        dtype = self.workload.spec_of(arg).dtype if isinstance(arg, Ref) else ""
        if dtype not in DTYPES:
            raise NotAView(f"a mask in {dtype}")
        self.lay("mask", self.view(arg, dtype))
        return dtype, True

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

    def outputs(self, results: Sequence[tuple[str, str]]) -> None:
        """Places and strides of the results that are asked for."""
        found: set[str] = set()
        for number, (ref, spec) in enumerate(zip(self.workload.outputs, self.workload.output_specs, strict=True)):
            name = self._output(ref, spec, results)
            if name in found:
                raise NotAView("an output twice")
            found.add(name)
            self.tensors[name] = Place(number=len(self.workload.inputs) + number, offset=ZERO)
        if "out" not in found and not self.backward:
            raise NotAView("the attention's output is not an output")

    def _output(self, ref: Ref, spec: TensorSpec, results: Sequence[tuple[str, str]]) -> str:
        chain: list[Node] = []
        while ref.kind == "n" and ref.index != self.place and op_name(self.workload.nodes[ref.index]) in VIEW_OPS:
            self.used.add(ref.index)
            chain.insert(0, self.workload.nodes[ref.index])
            ref = chain[0].args[0]
        if ref.kind != "n" or ref.index != self.place:
            raise NotAView("an output beside the attention")
        source = self.node.outputs[ref.output]
        name, letters = results[ref.output]
        sizes = [Size.of(d, self.workload.symbols) for d in source.shape]
        # Strides that no product of sizes equals: each axis can be told apart at the end of the chain.
        tags = [Size(f"tag{i}", (7 ** (20 + i),) * 3) for i in range(len(letters))]
        view = View(source=ref, offset=ZERO, dims=tuple(((n, t),) for n, t in zip(sizes, tags, strict=True)))
        for node in chain:
            view = apply_view(node, view, self.workload)
        found = dict.fromkeys(letters, ZERO)
        for factors, stride in zip(view.dims, spec.strides, strict=True):
            inner = Size.of(stride, self.workload.symbols)
            for size, tag in reversed(factors):
                if size == ONE:
                    continue
                axis = tags.index(tag) if tag in tags else -1
                if axis < 0 or size != sizes[axis]:
                    raise NotAView("an output that is not a permutation of the attention's")
                found[letters[axis]] = inner
                inner = inner * size
        if view.offset != ZERO:
            raise NotAView("an output that is a part of the attention's")
        self.strides |= {_LETTER.get(name, name) + letter: stride for letter, stride in found.items()}
        return name


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
