"""The C++ compiler: finding it, the exact flags for this processor, one build, and what can be read off the result.

The target names resolved features, never "native": two machines with one target run the same instructions. Flags come
from a fixed list. -ffast-math is never used: linked into a shared object by GCC it changes the denormal mode of the
whole process, and it folds the rounding tricks of the prelude.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from accelopt_backends.cpp.allowed import MACRO
from accelopt_compile.errors import ToolchainFailed, ToolchainMissing

BUILD_TIMEOUT_S = 120.0
OUTPUT_LIMIT = 16_384
BASE_FLAGS = (
    *("-std=c++20", "-fno-math-errno", "-fno-trapping-math", "-fno-exceptions", "-fno-rtti", "-fno-jump-tables"),
    *("-fopenmp", "-shared", "-fPIC", "-Wno-psabi"),
)
LINK_FLAGS = (
    "-nostartfiles",  # nothing runs at load, and nothing is there that can be written: `object_screen` holds kernels to that
    f"-Wl,--version-script={Path(__file__).with_name('exports.map')}",
    "-Wl,-z,defs,-z,now,-z,relro,-z,noexecstack,--as-needed",
    "-lm",
)
FLAG_SETS: tuple[tuple[str, ...], ...] = (("-O3",), ("-O2",), ("-O3", "-fno-tree-vectorize"))
"""What the tunable FLAGS chooses from."""
FLAGS_TEXT = " | ".join(" ".join(flags) for flags in (BASE_FLAGS, *FLAG_SETS))
"""Of the environment that a record is proven in: other flags may make other code of the same text."""

INSTALL_HINT = "install g++ 11 or newer (Debian and Ubuntu: apt install g++; Fedora: dnf install gcc-c++), or set CXX"


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """A compiler that works here. `version` is the first line of --version; `march` its flags for this processor."""

    compiler: str
    version: str
    march: tuple[str, ...]
    target: str


@lru_cache(maxsize=1)
def find() -> Toolchain:
    """The first working compiler of $CXX, g++, clang++, c++. Raises ToolchainMissing with what was tried."""
    tried = []
    for name in dict.fromkeys(filter(None, [os.environ.get("CXX"), "g++", "clang++", "c++"])):
        path = shutil.which(name)
        if path is None:
            tried.append(f"{name}: not found")
            continue
        version = _run([path, "--version"], timeout=20).stdout.splitlines()[:1]
        target, march = _processor()
        usable, reason = _usable_flags(path, march)
        if usable is None:
            tried.append(f"{name} ({version[0] if version else 'no version'}): {reason}")
            continue
        return Toolchain(compiler=path, version=version[0] if version else name, march=usable, target=target)
    raise ToolchainMissing(f"no C++20 compiler with OpenMP: {'; '.join(tried)}; {INSTALL_HINT}")


def _run(
    command: Sequence[str], *, timeout: float, source: str | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, input=source, cwd=folder, capture_output=True, text=True, timeout=timeout, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return subprocess.CompletedProcess(list(command), 127, "", f"{type(failure).__name__}: {failure}")


def cpu_features() -> frozenset[str]:
    """Instruction-set flags of this processor, as the kernel names them (empty where it does not say)."""
    return frozenset(_of_processor("flags|Features").split())


def cpu_vendor() -> str:
    """Who made this processor, "GenuineIntel" for one; "" where it does not say."""
    return _of_processor("vendor_id")


def cpu_name() -> str:
    """This processor as it names itself, with the numbers that tell one generation from the next where names do not: three
    generations of servers call themselves "AMD EPYC". "" where it says nothing."""
    fields = ("model name", "cpu family", "model", "CPU implementer", "CPU part")
    told = [f"{field.removeprefix('cpu ').removeprefix('CPU ')} {found}" for field in fields if (found := _of_processor(field))]
    return ", ".join(told).removeprefix("model name ")


def divides_beside_the_rest() -> bool:
    """Whether a division of a vector costs this processor less than an estimate of the reciprocal and what makes it exact."""
    return cpu_vendor() == "AuthenticAMD"


@lru_cache(maxsize=8)  # a rendering of a kernel asks, and a grammar renders a dozen
def _of_processor(field: str) -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    found = re.search(rf"^(?:{field})\s*:\s*(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else ""


def _processor() -> tuple[str, tuple[str, ...]]:
    """(target, compiler flags). PyTorch's ATEN_CPU_CAPABILITY, which lowers what its own kernels and Inductor's may use, lowers
    ours: "avx2", or "default" for no vectors beyond the architecture's own."""
    machine = platform.machine().lower()
    have = cpu_features()
    cap = os.environ.get("ATEN_CPU_CAPABILITY", "")
    if machine in ("aarch64", "arm64"):
        return "cpp-aarch64-neon", ("-march=armv8-a",)
    if machine not in ("x86_64", "amd64"):
        return f"cpp-{machine}-generic", ()
    if have >= {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} and cap not in ("avx2", "default"):
        extra = [f for f in ("avx512_bf16", "avx512_fp16") if f in have]
        name = "cpp-x86_64-avx512" + "".join("-" + f.removeprefix("avx512_") for f in extra)
        return name, ("-march=x86-64-v4", "-mprefer-vector-width=512", *("-m" + f.replace("_", "") for f in extra))
    if have >= {"avx2", "fma", "f16c", "bmi2"} and cap != "default":
        return "cpp-x86_64-avx2", ("-march=x86-64-v3",)
    return "cpp-x86_64-baseline", ("-march=x86-64",)


