"""What every benchmark shares: interleaved rounds, the environment a number came from, and result files.

Promises: variants of one comparison are run in the same process in shuffled rounds, so that a slow minute of a shared
machine hits all of them; medians and spreads are reported with their samples. Does not promise that two files measured
on different days are comparable: read `environment` first.
"""

from __future__ import annotations

import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FORMAT = 1
"""Version of the result files."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Times of one variant, in seconds, in the order they were taken."""

    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Interquartile range as a share of the median; 0 for fewer than four samples."""
        if len(self.seconds) < 4:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return (high - low) / self.median_s

    def to_json(self) -> dict[str, Any]:
        return {
            "median_s": self.median_s,
            "min_s": min(self.seconds),
            "spread": round(self.spread, 4),
            "samples_s": [round(s, 9) for s in self.seconds],
        }


def interleave(
    variants: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warmup: int = 2,
    limit_s: float = 60.0,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Samples]:
    """Time each variant once a round, in an order shuffled each round.

    Stops after `rounds`, or once `limit_s` has passed and three rounds are complete. A round is never cut, so every
    variant has the same number of samples.
    """
    for call in variants.values():
        for _ in range(warmup):
            call()
    rng = random.Random(seed)
    taken: dict[str, list[float]] = {name: [] for name in variants}
    started = clock()
    for done in range(rounds):
        if done >= 3 and clock() - started > limit_s:
            break
        for name in rng.sample(list(variants), len(variants)):
            before = clock()
            variants[name]()
            taken[name].append(clock() - before)
    return {name: Samples(seconds=tuple(seconds)) for name, seconds in taken.items()}


def speedup(baseline: Samples, ours: Samples) -> float:
    """Median of the per-round ratios baseline / ours: both of a pair saw the same minute of the machine."""
    return statistics.median(b / o for b, o in zip(baseline.seconds, ours.seconds, strict=True))


def geomean(values: Sequence[float]) -> float:
    return statistics.geometric_mean(values) if values else float("nan")


def _output(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def cpu_model(about: str) -> str:
    """The processor of `/proc/cpuinfo` as it names itself, with the numbers that tell one generation from the next where names
    do not: three generations of servers call themselves "AMD EPYC". "" where nothing is said."""
    fields = dict([part.strip() for part in line.split(":", 1)] for line in reversed(about.splitlines()) if ":" in line)
    numbers = [f"{field.removeprefix('cpu ')} {fields[field]}" for field in ("cpu family", "model") if field in fields]
    name = fields.get("model name", "")
    return f"{name} ({', '.join(numbers)})" if name and numbers else name


def _this_cpu() -> str:
    try:
        return cpu_model(Path("/proc/cpuinfo").read_text()) or platform.machine()
    except OSError:
        return platform.processor()


def device_name() -> str:
    """This device as a part of a file's name, for results that are kept of each: "amd-epyc-family-25-model-17"."""
    plain = re.sub(r"\((r|tm)\)|\b(cpu|processor)\b", " ", _this_cpu().lower())
    return "-".join(re.findall(r"[a-z0-9]+", plain)) or "unknown"


def environment() -> dict[str, Any]:
    """Where and of what a number was measured: commit, device, versions, threads, load."""
    versions = {}
    for name in ("accelopt-compile", "torch", "transformers", "numpy"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": _output(["git", "rev-parse", "--short=12", "HEAD"]),
        "modified": bool(_output(["git", "status", "--porcelain", "--untracked-files=no"])),
        "device": _this_cpu(),
        "cores": os.cpu_count(),
        "threads": int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)),
        "load_1min": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "compiler": _output([os.environ.get("CXX", "g++"), "--version"]).split("\n")[0],
        "versions": versions,
    }


def alike(around: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether what was measured in these two environments may stand in one file."""
    return all(around.get(fact) == other.get(fact) for fact in ("device", "threads", "versions", "compiler"))


def write_result(name: str, payload: Mapping[str, Any], *, quick: bool, directory: Path = RESULTS) -> Path:
    """Write `<name>[-quick]-<date>.json` with the environment; a second run on one day replaces the first."""
    around = environment()
    path = _path_of(name, around, quick=quick, directory=directory)
    data = {"format": FORMAT, "benchmark": name, "quick": quick, "environment": around, **payload}
    write_whole(path, data)
    return path


def write_whole(path: Path, data: Mapping[str, Any]) -> None:
    """All of it, so that a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    os.replace(beside, path)


def of_today(name: str, *, quick: bool, directory: Path = RESULTS) -> dict[str, Any]:
    """What `write_result` would replace; empty where there is nothing."""
    path = _path_of(name, environment(), quick=quick, directory=directory)
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _path_of(name: str, around: Mapping[str, Any], *, quick: bool, directory: Path) -> Path:
    kind = f"{name}-quick" if quick else name
    return directory / f"{kind}-{str(around['date'])[:10]}.json"


def finish(name: str, summary: Mapping[str, Any]) -> None:
    """Print the one JSON line that ends every benchmark's output."""
    print(json.dumps({"benchmark": name, **summary}, sort_keys=True), flush=True)


def run_fresh(module: str, *arguments: str, env: Mapping[str, str] | None = None, timeout_s: float = 1800.0) -> dict[str, Any]:
    """Run `python -m module arguments` in a new process and return the JSON of its last line.

    Raises RuntimeError with the end of its output when it fails or prints no such line.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines or not lines[-1].startswith("{"):
        raise RuntimeError(f"{module} {' '.join(arguments)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    loaded: dict[str, Any] = json.loads(lines[-1])
    return loaded
