"""The operator through the dispatcher: what runs when there is no Inductor lowering."""

from __future__ import annotations

import warnings
from pathlib import Path

import handmade
import pytest
import torch

from accelopt_compile.errors import AccelOptError
from accelopt_compile.launch import kernels, ops


def test_runs_the_kernel(tmp_path: Path) -> None:
    """An operator call gives what the C++ kernel computes, and counts it."""
    key = handmade.add_twice(tmp_path)
    a, b = torch.randn(5, 8), torch.randn(5, 8)
    assert torch.equal(a + 2 * b, handmade.call(key, a, b, sizes=[5]))
    assert {"calls": 1, "fallbacks": 0, "problem": ""} == kernels.statistics()[key]


def test_several_outputs_have_their_declared_strides(tmp_path: Path) -> None:
    """Outputs are allocated with the strides of the workload, column-major included."""
    key = handmade.sum_and_difference(tmp_path)
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    total, difference = handmade.call(key, a, b, sizes=[3], outputs=2)
    assert torch.equal(a + b, total)
    assert (1, 4) == difference.stride()
    assert torch.equal((a - b).t(), difference)


def test_restrides_inputs(tmp_path: Path) -> None:
    """An input with other strides than declared is copied, so that the kernel reads what it was proven on."""
    key = handmade.add_twice(tmp_path)
    a, b = torch.randn(8, 5).t(), torch.randn(5, 16)[:, ::2]
    assert torch.equal(a + 2 * b, handmade.call(key, a, b, sizes=[5]))


def test_expanded_inputs(tmp_path: Path) -> None:
    """A declared stride of 0 is honoured for a tensor that is not expanded."""
    row = handmade.spec("s0", 8, strides=(0, 1))
    text = handmade.entry("for (int64_t i = 0; i < s[0]*8; ++i) ((float*)t[1])[i] = ((const float*)t[0])[i % 8]; return 0;")
    work = handmade.workload([row], [handmade.spec("s0", 8)], ("s0",))
    key = handmade.adopt(work, text, lambda a, s0: (a + 0,), tmp_path)
    rows = torch.arange(8.0).expand(3, 8)
    assert torch.equal(rows, handmade.call(key, rows.contiguous(), sizes=[3]))


def test_empty_sizes_run_the_reference(tmp_path: Path) -> None:
    """A zero size gives an empty result without calling the kernel."""
    key = handmade.add_twice(tmp_path)
    assert (0, 8) == tuple(handmade.call(key, torch.empty(0, 8), torch.empty(0, 8), sizes=[0]).shape)


def test_declined_call_runs_the_reference_and_warns(tmp_path: Path) -> None:
    """A kernel that returns nonzero is answered by the region's reference, with one warning that names the kernel."""
    key = handmade.add_twice(tmp_path, handmade.entry("return 7;"))
    a, b = torch.randn(5, 8), torch.randn(5, 8)
    with pytest.warns(kernels.KernelFellBack, match=key[:16]):
        assert torch.equal(a + 2 * b, handmade.call(key, a, b, sizes=[5]))
    assert 1 == kernels.statistics()[key]["fallbacks"]


def test_a_program_that_makes_warnings_errors_gets_the_result(tmp_path: Path) -> None:
    """Whatever it does with warnings, a kernel that declines costs no exception."""
    key = handmade.add_twice(tmp_path, handmade.entry("return 7;"))
    a, b = torch.randn(5, 8), torch.randn(5, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(a + 2 * b, handmade.call(key, a, b, sizes=[5]))


def test_kernel_that_does_not_build(tmp_path: Path) -> None:
    """A kernel that cannot be built is answered by the reference, and the warning says why."""
    key = handmade.add_twice(tmp_path, "this is not C++")
    a, b = torch.randn(5, 8), torch.randn(5, 8)
    with pytest.warns(kernels.KernelFellBack, match="could not be built"):
        assert torch.equal(a + 2 * b, handmade.call(key, a, b, sizes=[5]))


def test_unknown_key_names_itself() -> None:
    """A key that this process never adopted is an error that says what to do."""
    with pytest.raises(AccelOptError, match="feedbeef"):
        handmade.call("feedbeef", torch.ones(1), sizes=[])


def test_arity_beyond_the_registered_range() -> None:
    """An operator with 20 inputs and 9 outputs exists as soon as somebody names it."""
    assert "accelopt::c20_9" == torch.ops.accelopt.c20_9.default.name()
    assert ops.is_operator(ops.operator(20, 9))


def test_opcheck(tmp_path: Path) -> None:
    """torch's own checks of a custom operator pass: schema, fake tensors, dynamic shapes under AOT."""
    key = handmade.sum_and_difference(tmp_path)
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    arguments = (torch.randn(3, 4), torch.randn(3, 4), [3], key)
    torch.library.opcheck(ops.operator(2, 2), arguments, test_utils=checks)
