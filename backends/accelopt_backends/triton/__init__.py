"""The Triton backend: kernels for GPUs, generated from the region, compiled for named targets, proven without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from accelopt_backends.base import Guide, Kernel, Missing, Products, Ready, Refusal, Roofline, Standalone
from accelopt_backends.loops.generated import Generated
from accelopt_backends.triton import targets
from accelopt_compile.errors import ToolchainMissing
from accelopt_compile.records import Artifact, Binding, KernelSource, Workload


class TritonBackend(Generated):
    """See `accelopt_backends.base.Backend` for the contract of every method. `target` names what to build for where no GPU
    is; on a GPU it is the GPU's."""

    name = "triton"
    device = "cuda"
    target_names = r"triton-(cuda-sm_\d+|hip-gfx\w+)"
    automatic = True
    thread_tunables: tuple[str, ...] = ()
    products = Products(most=2)
    package = "accelopt_backends.triton"
    families: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "attention": ("_scaled_dot_product",),
        "matmul": ("aten.mm.", "aten.bmm.", "aten.addmm.", "aten.baddbmm.", "aten._scaled_mm.", "aten._int_mm."),
    }

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
            return Missing(why=str(missing).removesuffix(f"; {toolchain.INSTALL_HINT}"), how=toolchain.INSTALL_HINT)
        except ValueError as unknown:
            return Missing(why=str(unknown), how="name one of these targets")
        if device.present() is None:
            return Ready(target=target.name, environment=environment, rung="simulated")
        return Ready(target=target.name, environment=environment | device.environment(), attached=device.attached())

    def valid(self, source: KernelSource, tunables: Mapping[str, int]) -> bool:
        from accelopt_backends.triton import limits

        if any(value not in source.tunables.get(name, ()) for name, value in tunables.items()):
            return False
        chosen = source.defaults() | dict(tunables)
        if not limits.fits(source.text, chosen, self.target):
            return False
        return not source.rendered or self._holds(source, chosen)

    def _holds(self, source: KernelSource, tunables: Mapping[str, int]) -> bool:
        """Whether a generated kernel with these numbers fits a program's registers and shared memory, as its generator says."""
        if "\nBLOCK_D = tl.constexpr(" in source.text:
            return bool(self.module("attention").valid(source, tunables, self.target))
        fits = self.module("matmul").valid(source, tunables, self.target)
        return bool(fits and self.module("kernel").valid(source, tunables))

    def screen(self, source: KernelSource) -> Sequence[Refusal]:
        refusals: Sequence[Refusal] = self.module("screening").screen(source)
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

    def roofline(self, workload: Workload, binding: Binding, threads: int, *, fresh: bool = False) -> Roofline:
        from accelopt_backends.triton.roofline import roofline

        return roofline(workload, binding, self.target)

    def estimate(self, artifact: Artifact, workload: Workload, binding: Binding) -> float:
        from accelopt_backends.triton.estimate import estimate

        return estimate(artifact, workload, binding, self.target).seconds

    def shown(self, source: KernelSource, tunables: Mapping[str, int]) -> str:
        text: str = self.module("authored").shown(source, tunables)
        return text

    def written(self, text: str) -> KernelSource:
        source: KernelSource = self.module("authored").written(text)
        return source

    def standalone(self, source: KernelSource, tunables: Mapping[str, int], target: str) -> Standalone:
        from accelopt_backends.triton.standalone import standalone

        return standalone(source, tunables, target)

    def guide(self) -> Guide:
        from accelopt_backends.triton import roofline, toolchain

        machine = (f"device: {self.target.name}; compiler: triton {toolchain.version()}", *roofline.described(self.target))
        guide: Guide = self.module("authored").guide(machine)
        return guide
