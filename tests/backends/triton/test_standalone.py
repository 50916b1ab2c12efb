"""A kernel as plain code: the same launches, without our host walker, in the language's own interpreter and compiler."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accelopt_backends.triton import TritonBackend
from accelopt_backends.triton.standalone import standalone
from accelopt_cache.kernel_store import Store
from accelopt_compile.exchange.dataset import export
from accelopt_compile.records import KernelSource
from tests.exchange.exporting import DEFINITIONS, imported_into, seed_record

TARGET = "triton-cuda-sm_90"

KERNEL = '''
import triton
import triton.language as tl

TWO: tl.constexpr = 2


@triton.jit
def helper(x):
    return x * TWO


@triton.jit
def first(in0, part, s0, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(part + k, helper(tl.load(in0 + k, mask=k < s0, other=0.0)), mask=k < s0)


@triton.jit
def second(part, out0, s0, BLOCK: tl.constexpr):
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out0 + k, tl.load(part + k, mask=k < s0, other=0.0), mask=k < s0)


def accelopt_kernel(in0: "*fp32", out0: "*fp32", s0: "i64", *, BLOCK=(64, 128), WARPS=(4, 8)):
    """Twice its input, by way of memory."""
    blocks = triton.cdiv(s0, BLOCK)
    part = scratch("fp32", s0)
    if s0 == 7:
        return 1
    if s0 < 0:
        return
    first[(blocks,)](in0, part, s0, BLOCK=BLOCK, WIDE=INTERPRETED, num_warps=WARPS)
    second[(blocks, 1)](part, out0, s0, BLOCK=BLOCK)
'''

SCRIPT = """
import importlib.util, json, sys, torch
result = {}
for name, path, reference, shapes in json.loads(sys.argv[1]):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    inputs = [torch.randn(s, dtype=getattr(torch, d)) if isinstance(s, list) else s for s, d in shapes]
    given = {}
    exec(reference, given)
    ours, wanted = module.run(*inputs), given["run"](*inputs)
    ours, wanted = (v if isinstance(v, tuple) else (v,) for v in (ours, wanted))
    pairs = [(a.double(), b.double()) for a, b in zip(ours, wanted, strict=True)]
    result[name] = [float(((a - b).abs() / b.abs().clamp_min(1)).max()) for a, b in pairs]
print(json.dumps(result))
"""

Case = tuple[str, str, str, list[object]]
"""Name, file of the solution, text of the reference, inputs: (shape, dtype) or (scalar, "")."""


def interpreted(folder: Path, cases: list[Case]) -> dict[str, list[float]]:
    """Largest differences from the reference by case, relative where it is above 1, with the language's interpreter on."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
    assert 0 == done.returncode, done.stderr[-3000:]
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


@pytest.mark.thorough
def test_seeds_for_definitions_run_as_solutions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Definition, workload, seed, solution: the exported module computes the reference, at other sizes than it was traced at."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    store, backend = Store.open(), TritonBackend()
    cases: list[Case] = []
    bf16, f32 = "bfloat16", "float32"
    shapes: dict[str, list[object]] = {
        "rmsnorm_h128": [([37, 128], bf16), ([128], bf16), (1e-5, "")],
        "softmax_v": [([9, 96], f32)],
        "residual_rmsnorm_two_results": [([2, 3, 64], f32), ([2, 3, 64], f32), ([64], f32)],
    }
    for name, inputs in shapes.items():
        found = imported_into(store, name)
        record = seed_record(backend, found, target=TARGET, rung="simulated")
        link = found.captures[0].whole
        assert link is not None
        store.put(record, link.workload)
        (written,) = export([("ab" * 32, record)], store=store, backends={"triton": backend}, out=tmp_path / name)
        assert ("", True) == (written.why_not, written.candidate)
        (path,) = (tmp_path / name).glob("solutions/*/*/*.json")
        solution = json.loads(path.read_text())
        assert ("triton", ["cuda"]) == (solution["spec"]["language"], solution["spec"]["target_hardware"])
        (source,) = solution["sources"]
        (tmp_path / f"{name}.py").write_text(source["content"])
        reference = json.loads((DEFINITIONS / f"{name}.json").read_text())["reference"]
        cases.append((name, str(tmp_path / f"{name}.py"), reference, inputs))
    differences = interpreted(tmp_path, cases)
    assert differences["rmsnorm_h128"][0] <= 2**-7  # the language's own interpreter truncates to bf16: one unit
    assert max(differences["softmax_v"]) < 1e-6
    assert max(differences["residual_rmsnorm_two_results"]) < 1e-5


def test_scratch_two_launches_tunables_and_leaving(tmp_path: Path) -> None:
    """Every step of a host function has its Python; a kernel that declines raises."""
    made = standalone(KernelSource(language="triton", text=KERNEL), {"BLOCK": 128}, TARGET)
    text = f"{made.text}\n\ndef run(x):\n    y = torch.empty_like(x)\n    accelopt_kernel(x, y, x.shape[0])\n    return y\n"
    (tmp_path / "k.py").write_text(text)
    assert "BLOCK = 128" in made.text
    assert "WARPS = 4" in made.text
    double = "def run(x): return x * 2"
    cases: list[Case] = [(f"n{n}", str(tmp_path / "k.py"), double, [([n], "float32")]) for n in (1, 300)]
    assert {"n1": [0.0], "n300": [0.0]} == interpreted(tmp_path, cases)
    with pytest.raises(AssertionError, match="declines these sizes"):
        interpreted(tmp_path, [("n7", str(tmp_path / "k.py"), double, [([7], "float32")])])


def test_sizes_are_64_bits_in_the_exported_kernel() -> None:
    """Parameters that launches give integers to are annotated; pointers, constants and helpers are left as they are."""
    module = ast.parse(standalone(KernelSource(language="triton", text=KERNEL), {}, TARGET).text)
    found = {f.name: [ast.unparse(a) for a in f.args.args] for f in module.body if isinstance(f, ast.FunctionDef)}
    assert ["in0", "part", "s0: 'i64'", "BLOCK: tl.constexpr", "WIDE: tl.constexpr"] == found["first"]
    assert ["x"] == found["helper"]
    assert ["in0", "out0", "s0"] == found["accelopt_kernel"]


def test_the_language_takes_the_annotation_for_the_type(tmp_path: Path) -> None:
    """A launch with a small size gives the kernel 64 bits, as the language's own binder says it."""
    (tmp_path / "annotated.py").write_text(standalone(KernelSource(language="triton", text=KERNEL), {}, TARGET).text)
    code = (
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('annotated', {str(tmp_path / 'annotated.py')!r})\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "print([p.annotation_type for p in module.first.params if p.name == 's0'])\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=100)
    assert done.stdout.strip() == "['i64']", done.stderr[-2000:]


def test_a_text_that_is_no_kernel_is_a_reason() -> None:
    """What cannot be read is not exported."""
    with pytest.raises(ValueError, match="no host function"):
        standalone(KernelSource(language="triton", text="import triton\n"), {}, TARGET)
