"""The launcher: turns a function pointer into a Python callable that costs about 0.2 us a call.

`native.c` is compiled once per Python ABI and source text. Where there is no C compiler or no Python headers, a
slower ctypes launcher with the same calling rule takes its place.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.machinery
import importlib.util
import logging
import operator
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from accelopt_compile.launch import huge_pages
from accelopt_compile.records import sha256_text

log = logging.getLogger("accelopt_compile.launch")

SOURCE = Path(__file__).with_name("native.c")

PlainKernel = Callable[[list[int], list[int], int], int]
"""(data pointers, symbol values, threads) -> 0 when it ran: what a backend loads (`accelopt_backends.base.Kernel`)."""


class Launched(Protocol):
    """A callable `(input..., symbol..., output...) -> None`; with one output, that may be given as `out=`."""

    calls: int
    fallbacks: int

    def __call__(self, *args: Any, **out: Any) -> None: ...

    def many(self, tensors: tuple[Any, ...], sizes: tuple[int, ...], large: int) -> None:
        """One call for every instance in `tensors` (inputs, outputs, next inputs, ...), with its symbols in `sizes`. The
        first `large` instances get all threads one after another, the others a thread each."""


class PythonLauncher:
    """The launcher without C: reads data pointers with `Tensor.data_ptr`, about 3 us a call."""

    def __init__(
        self,
        kernel: PlainKernel | None,
        inputs: int,
        symbols: int,
        outputs: int,
        fallback: Callable[..., Any],
        most: tuple[int, ...] = (),
    ) -> None:
        self.kernel, self.inputs, self.symbols, self.outputs, self.fallback = kernel, inputs, symbols, outputs, fallback
        self.most = most
        self.calls = self.fallbacks = 0

    def __call__(self, *args: Any, **out: Any) -> None:
        args = (*args, *out.values())
        if len(args) != self.inputs + self.symbols + self.outputs or out.keys() - {"out"}:
            raise TypeError(f"kernel takes {self.inputs} tensors, {self.symbols} sizes and {self.outputs} outputs")
        self.calls += 1
        sizes = [operator.index(size) for size in args[self.inputs : self.inputs + self.symbols]]
        tensors = (*args[: self.inputs], *args[self.inputs + self.symbols :])
        served = 0 not in sizes and not any(size > most for size, most in zip(sizes, self.most, strict=False))
        if self.kernel is not None and served and self._ran(self.kernel, tensors, sizes):
            return
        self.fallbacks += 1
        self.fallback(*args)

    def _ran(self, kernel: PlainKernel, tensors: tuple[Any, ...], sizes: list[int]) -> bool:
        """Whether the kernel did the call."""
        try:
            for output in tensors[self.inputs :]:
                huge_pages.ask(output)
            pointers = [t.data_ptr() for t in tensors]
        except Exception as failure:  # guards the user's program: a tensor without memory is the reference's
            log.warning("a kernel cannot be called: %s: %s", type(failure).__name__, failure)
            return False
        # A C function raises nothing. What comes up here is of a signal handler of the user's, and for him.
        return kernel(pointers, sizes, thread_count()) == 0

    def many(self, tensors: tuple[Any, ...], sizes: tuple[int, ...], large: int) -> None:
        count = self.inputs + self.outputs
        if len(tensors) % count or len(sizes) * count != len(tensors) * self.symbols:
            raise TypeError(f"each instance takes {count} tensors and {self.symbols} sizes")
        for k in range(len(tensors) // count):
            mine = tensors[k * count : (k + 1) * count]
            self(*mine[: self.inputs], *sizes[k * self.symbols : (k + 1) * self.symbols], *mine[self.inputs :])


class GuardedLauncher(PythonLauncher):
    """For kernels that are Python functions, and may raise. One that writes over its inputs may have done so by then, and the
    fallback would write once more: what it raises reaches the caller.

    Those of a device only put work on a stream: the device of the tensors is the current one for the call, the stream is its
    current one, and nobody waits. So a call can be recorded into a graph of the device, as any of Inductor's."""

    def __init__(self, kernel: PlainKernel | None, *, in_place: bool, **rest: Any) -> None:
        super().__init__(kernel, **rest)
        self.in_place = in_place

    def _ran(self, kernel: PlainKernel, tensors: tuple[Any, ...], sizes: list[int]) -> bool:
        try:
            return self._on_its_device(kernel, tensors, sizes)
        except Exception as failure:  # guards the user's program: the fallback is right whatever the kernel does
            if self.in_place:
                raise
            log.warning("a kernel raised %s: %s", type(failure).__name__, failure)
            return False

    def _on_its_device(self, kernel: PlainKernel, tensors: tuple[Any, ...], sizes: list[int]) -> bool:
        import torch

        place = tensors[0].device
        if place.index is None or place.index == (module := torch.get_device_module(place.type)).current_device():
            return super()._ran(kernel, tensors, sizes)
        with module.device(place.index):
            return super()._ran(kernel, tensors, sizes)


