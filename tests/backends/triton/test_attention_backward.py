"""Gradients of attention in Triton: right in the interpreter, from the output and the log-sum-exp that the forward saved."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from accelopt_backends.triton import attention as room
from accelopt_compile.records import Node, Ref, TensorSpec, Workload

from ..attention_cases import TORCH, attention, spec
from .test_attention import Interpreted

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
BLOCKS = {"KEYS_N": 32, "KEYS_M": 32, "QUERIES_M": 32, "QUERIES_N": 32}
SIZES = ({"s0": 2, "s1": 17, "s2": 33}, {"s0": 1, "s1": 64, "s2": 64}, {"s0": 1, "s1": 33, "s2": 1})


def backward(
    dtype: str = "f32", *, mask: TensorSpec | None = None, causal: bool = False, scale: float | None = None, heads: int = 4,
    kv: int = 4, dim: int = 64, wanted: tuple[int, ...] = (0, 1, 2),
) -> Workload:  # fmt: skip
    """Inputs: gradient, q, k, v, output, log-sum-exp, mask; outputs: those of dq, dk, dv that are `wanted`."""
    forward = attention(dtype, mask=mask, causal=causal, scale=scale, heads=heads, kv=kv, dim=dim)
    (q, k, v), (out, sums) = forward.inputs[:3], forward.nodes[-1].outputs

    def moved(arg: object) -> object:
        return Ref("i", arg.index + (1 if arg.index < 3 else 3)) if isinstance(arg, Ref) and arg.kind == "i" else arg

    nodes = [replace(n, args=tuple(moved(a) for a in n.args)) for n in forward.nodes[:-1]]
    kwargs = tuple((name, moved(value)) for name, value in forward.nodes[-1].kwargs)
    args = (*(Ref("i", n) for n in range(6)), 0.0, causal)
    op = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
    nodes.append(Node(op=op, args=args, kwargs=kwargs, outputs=(q, k, v)))
    return replace(
        forward, inputs=(out, q, k, v, out, sums, *forward.inputs[3:]), nodes=tuple(nodes),
        outputs=tuple(Ref("n", len(nodes) - 1, n) for n in wanted), output_specs=tuple((q, k, v)[n] for n in wanted),
    )  # fmt: skip


class Gradients(Interpreted):
    """One kernel of gradients, on what a forward in float64 saved."""

    def __init__(self, workload: Workload, folder: Path, **tunables: int) -> None:
        super().__init__(workload, folder, None, **{**BLOCKS, **tunables})

    def saved(self, binding: dict[str, int], size: float = 1.0, empty: bool = False) -> list[torch.Tensor]:
        """Inputs; queries and keys `size` times as large; `empty`: the mask hides all keys of the first query."""
        random = torch.Generator().manual_seed(0)
        values = [torch.randn(self.workload.bound_shape(s, binding), generator=random) for s in self.workload.inputs]
        if len(values) > 6:
            keep = values[6] > -0.5
            keep[..., 0] = True
            if empty:
                keep[..., 0, :] = False
            boolean = self.workload.inputs[6].dtype == "b8"
            values[6] = keep if boolean else values[6].masked_fill(~keep, -math.inf)
        for n in (1, 2):
            values[n] *= size
        given = [self.stored(n, value, binding) for n, value in enumerate(values)]
        out, sums = FORWARD(*(x.double() for x in given[1:4]), 0.0, *self.options(given, torch.float64)[0:1], **self.named(given))
        given[4], given[5] = self.stored(4, out, binding), self.stored(5, sums, binding)
        return given

    def stored(self, n: int, value: torch.Tensor, binding: dict[str, int]) -> torch.Tensor:
        s = self.workload.inputs[n]
        shape, strides = self.workload.bound_shape(s, binding), self.workload.bound_strides(s, binding)
        return torch.empty_strided(shape, strides, dtype=TORCH[s.dtype]).copy_(value)

    def options(self, given: list[torch.Tensor], dtype: torch.dtype) -> tuple[bool, torch.Tensor | None]:
        """(causal, the mask as eager takes it)."""
        mask = given[6] if len(given) > 6 else None
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
        return bool(self.workload.nodes[-1].args[7]), None if mask is None else mask.to(dtype)

    def named(self, given: list[torch.Tensor], dtype: torch.dtype = torch.float64) -> dict[str, object]:
        scale = dict(self.workload.nodes[-1].kwargs).get("scale")
        return {"attn_mask": self.options(given, dtype)[1], "scale": scale}

    def exact(self, given: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        causal, _ = self.options(given, torch.float64)
        return tuple(BACKWARD(*(x.double() for x in given[:6]), 0.0, causal, **self.named(given)))

    def check(self, threads: int = 1, **binding: int) -> None:
        """Errors against float64 are at most twice eager's, and a rounding of the largest gradient: what cancels to nothing,
        as scores of a single key do, is left with roundings of its terms."""
        given = self.saved(binding)
        causal, _ = self.options(given, given[0].dtype)
        eager = BACKWARD(*given[:6], 0.0, causal, **self.named(given, given[0].dtype))
        found = self.run(given, binding)
        gradients = self.exact(given)
        largest = max(1.0, *(float(exact.abs().max()) for exact in gradients))
        for ref, out in zip(self.workload.outputs, found, strict=True):
            exact = gradients[ref.output]
            allowed = 2 * (eager[ref.output].double() - exact).abs().max() + 4e-7 * largest
            assert (out.double() - exact).abs().max() <= allowed


@pytest.mark.sweep(3)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_gradients_match_float64_as_closely_as_eager(dtype: str, causal: bool, tmp_path: Path) -> None:
    """Grouped heads, whose gradients of keys and values are sums over the group."""
    case = Gradients(backward(dtype, kv=2, causal=causal), tmp_path)
    for binding in SIZES:
        case.check(**binding)


@pytest.mark.parametrize("dtype,dim", [("f32", 40), ("bf16", 128), ("f16", 16)])
def test_gradients_of_any_head_size(dtype: str, dim: int, tmp_path: Path) -> None:
    """Head sizes that fill a block and one that is padded; a negative scale."""
    Gradients(backward(dtype, heads=2, kv=1, dim=dim, scale=-0.21), tmp_path).check(**SIZES[0])


@pytest.mark.parametrize("kind,shape", [("f32", ("s0", 1, "s1", "s2")), ("b8", ("s0", 1, 1, "s2")), ("f32", ("s1", "s2"))])
def test_gradients_under_masks(kind: str, shape: tuple[int | str, ...], tmp_path: Path) -> None:
    """Additive and boolean masks, broadcast."""
    Gradients(backward(kv=2, mask=spec(kind, *shape)), tmp_path).check(**SIZES[0])


def test_a_query_that_sees_no_key_has_and_gives_no_gradient(tmp_path: Path) -> None:
    """Its log-sum-exp says nothing, or infinity: zeros, not NaN."""
    case = Gradients(backward(mask=spec("f32", "s1", "s2")), tmp_path)
    given = case.saved(SIZES[0], empty=True)
    for sums in (0.0, math.inf, -math.inf):
        exact = case.exact(given)
        given[5][:, :, 0] = sums
        for found, wanted in zip(case.run(given, SIZES[0]), exact, strict=True):
            torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
        given[5][:, :, 0] = 0.0


def test_gradients_of_scores_above_two_to_the_31(tmp_path: Path) -> None:
    """A key that takes all has the weight 1, although the score's rounding is more than the whole range of exp2."""
    case = Gradients(backward(dim=16, scale=0.3), tmp_path)
    given = [torch.zeros(x.shape) for x in case.saved(SIZES[0])]
    given[0].normal_(generator=torch.Generator().manual_seed(0))
    given[1][..., 0], given[2][..., 7, 0] = 3.0 * 2.0**17, 5.0 * 2.0**17  # exact as a sum of products, not so times 0.3
    given[5].fill_(torch.tensor(15.0 * 2.0**34) * torch.tensor(0.3))
    expected = torch.zeros_like(given[3])
    expected[..., 7, :] = given[0].sum(2)
    torch.testing.assert_close(case.run([x.contiguous() for x in given], SIZES[0])[2], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wanted", [(0,), (1, 2), (2,)])
def test_only_the_gradients_in_use_are_computed(wanted: tuple[int, ...], tmp_path: Path) -> None:
    """What nobody reads has no launch of its own."""
    case = Gradients(backward(wanted=wanted), tmp_path)
    case.check(**SIZES[0])
    host = case.source.text.split("def accelopt_kernel", 1)[1]
    assert (0 in wanted) is ("query_gradients[" in host)
    assert bool({1, 2} & set(wanted)) is ("key_gradients[" in host)


def test_gradients_at_sizes_of_zero(tmp_path: Path) -> None:
    """No queries: the gradients of keys are zero. No keys: those of queries."""
    case = Gradients(backward(), tmp_path)
    for batch, queries, keys in ((0, 3, 5), (1, 0, 5), (1, 3, 0)):
        binding = {"s0": batch, "s1": queries, "s2": keys}
        given = [torch.zeros(case.workload.bound_shape(s, binding), dtype=TORCH[s.dtype]) for s in case.workload.inputs]
        assert all(torch.equal(torch.zeros_like(x), x) for x in case.run(given, binding))


def test_two_runs_of_gradients_agree_bit_for_bit(tmp_path: Path) -> None:
    """Programs in opposite orders: nothing is added up between them."""
    case = Gradients(backward("bf16", kv=2), tmp_path)
    given = case.saved(SIZES[0])
    first, second = case.run(given, SIZES[0]), case.run(given, SIZES[0])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_gradients_that_it_does_not_do_have_a_reason() -> None:
    """Keys that the region expands to all heads would need a sum behind the call."""
    plain = backward()
    assert room.matches(plain) is True
    dropped = replace(plain.nodes[-1], args=(*plain.nodes[-1].args[:6], 0.1, False))
    assert "attention with dropout" == room.matches(replace(plain, nodes=(dropped,)))