def caches() -> list[str]:
    """A line about the data caches of one core, where the system tells."""
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except (OSError, ValueError):
            continue
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return [f"data caches: {', '.join(found)}"] if found else []


def _usable_flags(compiler: str, march: tuple[str, ...]) -> tuple[tuple[str, ...] | None, str]:
    probe = (
        "typedef float v __attribute__((vector_size(32)));\n"
        'extern "C" int f(v* x) { auto g = [&]<int N>() { *x += 1.0f * N; }; g.template operator()<1>(); return 0; }\n'
    )
    command = [compiler, *BASE_FLAGS, "-O1", *march, "-x", "c++", "-", "-o", os.devnull, *LINK_FLAGS]
    done = _run(command, timeout=60, source=probe)
    if done.returncode == 0:
        return march, ""
    return None, (done.stderr.strip().splitlines() or ["it failed without a word"])[0]


def compile_shared(
    source: str, *, tunables: Mapping[str, int], workdir: str, name: str, link: Sequence[str] = LINK_FLAGS
) -> tuple[Path, str]:
    """Build `source` into workdir/name.so; returns it and the compiler's remarks. `link` is another one only for code of our
    own that exports more than a kernel. Raises ToolchainFailed."""
    chain = find()
    folder = Path(workdir)
    text, out = folder / f"{name}.cpp", folder / f"{name}.so"
    try:
        text.write_text(source)
    except OSError as failure:
        raise ToolchainFailed(f"the build folder {workdir} cannot be written: {failure}") from failure
    strange = [k for k in tunables if not MACRO.fullmatch(k)]
    if strange or not 0 <= tunables.get("FLAGS", 0) < len(FLAG_SETS):
        raise ToolchainFailed(f"tunables {dict(tunables)} cannot stand on a command line: names in capitals, FLAGS below 3")
    defines = [f"-D{k}={int(v)}" for k, v in sorted(tunables.items()) if k != "FLAGS"]
    flags = FLAG_SETS[tunables.get("FLAGS", 0)]
    command = [chain.compiler, *BASE_FLAGS, *flags, *chain.march, *defines, text.name, "-o", out.name, *link]
    done = _run(command, timeout=BUILD_TIMEOUT_S, folder=folder)
    if done.returncode != 0:
        raise ToolchainFailed(f"{Path(chain.compiler).name} refused the source", diagnosis=trim(done.stderr))
    return out, done.stderr[:OUTPUT_LIMIT]


def trim(stderr: str) -> str:
    """The compiler's errors without the echo of the source: what an author needs to find the cause."""
    lines = [line for line in stderr.splitlines() if re.search(r"error|undefined reference|note:", line)]
    return "\n".join(lines[:20])[:4000] or stderr[:2000]


def object_features(path: Path) -> dict[str, Any]:
    """Size and digest of the object."""
    data = path.read_bytes()
    return {"object_digest": hashlib.sha256(data).hexdigest(), "object_bytes": len(data)}


def disassembly_features(path: Path) -> dict[str, int]:
    """Instruction counts: vector widths, fused multiply-adds, stack spills. Empty without objdump."""
    if shutil.which("objdump") is None:
        return {}
    text = _run(["objdump", "-d", "--no-show-raw-insn", str(path)], timeout=30).stdout
    return {
        "instructions": text.count("\n"),
        "zmm": len(re.findall(r"%zmm", text)),
        "ymm": len(re.findall(r"%ymm", text)),
        "fma": len(re.findall(r"\tvfn?m(?:add|sub)", text)),
        "spills": len(re.findall(r"vmov\w*\s+%[xyz]mm\d+,-?0x[0-9a-f]+\(%r[sb]p\)", text)),
        "gathers": len(re.findall(r"\tv\w*gather", text)),
        "divisions": len(re.findall(r"\tvdivp", text)),
    }
