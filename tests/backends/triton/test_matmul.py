"""Kernels of matrix products: right in the interpreter, in every structure, for every size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from accelopt_backends.triton import TritonBackend, matmul
from accelopt_backends.triton.source import parse
from accelopt_compile.evaluate.answers import Case
from accelopt_compile.evaluate.cases import Trial
from tests.backends.triton.matmul_cases import (
    fault,
    gated,
    gated_in_one,
    int4_groups,
    int8_channels,
    int8_groups,
    rms,
    verdict,
    workload_of,
)

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def bytes_like(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(0, 100, shape, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_linear_layer_with_bias_and_activation_is_right(dtype: str, tmp_path: Path) -> None:
    t = DTYPES[dtype]
    args = (torch.randn(2, 9, 63).to(t), torch.randn(48, 63).to(t), torch.randn(48).to(t))
    assert "" == verdict(lambda x, w, b: F.gelu(F.linear(x, w, b)), *args, folder=tmp_path)


@pytest.mark.parametrize("choice", [{"k": "split"}, {"tiles": "persistent"}, {"multiply": "sum"}])
def test_every_structure_is_right(choice: dict[str, str], tmp_path: Path) -> None:
    """Sums of 300 products split among programs; tiles that share a program; rows multiplied without tensor cores."""
    args = (torch.randn(2, 9, 300), torch.randn(40, 300), torch.randn(2, 9, 40))
    assert "" == verdict(lambda x, w, y: y + F.linear(x, w), *args, folder=tmp_path, **choice)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_gated_unit_is_one_kernel(dtype: str, tmp_path: Path) -> None:
    t = DTYPES[dtype]
    w = torch.randn(24, 32).to(t)
    assert "" == verdict(gated, torch.randn(2, 9, 32).to(t), w, w.clone(), folder=tmp_path)


def test_a_gated_unit_whose_weights_lie_in_one_tensor_multiplies_each_half_once(tmp_path: Path) -> None:
    x, w = torch.randn(3, 7, 32), torch.randn(48, 32)
    workload, binding = workload_of(gated_in_one, x, w)
    source = matmul.render(workload, {})
    assert "# A tile: 2 products, 1 left and 2 right operands" in source.text
    assert "" == fault(source, workload, binding, tmp_path)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_norm_before_a_gated_unit_is_right(dtype: str, tmp_path: Path) -> None:
    t = DTYPES[dtype]
    n, w = torch.randn(70).to(t), torch.randn(24, 70).to(t)
    x = torch.randn(2, 9, 70).to(t)
    assert "" == verdict(lambda x, n, a, b: gated(rms(x, n), a, b), x, n, w, w.clone(), folder=tmp_path)


def test_a_layer_norm_before_a_product_takes_its_mean_before_its_variance(tmp_path: Path) -> None:
    n, w = torch.randn(70), torch.randn(24, 70)
    args = (torch.randn(2, 9, 70), n, n.clone(), w, torch.randn(24))
    assert "" == verdict(lambda x, n, m, w, b: F.linear(F.layer_norm(x, (70,), n, m), w, b), *args, folder=tmp_path)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_weights_in_eight_bits_are_right(dtype: str, tmp_path: Path) -> None:
    t = DTYPES[dtype]
    x, w = torch.randn(2, 9, 64).to(t), bytes_like(32, 64, dtype=torch.int8)
    assert "" == verdict(int8_channels, x, w, torch.rand(32).to(t), folder=tmp_path)
    assert "" == verdict(int8_groups, x, w, torch.rand(32, 4).to(t), folder=tmp_path)


def test_weights_in_four_bits_are_right(tmp_path: Path) -> None:
    scale = torch.rand(32, 4)
    packed = bytes_like(32, 32, dtype=torch.uint8)
    assert "" == verdict(int4_groups, torch.randn(2, 9, 64), packed, scale, scale.clone(), folder=tmp_path)


def test_batched_products_with_a_scale_are_right(tmp_path: Path) -> None:
    q, k = torch.randn(2, 3, 17, 21), torch.randn(2, 3, 19, 21)
    assert "" == verdict(lambda q, k: (q @ k.transpose(-1, -2)) * 0.125, q, k, folder=tmp_path)


def test_one_product_for_each_expert_is_right(tmp_path: Path) -> None:
    """Experts' weights [E, K, N] on tokens sorted into [E, T, K]: as grouped products appear in graphs."""
    x, w, b = torch.randn(4, 5, 24), torch.randn(4, 24, 16), torch.randn(4, 1, 16)
    assert "" == verdict(lambda x, w, b: F.relu(torch.baddbmm(b, x, w)), x, w, b, folder=tmp_path)


