"""A C++ kernel as a Python module that compiles it on first use: needs torch, a C++ compiler and the target's processor."""

from __future__ import annotations

import json
from collections.abc import Mapping

from accelopt_backends.base import Standalone
from accelopt_backends.cpp.allowed import MACRO
from accelopt_backends.cpp.toolchain import BASE_FLAGS, FLAG_SETS
from accelopt_compile.records import KernelSource

FILE = "kernel.cpp"

_TEXT = """import ctypes
import functools
import os
import pathlib
import subprocess
import tempfile

import torch

FLAGS = {flags}


@functools.cache
def _built():
    folder = tempfile.mkdtemp(prefix="accelopt-solution-")
    library = os.path.join(folder, "kernel.so")
    source = str(pathlib.Path(__file__).with_name("{file}"))
    subprocess.run([os.environ.get("CXX", "g++"), *FLAGS, source, "-o", library, "-lm"], check=True)
    function = ctypes.CDLL(library).accelopt_kernel
    function.restype = ctypes.c_int
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    return function


def accelopt_kernel(*arguments):
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    if any(t.device.type != "cpu" for t in tensors):
        raise ValueError("this kernel is for tensors on the CPU")
    sizes = arguments[len(tensors):]
    pointers = (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))
    values = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
    if _built()(pointers, values, torch.get_num_threads()) != 0:
        raise ValueError("the kernel declines these sizes")
"""


def standalone(source: KernelSource, tunables: Mapping[str, int], target: str) -> Standalone:
    """See `Backend.standalone`. The format has "cpp" for kernels behind a foreign-function library of its own, which knows no
    compiler flags; ours need theirs, so that the solution is Python that builds the C++ beside it."""
    if strange := [name for name in tunables if not MACRO.fullmatch(name)]:
        raise ValueError(f"tunables {strange} cannot stand on a command line")
    defines = [f"-D{name}={int(value)}" for name, value in sorted(tunables.items()) if name != "FLAGS"]
    flags = [*BASE_FLAGS, *FLAG_SETS[tunables.get("FLAGS", 0)], *march_of(target), *defines]
    text = _TEXT.format(flags=json.dumps(flags), file=FILE)
    return Standalone(language="python", text=text, hardware=("cpu",), files={FILE: source.text}, dependencies=("torch",))


def march_of(target: str) -> tuple[str, ...]:
    """The compiler's flags for a target ("cpp-x86_64-avx512-bf16"), as `toolchain.find` names both. Raises ValueError."""
    _, machine, level, *extra = [*target.split("-"), "", "", ""]
    match machine, level:
        case "aarch64", "neon":
            return ("-march=armv8-a",)
        case "x86_64", "avx512":
            return ("-march=x86-64-v4", "-mprefer-vector-width=512", *(f"-mavx512{name}" for name in extra if name))
        case "x86_64", "avx2":
            return ("-march=x86-64-v3",)
        case "x86_64", "baseline":
            return ("-march=x86-64",)
        case _, "generic":
            return ()
    raise ValueError(f"{target} is no target of C++ kernels")
