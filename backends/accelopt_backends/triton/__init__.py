"""The Triton backend: kernels for GPUs, generated from the region, compiled for named targets, proven without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

from accelopt_backends.base import Guide, Kernel, Missing, Ready, Refusal, Roofline, Standalone
from accelopt_backends.loops.affine import Unsupported
from accelopt_backends.triton import targets
from accelopt_compile.errors import ToolchainMissing
from accelopt_compile.records import Artifact, Binding, KernelSource, Workload


class TritonBackend:
    """See `accelopt_backends.base.Backend` for the contract of every method. `target` names what to build for where no GPU
    is; on a GPU it is the GPU's."""

    name = "triton"
    device = "cuda"
    automatic = True
    gemm_budget = 2

    def __init__(self, target: str = "") -> None:
        self.argument = target

    @property
    def target(self) -> targets.Target:
        """What is built for. Raises ValueError for a name that no target has."""
        from accelopt_backends.triton import device

        return device.present() or targets.target_named(self.argument or targets.DEFAULT)

    def probe(self) -> Ready | Missing:
        from accelopt_backends.triton import device, toolchain

        try:
            environment = toolchain.environment()
            target = self.target
        except ToolchainMissing as missing:
            return Missing(why=str(missing), how=toolchain.INSTALL_HINT)
        except ValueError as unknown:
            return Missing(why=str(unknown), how="name one of these targets")
        if device.present() is None:
            return Ready(target=target.name, environment=environment, rung="simulated")
        return Ready(target=target.name, environment=environment | device.environment(), attached=device.attached())

    def supports(self, workload: Workload) -> str | None:
        family = _family(workload)
        if family is not None:
            matched = family.matches(workload)
            return None if matched is True else str(matched)
        try:
            _rendered(workload.to_text(), ())
        except Unsupported as reason:
            return str(reason)
        return None

    def seed(self, workload: Workload) -> KernelSource:
        return self.render(workload, {})

    def grammar(self, workload: Workload) -> Mapping[str, tuple[str, ...]]:
        offered: Mapping[str, tuple[str, ...]] = (_family(workload) or _module("kernel")).grammar(workload)
        return offered

    def render(self, workload: Workload, structure: Mapping[str, str]) -> KernelSource:
        grammar = self.grammar(workload)
        for name, value in structure.items():
            if value not in grammar.get(name, ()):
                raise ValueError(f"structure {name}={value!r}; this workload takes {dict(grammar)}")
        family = _family(workload)
        if family is not None:
            source: KernelSource = family.render(workload, structure)
            return source
        try:
            return _rendered(workload.to_text(), tuple(sorted(structure.items())))
        except Unsupported as reason:
            raise ValueError(f"no kernel with {dict(structure)}: {reason}") from reason

    def valid(self, source: KernelSource, tunables: Mapping[str, int]) -> bool:
        from accelopt_backends.triton import limits

        if any(value not in source.tunables.get(name, ()) for name, value in tunables.items()):
            return False
        chosen = source.defaults() | dict(tunables)
        if not limits.fits(source.text, chosen, self.target):
            return False
        return not source.rendered or _holds(source, chosen, self.target)

    def screen(self, source: KernelSource) -> Sequence[Refusal]:
        refusals: Sequence[Refusal] = _module("screening").screen(source)
        return refusals

    def build(self, source: KernelSource, tunables: Mapping[str, int], workdir: str) -> Artifact:
        from accelopt_backends.triton import toolchain

        return toolchain.build(source, tunables, workdir, self.target)

    def load(self, artifact: Artifact) -> Kernel:
        from accelopt_backends.triton import device

        if device.present() is not None:
            return device.load(artifact)
        from accelopt_backends.triton import interpreter

        return interpreter.load(artifact)

    def roofline(self, workload: Workload, binding: Binding, threads: int) -> Roofline:
        from accelopt_backends.triton.roofline import roofline

        return roofline(workload, binding, self.target)

    def estimate(self, artifact: Artifact, workload: Workload, binding: Binding) -> float:
        from accelopt_backends.triton.estimate import estimate

        return estimate(artifact, workload, binding, self.target).seconds

    def shown(self, source: KernelSource, tunables: Mapping[str, int]) -> str:
        text: str = _module("authored").shown(source, tunables)
        return text

    def written(self, text: str) -> KernelSource:
        source: KernelSource = _module("authored").written(text)
        return source

    def standalone(self, source: KernelSource, tunables: Mapping[str, int], target: str) -> Standalone:
        from accelopt_backends.triton.standalone import standalone

        return standalone(source, tunables, target)

    def guide(self) -> Guide:
        from accelopt_backends.triton import roofline, toolchain

        machine = (f"device: {self.target.name}; compiler: triton {toolchain.version()}", *roofline.described(self.target))
        guide: Guide = _module("authored").guide(machine)
        return guide


_FAMILIES = {
    "attention": ("_scaled_dot_product",),
    "matmul": ("aten.mm.", "aten.bmm.", "aten.addmm.", "aten.baddbmm.", "aten._scaled_mm.", "aten._int_mm."),
}
"""Operators with kernels of their own: a module with matches, grammar, render and valid, and what marks them in a workload.
`matches` says True or why not. The modules that write kernels are imported where one is written: a process that finds all
of its winners in the store starts without them."""


def _family(workload: Workload) -> Any:
    """The module that writes kernels for this workload, or None: the generic generator."""
    names = (name for name, marks in _FAMILIES.items() if any(mark in node.op for node in workload.nodes for mark in marks))
    found = next(names, None)
    return None if found is None else _module(found)


def _holds(source: KernelSource, tunables: Mapping[str, int], target: targets.Target) -> bool:
    """Whether a generated kernel with these numbers fits a program's registers and shared memory, as its generator says."""
    if "\nBLOCK_D = tl.constexpr(" in source.text:
        return bool(_module("attention").valid(source, tunables, target))
    return bool(_module("matmul").valid(source, tunables, target) and _module("kernel").valid(source, tunables))


def _module(name: str) -> Any:
    return import_module(f"accelopt_backends.triton.{name}")


@lru_cache(maxsize=256)
def _rendered(workload_text: str, structure: tuple[tuple[str, str], ...]) -> KernelSource:
    import json

    source: KernelSource = _module("kernel").render(Workload.from_json(json.loads(workload_text)), dict(structure))
    return source
