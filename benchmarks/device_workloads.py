"""Workloads as a GPU would meet them: seven kinds of model, optimizers and the NKIBench problems, cut by our own partitioner.

`workloads()` reads what is stored in workloads/device.jsonl, so that a machine needs neither transformers nor a capture to
use them. To make that file anew (three minutes on one core, no GPU needed: see absent_device.py):

    python -m benchmarks.device_workloads --write [--jobs 2]
    python -m benchmarks.device_workloads              # a table of what is stored
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelopt_backends.registry import backend_named
from accelopt_compile.family import family_of
from accelopt_compile.records import Workload, canonical_json

STORED = Path(__file__).parent / "workloads" / "device.jsonl"
DTYPES = ("f32", "bf16", "f16")
STORED_EACH = 4
"""Workloads of one kind, family and dtype that are stored, those of the fewest elements: the others repeat their structures."""
KINDS = ("llama", "gpt2", "bert", "t5", "moe", "vit", "resnet", "optimizer", "nkibench")
ONLY_IN = {"prefill-dynamic": "bf16", "translate-train": "bf16"}
"""Calls that take long to trace and give the same structures in every dtype: in which one they are traced."""
LANGUAGE = "triton"
"""Whose budget of matrix products the regions have: a digest is only met again where the pass cuts alike."""


@dataclass(frozen=True, kw_only=True)
class DeviceWorkload:
    """A workload at the binding at which it was met first: in which call of which kind of model, of which dtype."""

    kind: str
    call: str
    dtype: str
    workload: Workload
    binding: Mapping[str, int]

    @property
    def family(self) -> str:
        return family_of(self.workload)

    @property
    def name(self) -> str:
        """ "llama-train-norm-3fa9c1d2-bf16"; the digits are the workload's digest."""
        return f"{self.kind}-{self.call}-{self.family}-{self.workload.digest[:8]}-{self.dtype}"

    def to_json(self) -> dict[str, Any]:
        place = {"kind": self.kind, "call": self.call, "dtype": self.dtype}
        return {**place, "binding": dict(self.binding), "workload": self.workload.to_json()}

    @staticmethod
    def from_json(data: Any) -> DeviceWorkload:
        """Inverse of `to_json`. Raises InvalidRecord, KeyError."""
        binding = {str(name): int(value) for name, value in data["binding"].items()}
        return DeviceWorkload(
            kind=data["kind"],
            call=data["call"],
            dtype=data["dtype"],
            workload=Workload.from_json(data["workload"]),
            binding=binding,
        )


