"""Attention operators of other devices: found in graphs of fake tensors, spelled one way, with a reference that a CPU runs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, Node

from accelopt_compile.attention import settle_seeds
from accelopt_compile.evaluate.reference import reference_module, widen
from accelopt_compile.kinds import Kind, classify
from accelopt_compile.partition import partition
from accelopt_compile.signature import Signed, sign

CPU = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
CPU_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
FLASH = torch.ops.aten._scaled_dot_product_flash_attention.default
EFFICIENT = torch.ops.aten._scaled_dot_product_efficient_attention.default
CUDNN = torch.ops.aten._scaled_dot_product_cudnn_attention.default
FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_backward.default
EFFICIENT_BACKWARD = torch.ops.aten._scaled_dot_product_efficient_attention_backward.default
CUDNN_BACKWARD = torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default


class Traced:
    """A graph of calls on fake tensors of a device that is not here."""

    def __init__(self) -> None:
        self.graph, self.mode = Graph(), FakeTensorMode()

    def given(self, *shape: int, dtype: torch.dtype = torch.float32) -> Node:
        node = self.graph.placeholder(f"x{len(self.graph.nodes)}")
        with self.mode:
            node.meta["val"] = torch.empty(shape, dtype=dtype, device="cuda")
        return node

    def call(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        node = self.graph.call_function(target, args, kwargs)
        values = [a.meta["val"] if isinstance(a, Node) else a for a in args]
        named = {k: a.meta["val"] if isinstance(a, Node) else a for k, a in kwargs.items()}
        with self.mode:
            node.meta["val"] = target(*values, **named)
        return node

    def item(self, node: Node, index: int) -> Node:
        return self.call(operator.getitem, node, index)

    def signed(self, *outputs: Node) -> Signed:
        """The one region of the graph."""
        self.graph.output(tuple(outputs))
        settle_seeds(self.graph)
        (region,) = partition(self.graph).regions
        return sign(region)


def qkv(t: Traced, queries: int = 64, keys: int = 64, heads: int = 4, kv: int = 4) -> list[Node]:
    return [t.given(2, heads, queries, 32), t.given(2, kv, keys, 32), t.given(2, kv, keys, 32)]


def result(signed: Signed, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The float64 reference, on the region's inputs, in the order of the region's outputs."""
    given = [inputs[i] for i in signed.input_order]
    found = reference_module(signed.workload, signed.binding, wide=True)(*widen(given))
    return tuple(found[signed.output_order.index(k)] for k in range(len(found)))


@pytest.mark.parametrize(
    "op,options",
    [(FLASH, (0.0, True)), (EFFICIENT, (None, True, 0.0, True)), (CUDNN, (None, True, 0.0, True))],
    ids=["flash", "efficient", "cudnn"],
)
def test_forward_of_every_device_is_one_workload(op: Any, options: tuple[Any, ...]) -> None:
    """Causal attention with its log-sum-exp: the CPU's operator in the workload, right on a CPU in float64."""
    t = Traced()
    call = t.call(op, *qkv(t), *options)
    signed = t.signed(t.item(call, 0), t.item(call, 1))
    assert "aten._scaled_dot_product_flash_attention_for_cpu.default" in [n.op for n in signed.workload.nodes]
    inputs = [torch.randn(2, 4, 64, 32) for _ in range(3)]
    out, sums = result(signed, *inputs)
    exact, exact_sums = CPU(*(x.double() for x in inputs), 0.0, True)
    torch.testing.assert_close(out, exact)
    torch.testing.assert_close(sums.reshape(exact_sums.shape), exact_sums)


def test_equal_attention_has_one_digest_on_every_device() -> None:
    """Without a use of what they return beside the output, operators that lay it out alike are the same workload."""
    digests = set()
    for op, options in ((FLASH, ()), (CUDNN, (None, False))):
        t = Traced()
        digests.add(t.signed(t.item(t.call(op, *qkv(t, 48, 80), *options), 0)).workload.digest)
    assert 1 == len(digests)


