"""What `accelopt doctor` looks at on this machine: facts and findings, no printing.

A finding says what was found, whether it is fine, and what to do where it is not.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from accelopt_compile.wording import plural

State = Literal["ok", "info", "warn", "fail"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the report. `advice` is the next step, empty where none is needed."""

    name: str
    state: State
    value: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "state": self.state, "value": self.value, "advice": self.advice}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def interpreter() -> Finding:
    return Finding(name="python", state="ok", value=f"{platform.python_version()} ({sys.executable})")


def torch_installed() -> Finding:
    found = _version("torch")
    if found is None:
        return Finding(name="torch", state="fail", value="not installed", advice="pip install torch")
    older = tuple(int(part) for part in found.split("+")[0].split(".")[:2]) < (2, 9)
    return Finding(name="torch", state="fail" if older else "ok", value=found, advice="pip install 'torch>=2.9'" if older else "")


def compiler(candidates: Sequence[str] = ("g++", "clang++", "c++")) -> Finding:
    """The first C++ compiler that answers; $CXX comes before the usual names."""
    named = os.environ.get("CXX", "")
    for name in ([named] if named else []) + list(candidates):
        path = shutil.which(name)
        if path is None:
            continue
        try:
            answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        return Finding(name="C++ compiler", state="ok", value=f"{answer.splitlines()[0]} ({path})")
    return Finding(
        name="C++ compiler",
        state="fail",
        value=f"none of {', '.join(candidates)} answers",
        advice="apt-get install g++ (or conda install gxx), or set CXX",
    )


FEATURES = ("avx2", "fma", "avx512f", "avx512vl", "avx512_bf16", "avx512_vnni", "amx_bf16", "asimd", "sve")


def cpu() -> Finding:
    """The processor and those of its features that kernels use."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return Finding(name="cpu", state="info", value=platform.machine())
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    shown = " ".join(name for name in FEATURES if name in flags) or "none of those known"
    return Finding(name="cpu", state="ok", value=f"{fields.get('model name', platform.machine())}: {shown}")


def threads() -> Finding:
    """Cores this process may use, and how many threads kernels get."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS")
    quota = _cgroup_cores()
    value = f"{plural(allowed, 'core')} allowed, OMP_NUM_THREADS {asked or 'unset'}" + (
        f", cgroup quota {quota:g}" if quota else ""
    )
    used = int(asked) if asked and asked.isdigit() else allowed
    if quota and used > quota:
        advice = f"export OMP_NUM_THREADS={max(1, int(quota))}: more threads than the quota wait for each other"
        return Finding(name="threads", state="warn", value=value, advice=advice)
    return Finding(name="threads", state="ok", value=value)


def _cgroup_cores() -> float | None:
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def openmp_runtimes(maps: str) -> Finding:
    """OpenMP runtimes in a process's memory map (the text of /proc/PID/maps): two of them fight for the cores."""
    names = ("libgomp", "libiomp5", "libomp")
    paths = {line.split()[-1] for line in maps.splitlines() if len(line.split()) >= 6}
    found = sorted(path for path in paths if Path(path).name.startswith(names))
    if len(found) > 1:
        advice = "set LD_PRELOAD to torch's own copy, or remove the other; two runtimes each start a full set of threads"
        return Finding(
            name="OpenMP", state="warn", value=f"{plural(len(found), 'runtime')} loaded: {', '.join(found)}", advice=advice
        )
    return Finding(name="OpenMP", state="ok", value=found[0] if found else "none loaded")


def filesystem_of(path: Path, mounts: str) -> str:
    """Type of the file system that holds `path`, from the text of /proc/mounts."""
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].rstrip("/") + "/"
        if (str(path) + "/").startswith(point) and len(point) > len(best):
            best, kind = point, fields[2]
    return kind
