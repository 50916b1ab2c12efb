"""A small backend over g++ for these tests: sources are C++ files of the native calling rule."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from accelopt_backends.base import Attached, Guide, Ready, Refusal, Roofline
from accelopt_compile.errors import ToolchainFailed
from accelopt_compile.records import Artifact, Binding, KernelSource, Workload


class NativeKernel:
    """A C function; slow to call as a kernel, fast through `function`."""

    def __init__(self, path: str) -> None:
        self.function = ctypes.CDLL(path).accelopt_kernel
        self.function.restype = ctypes.c_int
        self.function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]

    def __call__(self, pointers: Sequence[int], sizes: Sequence[int], threads: int) -> int:
        tensors = (ctypes.c_void_p * len(pointers))(*pointers)
        return int(self.function(tensors, (ctypes.c_int64 * max(1, len(sizes)))(*sizes), threads))


class NativeBackend:
    name = "native"
    device = "cpu"
    automatic = False
    thread_tunables: tuple[str, ...] = ()

    def probe(self) -> Ready:
        return Ready(target="native", environment={})

    def supports(self, workload: Workload) -> str | None:
        return None

    def seed(self, workload: Workload) -> KernelSource:
        return sample()

    def grammar(self, workload: Workload) -> Mapping[str, tuple[str, ...]]:
        return {}

    def render(self, workload: Workload, structure: Mapping[str, str]) -> KernelSource:
        return sample()

    def valid(self, source: KernelSource, tunables: Mapping[str, int]) -> bool:
        return tunables.get("WIDTH") != 3

    def screen(self, source: KernelSource) -> Sequence[Refusal]:
        return [
            Refusal(line=number, reason="system() is not allowed", hint="compute")
            for number, line in enumerate(source.text.splitlines(), 1)
            if "system(" in line
        ]

    def build(self, source: KernelSource, tunables: Mapping[str, int], workdir: str) -> Artifact:
        folder = Path(workdir)
        (folder / "kernel.cpp").write_text(source.text)
        defines = [f"-D{name}={value}" for name, value in tunables.items()]
        command = ["g++", "-O2", "-shared", "-fPIC", *defines, "kernel.cpp", "-o", "kernel.so"]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if ran.returncode != 0:
            raise ToolchainFailed("g++ refused the source", diagnosis=ran.stderr[-2000:])
        return Artifact(path=str(folder / "kernel.so"), source_digest=source.digest, tunables=tunables)

    def load(self, artifact: Artifact) -> NativeKernel:
        return NativeKernel(artifact.path)

    def roofline(self, workload: Workload, binding: Binding, threads: int, *, fresh: bool = False) -> Roofline:
        return Roofline(seconds=1e-9, bound="memory")

    def estimate(self, artifact: Artifact, workload: Workload, binding: Binding) -> float:
        raise NotImplementedError("native kernels are timed")

    def shown(self, source: KernelSource, tunables: Mapping[str, int]) -> str:
        return source.text

    def written(self, text: str) -> KernelSource:
        return KernelSource(language="cpp", text=text, origin="llm")

    def guide(self) -> Guide:
        return Guide(language="C++", fences=("cpp",), facts="---\nversion: 1\n---\n", writing="---\nversion: 1\n---\n")


def sample(*, before: str = "", after: str = "", replace: Mapping[str, str] | None = None) -> KernelSource:
    """The right softmax with code put in before or after its loop, or with pieces of its text replaced."""
    text = (Path(__file__).parent / "samples" / "softmax.cpp").read_text()
    text = text.replace("/*BEFORE*/", before).replace("/*AFTER*/", after)
    for old, new in (replace or {}).items():
        assert old in text
        text = text.replace(old, new)
    return KernelSource(language="cpp", text=text, tunables={"WIDTH": (1, 2, 3)}, origin="human")


class AttachedBackend(NativeBackend):
    """The same kernels on a device with memory of its own, which is here for certain: the stand-in on the host. `opens` are the
    files that its driver is said to need."""

    opens: tuple[str, ...] = ()

    def probe(self) -> Ready:
        return Ready(target="native", environment={}, attached=Attached(driver="copies", opens=self.opens))