def test_operands_may_have_any_strides(tmp_path: Path) -> None:
    x, w = torch.randn(40, 12).t()[::2], torch.randn(40, 30)[:, ::3]
    assert "" == verdict(lambda x, w: F.relu(x @ w), x, w, folder=tmp_path)


def test_a_product_with_itself_transposed_keeps_its_loops_apart(tmp_path: Path) -> None:
    assert "" == verdict(lambda x: F.relu(x @ x.t()), torch.randn(20, 20), folder=tmp_path)


def test_results_may_be_stored_by_heads(tmp_path: Path) -> None:
    x, w = torch.randn(2, 9, 32), torch.randn(32, 32)
    heads = lambda x, w: (F.linear(x, w) * 2).view(2, 9, 4, 8).transpose(1, 2).contiguous() + 1  # noqa: E731
    assert "" == verdict(heads, x, w, folder=tmp_path)


@pytest.mark.parametrize("rows", [0, 1, 17])
def test_any_number_of_rows_is_right(rows: int, tmp_path: Path) -> None:
    workload, binding = workload_of(
        lambda x, w, y: y + F.linear(x, w), torch.randn(33, 20), torch.randn(40, 20), torch.randn(33, 40)
    )
    assert ["s0"] == list(binding)
    trial = Trial(case=Case((("s0", rows),), "normal", 3), calls=2, probes=4, threads=1)
    assert "" == fault(matmul.render(workload, {}), workload, binding, tmp_path, [trial])


@pytest.mark.parametrize(("columns", "depth"), [(1, 1), (17, 0), (1, 40), (63, 17)])
def test_any_number_of_columns_and_terms_is_right(columns: int, depth: int, tmp_path: Path) -> None:
    args = (torch.randn(5, depth), torch.randn(depth, columns), torch.randn(5, columns))
    assert "" == verdict(lambda x, w, y: y + x @ w, *args, folder=tmp_path)


def test_symbolic_sizes_are_right(tmp_path: Path) -> None:
    workload, binding = workload_of(gated, torch.randn(2, 9, 32), torch.randn(24, 32), torch.randn(24, 32), dynamic=True)
    assert "" == fault(matmul.render(workload, {}), workload, binding, tmp_path)


def test_what_is_no_product_of_one_shape_is_refused_with_a_reason() -> None:
    workload, _ = workload_of(lambda x, w: F.relu(x @ w), torch.randn(8, 8).double(), torch.randn(8, 8).double())
    assert "f64" in str(TritonBackend().supports(workload))


def test_sums_kept_in_half_precision_are_found_out(tmp_path: Path) -> None:
    """Although what a norm rounds on its way to the product is allowed more."""
    n, w = torch.randn(2048).bfloat16(), torch.randn(24, 2048).bfloat16()
    x = torch.randn(2, 9, 2048).bfloat16()
    workload, binding = workload_of(lambda x, n, w: F.relu(F.linear(rms(x, n), w)), x, n, w)
    honest = matmul.render(workload, {})
    right = "right1_tile, acc1, WIDE)"
    assert honest.text.count(right) == 1
    text = honest.text.replace(right, f"{right}.to(tl.bfloat16).to(tl.float32)").replace("BK=(32, 16,", "BK=(16, 32,")
    lower = replace(honest, text=text, tunables=parse(text).tunables)
    assert "" == fault(honest, workload, binding, tmp_path)
    assert fault(lower, workload, binding, tmp_path).startswith("numerics")