@pytest.mark.parametrize("kind", ["flash", "efficient", "cudnn"])
def test_backward_of_every_device_is_one_workload(kind: str) -> None:
    """Gradients from the saved output and log-sum-exp; what the generator left is passed on and not read."""
    t = Traced()
    grad, q, k, v, out = (t.given(2, 4, 48, 32) for _ in range(5))
    sums = t.given(*{"flash": (2, 4, 48), "efficient": (2, 4, 64), "cudnn": (2, 4, 48, 1)}[kind])
    seed, offset = (t.given(dtype=torch.int64) for _ in range(2))
    if kind == "flash":
        call = t.call(FLASH_BACKWARD, grad, q, k, v, out, sums, None, None, 48, 48, 0.0, True, seed, offset)
    elif kind == "efficient":
        masks = [True, True, True, False]
        call = t.call(EFFICIENT_BACKWARD, grad, q, k, v, None, out, sums, seed, offset, 0.0, masks, True)
    else:
        call = t.call(CUDNN_BACKWARD, grad, q, k, v, out, sums, seed, offset, None, None, None, 48, 48, 0.0, True)
    signed = t.signed(*(t.item(call, i) for i in range(3)))
    assert "aten._scaled_dot_product_flash_attention_for_cpu_backward.default" == signed.workload.nodes[-1].op
    values = [torch.randn(2, 4, 48, 32) for _ in range(4)]
    saved, its_sums = CPU(*(x.double() for x in values[1:]), 0.0, True)
    wanted = CPU_BACKWARD(*(x.double() for x in values), saved, its_sums, 0.0, True)
    shape = tuple(sums.meta["val"].shape)
    stored = torch.nn.functional.pad(its_sums, (0, shape[2] - 48)).reshape(shape) if kind != "flash" else its_sums
    given = [*values, saved, stored.float()]
    for found, exact in zip(result(signed, *given), wanted, strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-5)


def test_grouped_queries_keep_their_heads() -> None:
    """Four query heads on two of keys: both counts are in the workload."""
    t = Traced()
    signed = t.signed(t.item(t.call(FLASH, *qkv(t, kv=2)), 0))
    assert {2, 4} <= {size for spec in signed.workload.inputs for size in spec.shape}
    inputs = [torch.randn(2, 4, 64, 32), torch.randn(2, 2, 64, 32), torch.randn(2, 2, 64, 32)]
    (out,) = result(signed, *inputs)
    torch.testing.assert_close(out, CPU(*(x.double() for x in inputs))[0])


def test_the_state_of_an_unused_generator_becomes_zeros() -> None:
    """A training graph saves it for the backward; the region does not have to give it."""
    t = Traced()
    call = t.call(FLASH, *qkv(t), 0.0, True)
    seed = t.item(call, 6)
    signed = t.signed(t.item(call, 0), t.item(call, 1), seed)
    assert 2 == len(signed.workload.outputs)
    (zeros,) = (n for n in t.graph.nodes if n.target is torch.ops.aten.full.default)
    assert (torch.uint64, (2,), "cuda") == (zeros.meta["val"].dtype, zeros.meta["val"].shape, zeros.meta["val"].device.type)


def test_what_no_kernel_gives_is_a_wall_with_a_reason() -> None:
    """Dropout, a padded log-sum-exp in use, a causal limit that ends at the last key, a gradient of the mask."""
    t = Traced()
    q, k, v = qkv(t, 48, 80)
    dropout = t.call(FLASH, q, k, v, 0.1)
    square = t.call(FLASH, q, k, v, 0.0, True)
    padded = t.call(EFFICIENT, q, k, v, None, True)
    t.item(padded, 1)
    reasons = [classify(node) for node in (dropout, square, padded)]
    assert all(kind is Kind.WALL for kind, _ in reasons)
    expected = ("random numbers", "ends at the last key", "padded log-sum-exp")
    assert all(part in why for part, (_, why) in zip(expected, reasons, strict=True))
