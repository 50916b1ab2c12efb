"""The reference backend: a kernel is the region's own ATen calls, written out as Python. Always there, never fast.

It carries the tests of the rooms above without a compiler. Structure "passes" and tunable REPEAT say how many times the
work is redone, so that a search has something to improve.

It also carries the rung "simulated": asked for the target of another device than the one here, it prepares kernels for that
one. Which device is here says $ACCELOPT_REFERENCE_DEVICE, so that one machine can be both in turn.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from accelopt_backends.base import NO_PRODUCTS, Guide, Kernel, Missing, Ready, Refusal, Roofline, Standalone
from accelopt_backends.reference.emit import emit
from accelopt_compile.errors import ToolchainFailed
from accelopt_compile.records import Artifact, Binding, KernelSource, Workload, sha256_text

GRAMMAR: Mapping[str, tuple[str, ...]] = {"passes": ("3", "2", "1")}
TUNABLES: Mapping[str, tuple[int, ...]] = {"REPEAT": (2, 1)}

DEVICE_VARIABLE = "ACCELOPT_REFERENCE_DEVICE"

_IMPORT = re.compile(r"^\s*(import|from)\s|__|\b(open|exec|eval|compile|getattr)\s*\(")


class ReferenceBackend:
    """Kernels in the language "reference": Python text that defines `kernel(pointers, sizes, threads) -> int`."""

    name = "reference"
    device = "cpu"
    target_names = r"reference(-[a-z0-9]+)?"
    automatic = False
    thread_tunables: tuple[str, ...] = ()
    products = NO_PRODUCTS

    def __init__(self, target: str = "") -> None:
        self._device = os.environ.get(DEVICE_VARIABLE, "") or "reference"
        self._target = target or self._device

    def probe(self) -> Ready | Missing:
        try:
            import torch
        except ImportError:
            return Missing(why="torch cannot be imported", how="pip install torch")
        if not re.fullmatch(self.target_names, self._target):
            return Missing(why=f"no reference device is called {self._target!r}", how="reference, or reference-NAME")
        rung: Literal["device", "simulated"] = "device" if self._target == self._device else "simulated"
        return Ready(target=self._target, environment={"torch": str(torch.__version__)}, rung=rung)

    def supports(self, workload: Workload) -> str | None:
        """Everything whose operators this torch has."""
        from accelopt_backends.reference.runtime import operator_of

        for node in workload.nodes:
            if operator_of(node.op) is None:
                return f"this torch has no {node.op}"
        return None

    def seed(self, workload: Workload) -> KernelSource:
        return self.render(workload, {})

    def grammar(self, workload: Workload) -> Mapping[str, tuple[str, ...]]:
        return GRAMMAR

    def render(self, workload: Workload, structure: Mapping[str, str]) -> KernelSource:
        """The workload as Python, done over `passes` times REPEAT. Raises ValueError for a choice outside the grammar."""
        for name, value in structure.items():
            if value not in GRAMMAR.get(name, ()):
                raise ValueError(f"{name}={value} is not in the grammar")
        passes = structure.get("passes", GRAMMAR["passes"][0])
        text = emit(workload, passes=int(passes))
        return KernelSource(language="reference", text=text, tunables=TUNABLES, structure={"passes": passes})

    def valid(self, source: KernelSource, tunables: Mapping[str, int]) -> bool:
        return True

    def screen(self, source: KernelSource) -> Sequence[Refusal]:
        """Kernels import nothing and open nothing: what they need is in scope."""
        return [
            Refusal(
                line=number,
                reason="imports and host calls are not allowed",
                hint="use aten, specs and tensors, which are in scope",
            )
            for number, line in enumerate(source.text.splitlines(), 1)
            if _IMPORT.search(line)
        ]

    def build(self, source: KernelSource, tunables: Mapping[str, int], workdir: str) -> Artifact:
        """Check the syntax and write the file. Raises ToolchainFailed."""
        begin = time.perf_counter()
        try:
            compile(source.text, "<kernel>", "exec")
        except SyntaxError as failure:
            raise ToolchainFailed(f"line {failure.lineno}: {failure.msg}", diagnosis=failure.text or "") from failure
        values = {**source.defaults(), **tunables}
        header = "".join(f"{name} = {int(value)}\n" for name, value in sorted(values.items()))
        path = Path(workdir) / f"{sha256_text(header + source.text)[:16]}.py"
        path.write_text(header + source.text)
        features = {"lines": source.text.count("\n")}
        return Artifact(
            path=str(path), source_digest=source.digest, tunables=values, features=features, build_s=time.perf_counter() - begin
        )

    def load(self, artifact: Artifact) -> Kernel:
        """Run the file's text in a namespace that holds ATen and nothing else. Raises OSError."""
        from accelopt_backends.reference.runtime import load_text

        return load_text(Path(artifact.path).read_text())

    def roofline(self, workload: Workload, binding: Binding, threads: int, *, fresh: bool = False) -> Roofline:
        """One byte a picosecond: no reference kernel is ever too fast."""
        elements = 1
        for spec in (*workload.inputs, *workload.output_specs):
            for n in workload.bound_shape(spec, binding):
                elements = max(elements, n)
        return Roofline(seconds=elements * 1e-12, bound="memory")

    def estimate(self, artifact: Artifact, workload: Workload, binding: Binding) -> float:
        """The roofline, once for each time that the kernel's text says the work is done."""
        passes = re.search(r"in range\((\d+) \* REPEAT\)", Path(artifact.path).read_text())
        times = int(passes[1]) * artifact.tunables.get("REPEAT", 1) if passes else 1
        return times * self.roofline(workload, binding, 1).seconds

    def shown(self, source: KernelSource, tunables: Mapping[str, int]) -> str:
        values = {
            name: [tunables[name], *(v for v in all_ if v != tunables[name])] for name, all_ in sorted(source.tunables.items())
        }
        return f"# TUNABLES: {json.dumps(values)}\n{source.text}" if values else source.text

    def written(self, text: str) -> KernelSource:
        first, _, rest = text.partition("\n")
        declared = re.fullmatch(r"#\s*TUNABLES:\s*(\{.*\})\s*", first)
        if declared is None:
            return KernelSource(language=self.name, text=text, origin="llm")
        try:
            tunables = {str(name): tuple(int(v) for v in values) for name, values in json.loads(declared[1]).items()}
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as failure:
            raise ValueError(f"TUNABLES is not JSON: {failure}") from failure
        return KernelSource(language=self.name, text=rest, tunables=tunables, origin="llm")

    def standalone(self, source: KernelSource, tunables: Mapping[str, int], target: str) -> Standalone:
        raise ValueError("reference kernels call into this package; they are for tests")

    def guide(self) -> Guide:
        facts = "---\nversion: 1\n---\nA kernel is a Python function over ATen; it redoes its work `passes` times REPEAT."
        writing = "---\nversion: 1\n---\n`kernel(pointers, sizes, threads)` writes every output and returns 0."
        return Guide(language="Python", fences=("python", "py"), facts=facts, writing=writing)
