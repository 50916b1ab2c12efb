"""What one call of an adopted kernel costs before the kernel does anything, beside the other ways to call one.

Every variant runs the same body, y = a + b on 8 floats, from Python, as generated code would:

inductor_kernel   the C++ kernel that Inductor itself generates, through its own binding
accelopt_kernel   ours, through the native launcher (what generated code calls)
accelopt_ctypes   ours, through the launcher without a C compiler
accelopt_operator ours, through PyTorch's dispatcher (what cpp_wrapper calls), output allocation included
empty_operator    a registered operator with the same arguments that returns a ready tensor

    python -m benchmarks.bench_dispatch --quick
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._inductor.codecache import PyCodeCache

from accelopt_compile.launch import kernels, native, ops
from accelopt_compile.records import Node, Ref, TensorSpec, Workload
from benchmarks import harness

CALLS = 1000
"""Calls in one timed sample."""

SOURCE = """#include <cstdint>
extern "C" int accelopt_kernel(void* const* t, const int64_t* s, int64_t threads) {
  const float *a = (const float*)t[0], *b = (const float*)t[1]; float* y = (float*)t[2];
  for (int64_t i = 0; i < s[0] * 8; ++i) y[i] = a[i] + b[i];
  return 0;
}
"""


def adopt(scratch: Path) -> tuple[str, int, Any]:
    """A hand-written kernel, adopted as a stored one would be: its key, the address of its function, its library."""
    rows = TensorSpec(dtype="f32", shape=("s0", 8), strides=(8, 1))
    node = Node(op="aten.add.Tensor", args=(Ref("i", 0), Ref("i", 1)), outputs=(rows,))
    work = Workload(inputs=(rows, rows), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(rows,), symbols=("s0",))
    source, library = scratch / "add.cpp", scratch / "add.so"
    source.write_text(SOURCE)
    subprocess.run(["g++", "-O3", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    address, keep = native.c_function(str(library))
    kernels.adopt(
        kernels.Adopted(
            key=work.digest,
            workload=work,
            load=lambda: kernels.Loaded(address=address, keep=keep),
            reference=lambda a, b, s0: (a + b,),
            directory=scratch,
        )
    )
    return work.digest, address, keep


def inductor_kernel(a: torch.Tensor, b: torch.Tensor) -> Callable[..., Any]:
    """The binding of the C++ kernel that Inductor generates for a + b."""
    before = len(PyCodeCache.modules)
    torch.compile(lambda a, b: a + b)(a, b)
    names = [(m, n) for m in PyCodeCache.modules[before:] for n in vars(m) if n.startswith("cpp_fused")]
    module, name = names[0]
    found: Callable[..., Any] = getattr(module, name)
    return found


def variants(scratch: Path) -> dict[str, Callable[[], object]]:
    a, b, out = torch.randn(1, 8), torch.randn(1, 8), torch.empty(1, 8)
    theirs = inductor_kernel(a, b)
    key, address, _ = adopt(scratch)
    ours, operator = kernels.resolve(key), ops.operator(2, 1)
    slow = native.PythonLauncher(native.plain(address), 2, 1, 1, lambda *args: None)
    library = torch.library.Library("accelopt_bench", "FRAGMENT")
    library.define("nothing(Tensor a, Tensor b, SymInt[] sizes, str key) -> Tensor")
    library.impl("nothing", lambda a, b, sizes, key: out, "CPU")
    nothing = torch.ops.accelopt_bench.nothing.default
    nothing.library = library  # a Library that is collected takes its operators away
    getattr(theirs, "load", lambda: None)()
    calls = {
        "inductor_kernel": lambda: [theirs(a, b, out) for _ in range(CALLS)],
        "accelopt_kernel": lambda: [ours(a, b, 1, out=out) for _ in range(CALLS)],
        "accelopt_ctypes": lambda: [slow(a, b, 1, out=out) for _ in range(CALLS)],
        "accelopt_operator": lambda: [operator(a, b, [1], key) for _ in range(CALLS)],
        "empty_operator": lambda: [nothing(a, b, [1], key) for _ in range(CALLS)],
    }
    return dict(calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="21 rounds instead of 101")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="accelopt-dispatch-") as scratch:
        taken = harness.interleave(variants(Path(scratch)), rounds=21 if arguments.quick else 101, limit_s=30.0)
    per_call = {name: 1e6 * s.median_s / CALLS for name, s in taken.items()}
    for name, microseconds in per_call.items():
        print(f"{name:18} {microseconds:7.3f} us a call, spread {taken[name].spread:.1%}")
    summary = {
        "us_per_call": {name: round(value, 4) for name, value in per_call.items()},
        "over_inductor_us": round(per_call["accelopt_kernel"] - per_call["inductor_kernel"], 4),
        "native_launcher": native.native_module.cache_info().currsize > 0,
    }
    samples = {name: s.to_json() for name, s in taken.items()}
    harness.write_result("dispatch", {**summary, "calls_per_sample": CALLS, "variants": samples}, quick=arguments.quick)
    harness.finish("dispatch", summary)


if __name__ == "__main__":
    main()
