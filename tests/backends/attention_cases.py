"""Attention workloads built by hand, and what they should give: shared by the attention tests."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from accelopt_backends.cpp import CppBackend
from accelopt_compile.records import Dim, KernelSource, Node, Ref, SymbolArg, TensorSpec, Workload

FLASH = "aten._scaled_dot_product_flash_attention_for_cpu.default"
TORCH = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "b8": torch.bool, "i64": torch.int64}


def times(*dims: Dim) -> Dim:
    """Product of dimensions."""
    number = math.prod(d for d in dims if isinstance(d, int))
    names = [d for d in dims if isinstance(d, str)]
    return "*".join([*names, str(number)]) if names else number


def spec(dtype: str, *shape: Dim, order: tuple[int, ...] | None = None) -> TensorSpec:
    """Dense; `order` lists the dimensions from outermost in memory (default: as they come)."""
    strides: list[Dim] = [0] * len(shape)
    inner: Dim = 1
    for i in reversed(order or tuple(range(len(shape)))):
        strides[i], inner = inner, times(inner, shape[i])
    return TensorSpec(dtype=dtype, shape=tuple(shape), strides=tuple(strides))


def attention(
    dtype: str = "f32", *, heads: int = 4, kv: int = 4, dim: int = 64, causal: bool = False, queries: Dim = "s1",
    mask: TensorSpec | None = None, chain: bool = False, order: tuple[int, ...] = (0, 1, 2, 3), lse: bool = False,
    scale: float | None = None,
) -> Workload:  # fmt: skip
    """Symbols: s0 batch, s1 queries (unless fixed), s2 keys. `chain`: keys and values expanded to all heads by nodes, as
    grouped-query models do. A b8 mask goes through where(mask, 0, -inf)."""
    keys: Dim = "s2" if queries == "s1" else "s1"
    inputs = [spec(dtype, "s0", heads, queries, dim, order=order)] + [spec(dtype, "s0", kv, keys, dim, order=order)] * 2
    nodes: list[Node] = []

    def add(op: str, args: tuple[object, ...], out: TensorSpec, **kwargs: object) -> Ref:
        nodes.append(Node(op=op, args=args, kwargs=tuple(sorted(kwargs.items())), outputs=(out,)))
        return Ref("n", len(nodes) - 1)

    def expanded(ref: Ref) -> Ref:
        group, s0, s = heads // kv, SymbolArg("s0"), SymbolArg(str(keys))
        ref = add("aten.reshape.default", (ref, (s0, kv, 1, s, dim)), spec(dtype, "s0", kv, 1, keys, dim))
        ref = add("aten.expand.default", (ref, (s0, kv, group, s, dim)), spec(dtype, "s0", kv, group, keys, dim))
        ref = add("aten.clone.default", (ref,), spec(dtype, "s0", kv, group, keys, dim))
        return add("aten.reshape.default", (ref, (s0, heads, s, dim)), spec(dtype, "s0", heads, keys, dim))

    k, v = (expanded(Ref("i", i)) if chain else Ref("i", i) for i in (1, 2))
    kwargs: dict[str, object] = {} if scale is None else {"scale": scale}
    if mask is not None:
        inputs.append(mask)
        kwargs["attn_mask"] = Ref("i", 3)
        if mask.dtype == "b8":
            zero, low = (add("aten.full.default", ((), x), spec(dtype)) for x in (0.0, -math.inf))
            kwargs["attn_mask"] = add("aten.where.self", (Ref("i", 3), zero, low), spec(dtype, *mask.shape))
    out = spec(dtype, "s0", heads, queries, dim, order=order)
    sums = spec("f32", "s0", heads, queries, order=(0, 2, 1))
    nodes.append(Node(op=FLASH, args=(Ref("i", 0), k, v, 0.0, causal), kwargs=tuple(sorted(kwargs.items())), outputs=(out, sums)))
    last = len(nodes) - 1
    return Workload(
        inputs=tuple(inputs), nodes=tuple(nodes), outputs=(Ref("n", last), Ref("n", last, 1))[: 1 + lse],
        output_specs=(out, sums)[: 1 + lse], symbols=("s0", "s1", "s2") if queries == "s1" else ("s0", "s1"),
    )  # fmt: skip


class Case:
    """One kernel, built once, run at any sizes."""

    def __init__(self, workload: Workload, workdir: object, structure: Mapping[str, str] | None = None, **tunables: int) -> None:
        self.workload = workload
        self.backend = CppBackend()
        self.source: KernelSource = self.backend.render(workload, structure or {})
        assert [] == list(self.backend.screen(self.source))
        chosen = {**self.source.defaults(), **tunables}
        self.kernel = self.backend.load(self.backend.build(self.source, chosen, str(workdir)))

    def inputs(self, binding: Mapping[str, int], seed: int = 0) -> list[torch.Tensor]:
        """Normal values in the workload's layout; a float mask hides a third of the keys, the first never."""
        random = torch.Generator().manual_seed(seed)
        tensors = []
        for n, s in enumerate(self.workload.inputs):
            shape, strides = self.workload.bound_shape(s, binding), self.workload.bound_strides(s, binding)
            values = torch.randn(shape, generator=random)
            if n == 3:
                keep = torch.rand(shape, generator=random) > 0.33
                keep[..., :1] = True
                values = keep if s.dtype == "b8" else values.masked_fill(~keep, -math.inf)
            tensors.append(torch.empty_strided(shape, strides, dtype=TORCH[s.dtype]).copy_(values))
        return tensors

    def run(self, inputs: list[torch.Tensor], binding: Mapping[str, int], threads: int = 1) -> list[torch.Tensor]:
        """Outputs, allocated in the workload's layout and poisoned before."""
        outputs = []
        for s in self.workload.output_specs:
            shape, strides = self.workload.bound_shape(s, binding), self.workload.bound_strides(s, binding)
            outputs.append(torch.empty_strided(shape, strides, dtype=TORCH[s.dtype]).fill_(math.nan))
        pointers = [t.data_ptr() for t in (*inputs, *outputs)]
        assert 0 == self.kernel(pointers, [binding[s] for s in self.workload.symbols], threads)
        return outputs

    def reference(self, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(output in float64, logsumexp in float64, output of eager)."""
        node = self.workload.nodes[-1]
        kwargs, causal = dict(node.kwargs), bool(node.args[4])
        mask = inputs[3] if len(inputs) > 3 else None
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=inputs[0].dtype).masked_fill(~mask, -math.inf)
        scale = kwargs.get("scale")
        op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
        eager = op(*inputs[:3], 0.0, causal, attn_mask=mask, scale=scale)[0]
        q, k, v = (t.double() for t in inputs[:3])
        k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
        if causal:
            scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
        if mask is not None:
            scores = scores + mask.double()
        empty = scores.amax(-1) == -math.inf
        out = (scores.softmax(-1) @ v).masked_fill(empty[..., None], 0.0)
        return out, scores.logsumexp(-1).masked_fill(empty, 0.0), eager

    def check(self, threads: int = 1, **binding: int) -> None:
        """The kernel's error against float64 is at most twice eager's, and a rounding."""
        inputs = self.inputs(binding)
        outputs = self.run(inputs, binding, threads)
        exact, sums, eager = self.reference(inputs)
        allowed = 2 * (eager.double() - exact).abs().max() + 4e-7
        error = (outputs[0].double() - exact).abs().max()
        assert error <= allowed, f"{error:.2e} > {allowed:.2e} at {binding}"
        if len(outputs) > 1:
            assert (outputs[1].double() - sums).abs().max() <= 3e-6 * max(1.0, float(sums.abs().max()))
