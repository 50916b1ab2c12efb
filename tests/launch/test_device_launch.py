"""Launching kernels that are Python callables over addresses, as those of a device are."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import handmade
import pytest
import torch
from torch._subclasses import FakeTensorMode

from accelopt_compile import attention_anywhere
from accelopt_compile.launch import kernels, native, ops
from accelopt_compile.records import sha256_text

seen: list[int] = []


def doubled_and_negated(pointers: Sequence[int], sizes: Sequence[int], threads: int) -> int:
    """(2 a, -a) of 4 columns."""
    seen.append(len(pointers))
    count = 4 * sizes[0]
    given, twice, negated = ((ctypes.c_float * count).from_address(p) for p in pointers)
    twice[:] = [2 * x for x in given]
    negated[:] = [-x for x in given]
    return 0


def adopted(device: str, tmp_path: Path) -> str:
    rows = handmade.spec("s0", 4)
    key = sha256_text(f"{device} {tmp_path}")
    kernels.adopt(
        kernels.Adopted(
            key=key,
            workload=handmade.workload([rows], [rows, rows], ("s0",)),
            load=lambda: kernels.Loaded(call=doubled_and_negated),
            reference=lambda a, s0: (2 * a, -a),
            directory=tmp_path,
            device=device,
        )
    )
    return key


@pytest.mark.parametrize("compiled", [False, True])
def test_a_python_kernel_is_launched_over_addresses(compiled: bool, tmp_path: Path) -> None:
    """By the dispatcher and from Inductor's code, with the outputs beside the inputs."""
    key, x = adopted("cpu", tmp_path), torch.randn(3, 4)
    seen.clear()

    def model(x: torch.Tensor) -> Any:
        return handmade.call(key, x, sizes=[x.shape[0]], outputs=2)

    twice, negated = (torch.compile(model) if compiled else model)(x)
    assert [3] == seen
    torch.testing.assert_close((2 * x, -x), (twice, negated))


def test_outputs_are_allocated_where_the_inputs_are() -> None:
    """Also on a device that is not here: there the shapes alone are made."""
    with FakeTensorMode():
        there = torch.empty(3, 4, device="meta")
    made = kernels._empty_beside(there, (3, 4), (4, 1), torch.float32)
    assert "meta" == made.device.type
    assert "cpu" == kernels._empty_beside("cpu", (2,), (1,), torch.float32).device.type


def test_a_device_s_kernel_gets_the_launcher_of_its_device(tmp_path: Path) -> None:
    """Which has the same calling rule, and falls back the same way."""
    key, x = adopted("cuda", tmp_path), torch.randn(3, 4)
    launched = kernels.resolve_allocating(key)
    assert isinstance(kernels._registry.launched[key], native.GuardedLauncher)
    twice, negated = launched(x, 3)
    torch.testing.assert_close((2 * x, -x), (twice, negated))
    assert 0 == kernels.statistics()[key]["fallbacks"]
    assert [0, 4] == list(launched(torch.empty(0, 4), 0)[0].shape)


def test_nothing_marks_the_operators_as_unsafe_to_record() -> None:
    """Inductor records a graph of the device around them, as around its own kernels."""
    for target in (ops.operator(1, 1), ops.operator(2, 3)):
        assert torch.Tag.cudagraph_unsafe not in target.tags


@pytest.mark.parametrize("heads", [(4, 4), (4, 2)])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_anywhere_is_the_host_s(heads: tuple[int, int], masked: bool) -> None:
    """Output and log-sum-exp, with a mask, grouped heads, a causal limit."""
    q, k, v = torch.randn(2, heads[0], 7, 8), torch.randn(2, heads[1], 7, 8), torch.randn(2, heads[1], 7, 8)
    mask = torch.randn(2, 1, 7, 7) if masked else None
    many = [x.repeat_interleave(heads[0] // heads[1], 1) for x in (k, v)]
    host = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    for causal in (False, True) if not masked else (False,):
        expected = host(q, *many, 0.0, causal, attn_mask=mask, scale=0.3)
        torch.testing.assert_close(expected, attention_anywhere.forward(q, k, v, 0.0, causal, attn_mask=mask, scale=0.3))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_s_gradients_anywhere_are_the_host_s(causal: bool) -> None:
    q, k, v, grad = (torch.randn(2, 3, 7, 8) for _ in range(4))
    out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(q, k, v, 0.0, causal)
    host = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    expected = host(grad, q, k, v, out, sums, 0.0, causal)
    with torch.no_grad():
        found = attention_anywhere.backward(grad, q, k, v, out, sums, 0.0, causal)
    torch.testing.assert_close(expected, found)
