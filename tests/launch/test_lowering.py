"""The operator compiled by Inductor: a direct call in the generated code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import handmade
import pytest
import torch
from torch._inductor.utils import run_and_get_code

from accelopt_compile.launch import kernels, lowering


@pytest.fixture(autouse=True)
def installed() -> None:
    assert lowering.install()


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, fullgraph=True, **options)


def test_direct_call(tmp_path: Path) -> None:
    """The generated code calls the launcher with Inductor's own buffer, without the dispatcher."""
    key = handmade.add_twice(tmp_path)
    a, b = torch.randn(5, 8), torch.randn(5, 8)
    fn = compiled(lambda a, b: handmade.call(key, a.relu(), b, sizes=[a.shape[0]]) * 3)
    result, (code,) = run_and_get_code(fn, a, b)
    assert torch.equal((a.relu() + 2 * b) * 3, result)
    assert f"extern_kernels.accelopt_{key}(" in code
    assert "torch.ops.accelopt" not in code
    assert 0 == kernels.statistics()[key]["fallbacks"]


def test_several_outputs(tmp_path: Path) -> None:
    """Every output reaches its user, with its strides, which nobody checks: the launcher made them so."""
    key = handmade.sum_and_difference(tmp_path)

    def fn(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total, difference = handmade.call(key, a, b, sizes=[a.shape[0]], outputs=2)
        return total + 1, difference

    a, b = torch.randn(3, 4), torch.randn(3, 4)
    (total, difference), (code,) = run_and_get_code(compiled(fn), a, b)
    assert "assert_size_stride(buf" not in code
    assert torch.equal(a + b + 1, total)
    assert (1, 4) == difference.stride()
    assert torch.equal((a - b).t(), difference)


def test_dynamic_sizes_share_one_graph(tmp_path: Path) -> None:
    """A symbolic size travels to the kernel at run time: three sizes, one compilation."""
    key = handmade.add_twice(tmp_path)
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    fn = torch.compile(lambda a, b: handmade.call(key, a, b, sizes=[a.shape[0]]), backend=counter, dynamic=True)
    for rows in (3, 7, 12):
        a, b = torch.randn(rows, 8), torch.randn(rows, 8)
        assert torch.equal(a + 2 * b, fn(a, b))
    assert 1 == counter.frame_count
    assert {"calls": 3, "fallbacks": 0, "problem": ""} == kernels.statistics()[key]


def test_convolution_output_is_given_row_major(tmp_path: Path) -> None:
    """Inductor makes convolution outputs channels_last behind the graph's back; the kernel still gets declared strides."""
    image = handmade.spec(2, 16, 8, 8)
    text = handmade.entry("for (int i = 0; i < 2048; ++i) ((float*)t[1])[i] = ((const float*)t[0])[i] * 2; return 0;")
    key = handmade.adopt(handmade.workload([image], [image]), text, lambda a: (a * 2,), tmp_path)
    conv = torch.nn.Conv2d(3, 16, 3, padding=1)
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        actual = compiled(lambda x: handmade.call(key, conv(conv_input(x)), sizes=[]))(x)
        torch.testing.assert_close(conv(conv_input(x)) * 2, actual)


def conv_input(x: torch.Tensor) -> torch.Tensor:
    return x.relu()


@pytest.mark.parametrize("view", ["expanded", "sliced", "transposed"])
def test_strided_inputs(tmp_path: Path, view: str) -> None:
    """Expanded, sliced and transposed inputs give what eager gives."""
    key = handmade.add_twice(tmp_path)
    views = {
        "expanded": lambda x: x[:1, :8].expand(5, 8),
        "sliced": lambda x: x[:5, ::2][:, :8],
        "transposed": lambda x: x[:8, :5].t(),
    }
    x, b = torch.randn(16, 16), torch.randn(5, 8)
    fn = compiled(lambda x, b: handmade.call(key, views[view](x).contiguous(), b, sizes=[5]))
    assert torch.equal(views[view](x) + 2 * b, fn(x, b))


def test_inputs_stay_alive(tmp_path: Path) -> None:
    """Inductor never hands a live input out as the output buffer: a kernel that poisons its output first is still right."""
    text = handmade.entry(
        "const float *a = (const float*)t[0], *b = (const float*)t[1]; float* y = (float*)t[2];\n"
        "for (int64_t i = 0; i < s[0]*8; ++i) y[i] = 0.0f/0.0f;\n"
        "for (int64_t i = 0; i < s[0]*8; ++i) y[i] = a[i] + 2 * b[i];\nreturn 0;"
    )
    key = handmade.add_twice(tmp_path, text)

    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            a = handmade.call(key, a.sin(), b.cos(), sizes=[5]) + a
        return a

    a, b = torch.randn(5, 8), torch.randn(5, 8)
    expected = a
    for _ in range(4):
        expected = expected.sin() + 2 * b.cos() + expected
    torch.testing.assert_close(expected, compiled(fn)(a, b))


@pytest.mark.thorough
def test_cpp_wrapper_uses_the_operator(tmp_path: Path) -> None:
    """Under cpp_wrapper the call goes through the dispatcher and is right."""
    key = handmade.add_twice(tmp_path)
    a, b = torch.randn(5, 8), torch.randn(5, 8)
    fn = compiled(lambda a, b: handmade.call(key, a, b, sizes=[5]) + 1, options={"cpp_wrapper": True})
    assert torch.equal(a + 2 * b + 1, fn(a, b))


WARM = """
import sys; sys.path.insert(0, {tests!r})
import pathlib, torch, handmade
from torch._dynamo.utils import counters
from accelopt_compile.launch import kernels, lowering, ops
key = handmade.add_twice(pathlib.Path({scratch!r}))
lowering.install()
a, b = torch.ones(5, 8), torch.ones(5, 8)
result = torch.compile(lambda a, b: ops.operator(2, 1)(a, b, [5], key) * 3, fullgraph=True)(a, b)
assert torch.equal(result, torch.full((5, 8), 9.0)), result
assert kernels.statistics()[key] == {{"calls": 1, "fallbacks": 0, "problem": ""}}
print("hits", counters["inductor"]["fxgraph_cache_hit"])
"""


@pytest.mark.thorough
def test_fresh_process_loads_the_cached_graph(tmp_path: Path) -> None:
    """A second process takes the compiled graph from Inductor's cache and finds operator and kernel."""
    script = WARM.format(tests=str(Path(__file__).parent), scratch=str(tmp_path))
    runs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=200) for _ in range(2)
    ]
    assert ["hits 0", "hits 1"] == [run.stdout.strip() for run in runs]