def workloads(path: Path = STORED) -> list[DeviceWorkload]:
    """What is stored, each digest once, in the file's order: by kind, call, family, digest."""
    return [DeviceWorkload.from_json(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def sample(found: Sequence[DeviceWorkload], each: int) -> list[DeviceWorkload]:
    """At most `each` workloads of every (kind, family, dtype), those of the fewest elements first: a quick look at all kinds.
    Each of NKIBench's problems is a kind of its own."""
    taken: Counter[tuple[str, str, str]] = Counter()
    chosen = []
    for one in sorted(found, key=lambda w: (work(w), w.name)):
        group = (f"{one.kind} {one.call}" if one.kind == "nkibench" else one.kind, one.family, one.dtype)
        taken[group] += 1
        if taken[group] <= each:
            chosen.append(one)
    names = {one.name for one in chosen}
    return [one for one in found if one.name in names]


def work(one: DeviceWorkload) -> int:
    """Elements of all values that the workload computes, at its binding: what a simulation has to go through."""
    specs = [spec for node in one.workload.nodes for spec in node.outputs]
    total = 0
    for spec in specs:
        elements = 1
        for size in one.workload.bound_shape(spec, one.binding):
            elements *= size
        total += elements
    return total


# ---------------------------------------------------------------- capture, in a child


def captured(kind: str, dtype: str) -> Iterator[DeviceWorkload]:
    """The workloads of one kind of model in one dtype. The process must have called `absent_device.pretend()` first."""
    import torch
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from accelopt_compile.nodes import torch_dtype
    from benchmarks.absent_device import DEVICE
    from benchmarks.device_models import MODELS
    from benchmarks.device_problems import problems

    torch.set_default_dtype(torch_dtype(dtype))
    mode = FakeTensorMode(shape_env=ShapeEnv())
    with mode, torch.device(DEVICE), _uninitialised():
        calls = problems() if kind == "nkibench" else MODELS[kind]()
    for call in calls:
        if ONLY_IN.get(call.name, dtype) == dtype:
            with mode:
                yield from _traced(kind, dtype, call)


def _traced(kind: str, dtype: str, call: Any) -> list[DeviceWorkload]:
    """The workloads of all graphs of one call. Raises RuntimeError where the call could not be traced to its end."""
    import torch

    from accelopt_compile.sites import Site, sites_of

    found: list[Site] = []

    def collect(gm: Any, example_inputs: Sequence[Any]) -> Any:
        sites, _ = sites_of(gm, example_inputs, products=backend_named(LANGUAGE).products, device="cuda")
        found.extend(sites or ([_whole(gm, example_inputs)] if kind == "nkibench" else []))
        return gm.forward

    torch._dynamo.reset()
    # Layouts stay as they are written, as on AMD: where Inductor turns images beside convolutions, nothing is a region there.
    with torch.set_grad_enabled(call.trains), torch._inductor.config.patch(layout_optimization=False):
        torch.compile(call.module, backend=collect, dynamic=call.dynamic)(*call.inputs)
    whole = {site.workload.digest: site for site in reversed([*found, *(part for site in found for part in site.parts)])}
    return [
        DeviceWorkload(kind=kind, call=call.name, dtype=dtype, workload=site.workload, binding=site.binding)
        for site in whole.values()
    ]


def _whole(gm: Any, example_inputs: Sequence[Any]) -> Any:
    """A problem that the partitioner leaves to the library, a single product, as one region all the same."""
    from accelopt_compile.capture import capture
    from accelopt_compile.regions import Region
    from accelopt_compile.signature import sign
    from accelopt_compile.sites import Site

    (captured,) = capture(gm, example_inputs)
    nodes = list(captured.graph.nodes)
    given = [node for node in nodes if node.op == "placeholder"]
    (results,) = captured.graph.output_node().args
    calls = tuple(node for node in nodes if node.op == "call_function")
    signed = sign(Region(nodes=calls, inputs=tuple(given), outputs=tuple(results)))
    return Site(workload=signed.workload, binding=signed.binding, name="whole", count=1, cost=0.0)


def _uninitialised() -> Any:
    """Models made within it get no first values: there is no memory to put them in."""
    from transformers.initialization import no_init_weights

    return no_init_weights()


def _capture_child(kind: str) -> None:
    from benchmarks import absent_device

    absent_device.pretend()
    for dtype in DTYPES:
        for one in captured(kind, dtype):
            print(canonical_json(one.to_json()))


def write(path: Path, *, kinds: Sequence[str], jobs: int) -> list[DeviceWorkload]:
    """Capture these kinds in child processes; each takes the place of what was stored of it as soon as it is there. Raises
    RuntimeError where a capture fails."""
    lock = threading.Lock()

    def run(kind: str) -> None:
        begin = time.monotonic()
        command = [sys.executable, "-m", "benchmarks.device_workloads", "--child", kind]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode:
            raise RuntimeError(f"capture of {kind} failed:\n{done.stderr[-3000:]}")
        found = [DeviceWorkload.from_json(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]
        with lock:
            before = workloads(path) if path.exists() else []
            kept = stored_form([*(one for one in before if one.kind != kind), *found])
            path.write_text("".join(canonical_json(one.to_json()) + "\n" for one in kept), encoding="utf-8")
        print(f"{kind}: {len(found)} workloads in {time.monotonic() - begin:.0f} s", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, kinds))
    return workloads(path)


def stored_form(found: Sequence[DeviceWorkload]) -> list[DeviceWorkload]:
    """Each digest once, at most `STORED_EACH` of a kind, family and dtype, in the file's order."""
    first: dict[str, DeviceWorkload] = {}
    for one in sorted(found, key=_place):
        first.setdefault(one.workload.digest, one)
    return sorted(sample(list(first.values()), STORED_EACH), key=_place)


def _place(one: DeviceWorkload) -> tuple[int, str, str, int, str]:
    return KINDS.index(one.kind), one.call, one.family, DTYPES.index(one.dtype), one.workload.digest


def table(found: Sequence[DeviceWorkload]) -> str:
    """How many workloads of each family each kind of model has."""
    families = sorted({one.family for one in found})
    counts = Counter((one.kind, one.family) for one in found)
    lines = [f"{'family':16}" + "".join(f"{kind:>10}" for kind in KINDS) + f"{'all':>8}"]
    for family in families:
        row = [counts[kind, family] for kind in KINDS]
        lines.append(f"{family:16}" + "".join(f"{n or '':>10}" for n in row) + f"{sum(row):8}")
    by_dtype = Counter(one.dtype for one in found)
    lines.append(f"{len(found)} workloads: " + ", ".join(f"{by_dtype[d]} {d}" for d in DTYPES))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="capture and store anew")
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS, help="what to capture (default: everything)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="captures at a time")
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        _capture_child(given.child)
        return 0
    print(table(write(STORED, kinds=given.kinds, jobs=given.jobs) if given.write else workloads()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
