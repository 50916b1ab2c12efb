"""Kernels in the source format, for tests of what builds and runs them, and the means to call one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from accelopt_backends.triton import interpreter
from accelopt_backends.triton.source import parse
from accelopt_compile.records import Artifact, KernelSource, Node, Ref, TensorSpec, Workload

HEAD = "import triton\nimport triton.language as tl\n\n\n"

SOFTMAX = (
    HEAD
    + """@triton.jit
def rows(in0, out0, s0, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * ROWS
    cols = tl.arange(0, BLOCK)
    for k in range(ROWS):
        row = (first + k).to(tl.int64)
        live = (cols < 1000) & (row < s0)
        x = tl.load(in0 + row * 1000 + cols, mask=live, other=float("-inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(out0 + row * 1000 + cols, y.to(tl.bfloat16), mask=live)


def accelopt_kernel(in0: "*bf16", out0: "*bf16", s0: "i64", *, ROWS=(4, 1, 2), BLOCK=(1024, 2048), WARPS=(4, 8)):
    rows[(triton.cdiv(s0, ROWS),)](in0, out0, s0, ROWS=ROWS, BLOCK=BLOCK, num_warps=WARPS)
"""
)

PRODUCT = (
    HEAD
    + """@triton.jit
def tiles(in0, in1, out0, s0, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    cols = tl.program_id(1) * N + tl.arange(0, N)
    deep = tl.arange(0, K)
    acc = tl.zeros((M, N), tl.float32)
    for k in range(0, 256, K):
        left = tl.load(in0 + rows[:, None] * 256 + k + deep[None, :], mask=rows[:, None] < s0, other=0.0)
        right = tl.load(in1 + (k + deep[:, None]) * 256 + cols[None, :])
        acc = tl.dot(left, right, acc)
    tl.store(out0 + rows[:, None] * 256 + cols[None, :], acc.to(tl.bfloat16), mask=rows[:, None] < s0)


def accelopt_kernel(
    in0: "*bf16", in1: "*bf16", out0: "*bf16", s0: "i64", *, M=(64, 128), N=(64, 128, 256), K=(32, 64), STAGES=(3, 8)
):
    tiles[(triton.cdiv(s0, M), 256 // N)](in0, in1, out0, s0, M=M, N=N, K=K, num_warps=4, num_stages=STAGES)
"""
)


def source(text: str) -> KernelSource:
    """The text with the tunables that it declares."""
    return KernelSource(language="triton", text=text, tunables=dict(parse(text).tunables), origin="llm")


def softmax_workload() -> Workload:
    """Softmax over the last dimension of bf16 rows; their number is free."""
    spec = TensorSpec(dtype="bf16", shape=("s0", 1000), strides=(1000, 1))
    node = Node(op="aten._softmax.default", args=(Ref("i", 0), -1, False), outputs=(spec,))
    return Workload(inputs=(spec,), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(spec,), symbols=("s0",))


def product_workload() -> Workload:
    """[s0, 256] times [256, 256] in bf16."""
    left, right = (TensorSpec(dtype="bf16", shape=(n, 256), strides=(256, 1)) for n in ("s0", 256))
    node = Node(op="aten.mm.default", args=(Ref("i", 0), Ref("i", 1)), outputs=(left,))
    return Workload(inputs=(left, right), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(left,), symbols=("s0",))


def run(folder: Path, text: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int] = (), **tunables: int) -> int:
    """One interpreted call of the kernel over these tensors; its status."""
    return loaded(folder, text, tunables)([t.data_ptr() for t in tensors], list(sizes), 1)


def loaded(folder: Path, text: str, tunables: Mapping[str, int] | None = None) -> interpreter.Kernel:
    """The kernel for the interpreter, without a build."""
    path = folder / "kernel.py"
    path.write_text(text)
    return interpreter.load(Artifact(path=str(path), source_digest="", tunables=dict(tunables or {})))
