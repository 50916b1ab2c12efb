"""What a GPU check finds out about the machine before anything runs: packages, device, driver, clocks, tools."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata
from typing import Any

NEEDED: Mapping[str, str] = {
    "torch": "torch (a build for your GPU)",
    "triton": "triton",
    "sympy": "sympy",
    "filelock": "filelock",
}
"""Modules without which nothing runs, and what to install. Installing torch brings sympy and filelock along."""

FOR_MODELS: Mapping[str, str] = {"platformdirs": "platformdirs"}
"""What the step with a whole model needs besides: there the store is opened."""

FOR_SIMULATION: Mapping[str, str] = {"numpy": "numpy"}
"""What a dry run needs besides."""

HELPFUL: Mapping[str, str] = {
    "elftools": "pyelftools",
    "pyseccomp": "pyseccomp",
    "typer": "typer",
    "rich": "rich",
    "jinja2": "jinja2",
}
"""Modules that the package declares, and that no step of the check imports: the command line, prompts, walls, object screens."""

_FIELDS = ("name", "driver_version", "vbios_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "temperature.gpu", "power.draw",
           "persistence_mode", "clocks_throttle_reasons.active")  # fmt: skip


def missing(wanted: Mapping[str, str]) -> list[str]:
    """What to install for the modules that cannot be found."""
    return [package for module, package in wanted.items() if importlib.util.find_spec(module) is None]


def installed() -> dict[str, str]:
    """Versions of what matters here."""
    found = {}
    for name in ("torch", "triton", "numpy", "filelock", "accelopt-compile"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def device_state(run: Any = subprocess.run) -> dict[str, str]:
    """What the driver's tool says of the first device right now; {} where there is no such tool."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    try:
        done = run([tool, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits", "--id=0"], capture_output=True,
                   text=True, timeout=20, check=False)  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return {}
    return parsed_state(done.stdout)


def parsed_state(text: str) -> dict[str, str]:
    """The first line of the tool's answer, field by field.

    >>> parsed_state("Some GPU, 580.1, 96.0, 1980, 2619, 1980, 31, 75.1, Enabled, 0x0")["clocks.sm"]
    '1980'
    """
    values = [value.strip() for value in (text.strip().splitlines() or [""])[0].split(",")]
    return dict(zip(_FIELDS, values, strict=True)) if len(values) == len(_FIELDS) else {}


def sanitizer() -> str | None:
    """Where compute-sanitizer is, if it is."""
    return shutil.which("compute-sanitizer")
