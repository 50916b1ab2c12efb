"""`accelopt demo`: the whole path on one model, against eager and Inductor, in about two minutes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Annotated, Any

import typer

from accelopt_compile.cli.output import CacheDirOption, JsonOption, Output, QuietOption, VerboseOption
from accelopt_compile.cli.regions import show_regions
from accelopt_compile.errors import AccelOptError, UsageError
from accelopt_compile.wording import plural

ALLOWED_ERROR = 1e-4
"""Largest difference from eager, as a share of the largest logit, that is rounding and not a wrong kernel (float32)."""


def demo(
    layers: Annotated[int, typer.Option(min=1, help="Layers of the Llama.")] = 4,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens it reads.")] = 128,
    budget_s: Annotated[float, typer.Option(min=0, help="Seconds the search may take; 0 only uses what is stored.")] = 90.0,
    as_json: JsonOption = False,
    cache_dir: CacheDirOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Speed up a small Hugging Face Llama (random weights, no download) and compare with eager and Inductor.

    The first run searches; a second run finds everything in the store. Exit code 3 when no region got a faster kernel,
    4 when a result was wrong.

    Examples: accelopt demo   |   accelopt demo --layers 8 --budget-s 120   |   accelopt demo --json
    """
    out = Output.of(as_json=as_json, cache_dir=cache_dir, quiet=quiet, verbose=verbose)
    if importlib.util.find_spec("transformers") is None:  # found out without the seconds that importing it takes
        raise UsageError("the demo's model needs transformers; pip install transformers")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="accelopt-demo-") as inductor_cache:
        found = child(out, "compare", layers, tokens, budget_s, inductor_cache)
        for backend in ("inductor", "accelopt"):
            out.note(f"starting a fresh process with {backend}, caches warm")
            found.setdefault("warm_s", {})[backend] = child(out, backend, layers, tokens, 0.0, inductor_cache)["first_call_s"]
    found |= {"layers": layers, "tokens": tokens, "total_s": time.perf_counter() - started}
    out.result(found)
    show(out, found)
    wrong = {name: error for name, error in found["error"].items() if not error <= ALLOWED_ERROR}
    if "accelopt" in wrong:
        raise typer.Exit(4)
    if not any(region["outcome"] in ("HIT", "TUNED") for region in regions_of(found)):
        raise typer.Exit(3)


def child(out: Output, role: str, layers: int, tokens: int, budget_s: float, inductor_cache: str) -> dict[str, Any]:
    """Run one measured process. Raises AccelOptError with the end of its output when it fails, KeyboardInterrupt with it."""
    command = [sys.executable, "-m", "accelopt_compile.cli.demo_child", role, str(layers), str(tokens), str(budget_s)]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": inductor_cache}
    errors = None if out.level >= 0 else subprocess.PIPE
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, check=False)
    if done.returncode in (130, -2):
        raise KeyboardInterrupt
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise AccelOptError(
            f"the measuring process ended with {done.returncode}: {(done.stderr or 'its output is above').strip()[-1500:]}"
        )
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def show(out: Output, found: dict[str, Any]) -> None:
    """The three tables: regions, times, start-up."""
    out.line()
    show_regions(out, regions_of(found))
    for graph in found["graphs"]:
        if graph["problem"]:
            out.line(f"accelopt stepped aside: {graph['problem']}")
    median = found["median_ms"]
    rows = [
        [name, f"{median[name]:.2f}", f"{median['eager'] / median[name]:.2f}x", error_text(found, name)]
        for name in ("eager", "inductor", "accelopt")
    ]
    out.line()
    out.table(
        ["", "ms a call", "over eager", "difference from eager"],
        rows,
        title=f"Llama, {plural(found['layers'], 'layer')}, {plural(found['tokens'], 'token')}",
    )
    cold, warm = found["first_call_s"], found["warm_s"]
    rows = [[name, f"{cold[name]:.1f}", f"{warm[name]:.1f}"] for name in ("inductor", "accelopt")]
    out.line()
    out.table(["first call, s", "first process", "fresh process, warm caches"], rows, title="start-up")
    out.line("(in the first process Inductor compiles first and pays for what both share)", level=0)
    out.line(f"\naccelopt is {median['inductor'] / median['accelopt']:.2f}x Inductor; {found['total_s']:.0f} s in all", level=0)


def regions_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [region for graph in found["graphs"] for region in graph["regions"]]


def error_text(found: dict[str, Any], name: str) -> str:
    return f"{found['error'][name]:.1e}" if name in found["error"] else "-"
