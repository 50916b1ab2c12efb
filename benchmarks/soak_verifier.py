"""Thousands of candidates in a row through one evaluator: good, wrong and hostile ones mixed. Does anything grow?

    python -m benchmarks.soak_verifier [--candidates 2000] [--out FILE]

Every candidate is a source of its own (a comment tells them apart), so each is screened, built, run and judged; nothing is
answered from what was built before. Memory, descriptors, processes and disk are read after a tenth of them and at the
end. Prints one JSON line last; exit code 1 where something grew or a verdict was wrong.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from accelopt_backends.cpp import CppBackend
from accelopt_compile.evaluate import Evaluator, Limits, open_evaluator
from accelopt_compile.evaluate.verifying import Verified
from accelopt_compile.records import KernelSource, Node, Ref, TensorSpec, Workload
from benchmarks.harness import environment

KERNEL = """// candidate {number}
extern "C" float expf(float);
extern "C" int accelopt_kernel(void* const* tensors, const long* sizes, long threads) {{
    const float* x = (const float*)tensors[0];
    float* y = (float*)tensors[1];
    const long count = sizes[0] * 8;
    {body}
    return 0;
}}
"""

BODIES = {
    "right": ("for (long k = 0; k < count; ++k) y[k] = x[k] / (1.0f + expf(-x[k]));", ""),
    "wrong by a thousandth": ("for (long k = 0; k < count; ++k) y[k] = 1.001f * x[k] / (1.0f + expf(-x[k]));", "numerics"),
    "drops its tail": ("for (long k = 0; k < count - 8; ++k) y[k] = x[k] / (1.0f + expf(-x[k]));", "numerics"),
    "writes behind its output": ("for (long k = 0; k < count + 4; ++k) y[k] = x[k % count] / (1.0f + expf(-x[k % count]));", ""),
    "crashes": ("y[1l << 40] = x[0];", "run"),
    "declines": ("return 3;", "run"),
    "does not build": ("y = nonsense;", "build"),
    "asks for what it must not": ('extern "C" int system(const char*); system("true");', "screen"),
    "hangs": ("for (long k = 0; k >= 0; k ^= 1) y[k & 1] = x[0];", "timeout"),
}
"""Name -> body and the stage at which it must fall ("" where several may be named first)."""

SHARES = {"right": 10, "hangs": 0.05}
"""How often each is drawn, beside 1: a hang costs a whole second."""


def swish() -> Workload:
    """x * sigmoid(x) on rows of eight float32; rows are free."""
    whole = TensorSpec(dtype="f32", shape=("s0", 8), strides=(8, 1))
    nodes = (
        Node(op="aten.sigmoid.default", args=(Ref("i", 0),), outputs=(whole,)),
        Node(op="aten.mul.Tensor", args=(Ref("i", 0), Ref("n", 0)), outputs=(whole,)),
    )
    return Workload(inputs=(whole,), nodes=nodes, outputs=(Ref("n", 1),), output_specs=(whole,), symbols=("s0",))


def usage(evaluator: Evaluator, folders: list[Path]) -> dict[str, int]:
    """Kilobytes of memory of this process and of the trusted children, descriptors, children, kilobytes on disk."""
    gc.collect()
    memory = {pid: _kilobytes(pid) for pid in (os.getpid(), *evaluator.pids())}
    files = [f for folder in folders for f in folder.rglob("*") if f.is_file()]
    return {
        "memory_kb": memory[os.getpid()],
        "children_memory_kb": sum(kb for pid, kb in memory.items() if pid != os.getpid()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "processes": len(_descendants(os.getpid())),
        "disk_kb": sum(f.stat().st_size for f in files) >> 10,
    }


def _kilobytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1])


def _descendants(pid: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found


def soak(count: int, seed: int) -> dict[str, Any]:
    generator = random.Random(seed)
    names = list(BODIES)
    weights = [SHARES.get(name, 1) for name in names]
    tally: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="accelopt-soak-") as work:
        os.environ["ACCELOPT_CACHE_DIR"] = f"{work}/cache"
        folders = [Path(work)]
        limits = Limits(call_s=1.0, build_s=30.0)
        begin = time.monotonic()
        early: dict[str, int] = {}
        with open_evaluator(
            swish(), {"s0": 64}, backend=CppBackend(), threads=1, seed=seed, workdir=f"{work}/built", limits=limits
        ) as evaluator:
            evaluator.baselines()
            for number in range(count):
                (name,) = generator.choices(names, weights)
                body, stage = BODIES[name]
                source = KernelSource(language="cpp", text=KERNEL.format(number=number, body=body), tunables={}, origin="human")
                found = evaluator.verify(source, {}, seeds=[generator.randrange(1 << 60)], effort="quick")
                got = "" if isinstance(found, Verified) else found.stage.value
                right = got == stage if stage or name == "right" else bool(got)
                tally[f"{name}: {got or 'verified'}"] += 1
                if not right:
                    wrong.append(f"candidate {number} ({name}): {found}")
                if number + 1 == max(1, count // 10):
                    early = usage(evaluator, folders)
                if (number + 1) % 100 == 0:
                    print(f"{number + 1}/{count}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
            late = usage(evaluator, folders)
        seconds = time.monotonic() - begin
    grew = {name: late[name] - early[name] for name in late}
    bounds = {"memory_kb": 32 << 10, "children_memory_kb": 96 << 10, "descriptors": 0, "processes": 0, "disk_kb": 24 << 10}
    return {
        "candidates": count,
        "seconds": round(seconds, 1),
        "per_candidate_s": round(seconds / count, 3),
        "verdicts": dict(sorted(tally.items())),
        "wrong": wrong,
        "after_a_tenth": early,
        "at_the_end": late,
        "grew": grew,
        "bounds": bounds,
        "ok": not wrong and all(grew[name] <= bounds[name] for name in grew),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="60 candidates")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = soak(60 if options.quick else options.candidates, options.seed) | {"environment": environment()}
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))
    raise SystemExit(0 if found["ok"] else 1)


if __name__ == "__main__":
    main()