_parent = os.getpid()
_process = ctypes.CDLL(None)
"""Every library that is loaded for all to see, OpenMP's among them once torch is there."""


def thread_count() -> int:
    """Threads that a kernel may use now: torch's number, or 1 in a forked child (an OpenMP pool does not survive fork).
    No more than OpenMP surely gives, as a kernel may share its work out by the number it is told."""
    import torch

    if os.getpid() != _parent:
        return 1
    if not hasattr(_process, "omp_get_thread_limit"):
        return torch.get_num_threads()
    if _process.omp_get_dynamic() or _process.omp_in_parallel():
        return 1
    return min(torch.get_num_threads(), int(_process.omp_get_thread_limit()))


def c_function(path: str, symbol: str = "accelopt_kernel") -> tuple[int, Any]:
    """Address of a C entry point, and the library object to keep alive. Raises OSError when it cannot be loaded."""
    library = ctypes.CDLL(path)
    try:
        function = getattr(library, symbol)
    except AttributeError as failure:
        raise OSError(f"{path} has no symbol {symbol}") from failure
    return ctypes.cast(function, ctypes.c_void_p).value or 0, library


def plain(address: int) -> PlainKernel:
    """The C function at `address` as a plain kernel, through ctypes."""
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)

    def call(pointers: list[int], sizes: list[int], threads: int) -> int:
        tensors = (ctypes.c_void_p * len(pointers))(*pointers)
        return int(function(tensors, (ctypes.c_int64 * max(1, len(sizes)))(*sizes), threads))

    return call


def launcher(
    address: int,
    *,
    inputs: int,
    symbols: int,
    outputs: int,
    fallback: Callable[..., Any],
    keep: Any,
    release_gil: bool,
    directory: Path,
    most: tuple[int, ...] = (),
) -> Launched:
    """A callable for the C function at `address` (0: only the fallback exists).

    `keep` is held as long as the callable; `release_gil` lets other Python threads run during a call (worth it from
    about 50 us); `directory` is where the compiled launcher is kept; `most` the largest size that each symbol may have (none:
    any).
    """
    module = native_module(directory)
    if module is not None:
        made: Launched = module.Kernel(address, inputs, symbols, outputs, release_gil, fallback, keep, most)
        return made
    return PythonLauncher(plain(address) if address else None, inputs, symbols, outputs, fallback, most)


@functools.cache
def native_module(directory: Path) -> ModuleType | None:
    """The compiled launcher, built on first use; None (with one INFO line saying why) where it cannot be had."""
    if os.environ.get("ACCELOPT_NATIVE_LAUNCHER") == "0":
        return None
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        log.info("kernels are launched through ctypes: the compiled launcher would bring the GIL back to this Python")
        return None
    try:
        module = _load(_built(directory))
        _configure(module)
    except (OSError, ImportError, AttributeError, subprocess.SubprocessError, RuntimeError) as failure:
        log.info("kernels are launched through ctypes (about 3 us a call): %s", failure)
        return None
    return module


def _built(directory: Path) -> Path:
    """The launcher's file, made here unless it lies there whole: loading half of one ends the process (SIGBUS)."""
    text = SOURCE.read_text()
    digest = sha256_text("\n".join([text, sysconfig.get_config_var("SOABI") or sys.version, sysconfig.get_platform()]))[:24]
    place = directory / f"launcher-{digest}"
    whole = [found for found in sorted(place.glob("*.so")) if found.is_file() and found.stem == _sha256(found)]
    if whole:
        return whole[0]
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise OSError("no C compiler (cc, gcc or clang) on PATH")
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        built = Path(scratch) / "accelopt_launcher.so"
        command = [compiler, "-O2", "-fPIC", "-shared", f"-I{sysconfig.get_paths()['include']}", str(SOURCE), "-o", str(built)]
        for parallel in (["-fopenmp"], []):  # without OpenMP `many` runs its instances one after another
            done = subprocess.run([*command, *parallel], capture_output=True, text=True, timeout=60)
            if done.returncode == 0:
                break
        if done.returncode:
            raise OSError(f"{' '.join(command)} failed: {done.stderr.strip()[:400]}")
        final = place / f"{_sha256(built)}.so"
        if final.is_dir() and not final.is_symlink():
            shutil.rmtree(final)
        os.replace(built, final)
    return final


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _load(path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader("accelopt_launcher", str(path))
    spec = importlib.util.spec_from_loader("accelopt_launcher", loader)
    if spec is None:
        raise ImportError(f"no module spec for {path}")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _configure(module: ModuleType) -> None:
    """Give the launcher torch's data-pointer reader, then check it on a tensor: the helper is not public API."""
    import torch

    address = torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr  # type: ignore[attr-defined]
    module.configure(address, torch.Tensor, torch.nn.Parameter, torch.get_num_threads)
    probe = torch.empty(8)[2:]
    if module.data_ptr(probe) != probe.data_ptr():
        raise RuntimeError("torch's data-pointer helper does not answer data_ptr() in this release")
