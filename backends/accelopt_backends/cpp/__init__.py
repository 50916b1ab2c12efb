"""The C++ backend: kernels for CPUs, generated from the region, built by the system's compiler, called through a plain C ABI."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import ClassVar

from accelopt_backends.base import Guide, Kernel, Missing, Products, Ready, Refusal, Roofline, Standalone
from accelopt_backends.cpp import screening, toolchain
from accelopt_backends.loops.generated import Generated
from accelopt_compile.errors import ObjectRefused, ToolchainMissing
from accelopt_compile.records import Artifact, Binding, KernelSource, Workload, sha256_text

WIDEST = 2 if toolchain.cpu_vendor() == "GenuineIntel" else 4
"""Bytes of a product's elements at most. On Intel's processors MKL reads weights in float32 at the memory's full rate
(kernels: 0.99x to 1.02x); on a Zen 5 it reads them at 15 GB/s with two threads, and kernels are 2.0x to 2.2x."""


class CppBackend(Generated):
    """See `accelopt_backends.base.Backend` for the contract of every method."""

    name = "cpp"
    device = "cpu"
    target_names = r"cpp-(x86_64-(baseline|avx2|avx512(-bf16)?(-fp16)?)|aarch64-neon|\w+-generic)"
    automatic = True
    thread_tunables: tuple[str, ...] = ("GRAIN",)
    products = Products(most=1, rows=1, widest=WIDEST)
    package = "accelopt_backends.cpp"
    families: ClassVar[Mapping[str, tuple[str, ...]]] = {"attention": ("_scaled_dot_product",), "topk": ("aten.topk.",)}

    def probe(self) -> Ready | Missing:
        try:
            chain = toolchain.find()
        except ToolchainMissing as missing:
            return Missing(why=str(missing).removesuffix(f"; {toolchain.INSTALL_HINT}"), how=toolchain.INSTALL_HINT)
        about = {"compiler": chain.version, "march": " ".join(chain.march), "flags": toolchain.FLAGS_TEXT}
        about["device"] = toolchain.cpu_name()
        return Ready(target=chain.target, environment=about)

    def valid(self, source: KernelSource, tunables: Mapping[str, int]) -> bool:
        if any(name not in source.tunables for name in tunables):
            return False
        if source.origin == "llm":
            return True  # `written` has checked the values; what they mean is the author's
        if "Q_VECS" in source.tunables or "ROW_BLOCK" in source.tunables:
            return bool(self.module("attention").valid(source, tunables))
        if "SPARE" in source.tunables:
            return bool(self.module("topk").valid(source, tunables))
        return all(0 <= value < 1 << 20 for value in tunables.values())

    def screen(self, source: KernelSource) -> Sequence[Refusal]:
        return screening.screen(source)

    def build(self, source: KernelSource, tunables: Mapping[str, int], workdir: str) -> Artifact:
        import time

        from accelopt_backends.cpp.object_screen import screen_object

        start = time.perf_counter()
        key = sha256_text(source.text + repr(sorted(tunables.items())))[:24]
        path, _ = toolchain.compile_shared(source.text, tunables=tunables, workdir=workdir, name=f"k{key}")
        fault, screened = screen_object(path)
        if fault is not None:
            path.unlink(missing_ok=True)
            raise ObjectRefused(f"the built object is refused: {fault.what}", diagnosis=fault.hint)
        return Artifact(
            path=str(path),
            source_digest=source.digest,
            tunables=dict(tunables),
            features={**toolchain.object_features(path), **toolchain.disassembly_features(path), "object_screen": screened},
            build_s=time.perf_counter() - start,
        )

    def load(self, artifact: Artifact) -> Kernel:
        function = ctypes.CDLL(artifact.path).accelopt_kernel
        function.restype = ctypes.c_int
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]

        def call(pointers: Sequence[int], sizes: Sequence[int], threads: int) -> int:
            tensors = (ctypes.c_void_p * len(pointers))(*pointers)
            symbols = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
            return int(function(tensors, symbols, threads))

        call.function = function  # type: ignore[attr-defined]
        return call

    def roofline(self, workload: Workload, binding: Binding, threads: int, *, fresh: bool = False) -> Roofline:
        from accelopt_backends.cpp.roofline import roofline

        return roofline(workload, binding, threads, fresh=fresh)

    def estimate(self, artifact: Artifact, workload: Workload, binding: Binding) -> float:
        """Never asked for: there is no processor here but the one that kernels run on."""
        raise NotImplementedError("C++ kernels are timed")

    def shown(self, source: KernelSource, tunables: Mapping[str, int]) -> str:
        from accelopt_backends.cpp import authored

        return authored.shown(source, tunables)

    def written(self, text: str) -> KernelSource:
        from accelopt_backends.cpp import authored

        return authored.written(text)

    def standalone(self, source: KernelSource, tunables: Mapping[str, int], target: str) -> Standalone:
        from accelopt_backends.cpp.standalone import standalone

        return standalone(source, tunables, target)

    def guide(self) -> Guide:
        from accelopt_backends.cpp import authored
        from accelopt_backends.cpp.roofline import peaks

        chain, peak = toolchain.find(), peaks()
        rates = ", ".join(f"{size >> 10} KiB at {rate / 1e9:.0f} GB/s" for size, rate in peak.bandwidths)
        return authored.guide(
            (
                f"processor: {chain.target}, flags {' '.join(chain.march)}; compiler: {chain.version}",
                f"one thread reads again and again: {rates}; it does {peak.flops / 1e9:.0f} GFLOP/s in float32",
                *toolchain.caches(),
            )
        )
