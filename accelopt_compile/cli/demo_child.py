"""One measured process of `accelopt demo`: arguments in, one JSON line last on stdout, progress on stderr.

argv: ROLE LAYERS TOKENS BUDGET_S. ROLE is `compare` (eager, Inductor and accelopt in one process, interleaved; accelopt
may search for BUDGET_S seconds), or `inductor` or `accelopt` (only how long the first call takes; no search).
Caches come from the environment: ACCELOPT_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

ROUNDS = 15
LIMIT_S = 10.0


def first_call(call: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds, result) of a call that compiles."""
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result


def interleaved(variants: Mapping[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Milliseconds of each variant, in rounds of shuffled order, so that a slow moment of the machine hits all of them."""
    taken: dict[str, list[float]] = {name: [] for name in variants}
    rng, started = random.Random(0), time.perf_counter()
    for done in range(ROUNDS):
        if done >= 5 and time.perf_counter() - started > LIMIT_S:
            break
        for name in rng.sample(list(variants), len(variants)):
            before = time.perf_counter()
            variants[name]()
            taken[name].append((time.perf_counter() - before) * 1e3)
    return taken


def compiled_by(backend: str, module: Any, options: Any) -> Callable[..., Any]:
    """`torch.compile`; the store of the environment is named outright, because a pyproject.toml would beat it."""
    import torch

    if backend == "accelopt":
        options = {**options, "cache_dir": os.environ.get("ACCELOPT_CACHE_DIR")}
    made: Callable[..., Any] = torch.compile(module, backend=backend, options=options or None)
    return made


def compare(layers: int, tokens: int, budget_s: float) -> dict[str, Any]:
    """Compile with both, check ours against eager, time all three."""
    import torch

    from accelopt_compile import api
    from accelopt_compile.cli.demo_model import build

    module, inputs = build(layers=layers, tokens=tokens)
    inductor = compiled_by("inductor", module, {})
    ours = compiled_by("accelopt", module, {"mode": "tune", "budget_s": budget_s})
    with torch.no_grad():
        expected = module(*inputs)
        print("compiling with Inductor", file=sys.stderr, flush=True)
        inductor_s, theirs = first_call(lambda: inductor(*inputs))
        print("compiling with accelopt", file=sys.stderr, flush=True)
        ours_s, got = first_call(lambda: ours(*inputs))
        times = interleaved(
            {"eager": lambda: module(*inputs), "inductor": lambda: inductor(*inputs), "accelopt": lambda: ours(*inputs)}
        )
    scale = expected.abs().max().item()
    return {
        "times_ms": times,
        "median_ms": {name: statistics.median(values) for name, values in times.items()},
        "first_call_s": {"inductor": inductor_s, "accelopt": ours_s},
        "error": {name: (t - expected).abs().max().item() / scale for name, t in (("inductor", theirs), ("accelopt", got))},
        "graphs": api.explain(structured=True),
        "threads": torch.get_num_threads(),
    }


def start_up(backend: str, layers: int, tokens: int) -> dict[str, Any]:
    """Only the first call of a fresh process, with whatever the caches hold."""
    import torch

    from accelopt_compile.cli.demo_model import build

    module, inputs = build(layers=layers, tokens=tokens)
    compiled = compiled_by(backend, module, {"mode": "apply", "log": "quiet"} if backend == "accelopt" else {})
    with torch.no_grad():
        return {"first_call_s": first_call(lambda: compiled(*inputs))[0]}


def main(arguments: list[str]) -> None:
    role, layers, tokens, budget_s = arguments[0], int(arguments[1]), int(arguments[2]), float(arguments[3])
    found = compare(layers, tokens, budget_s) if role == "compare" else start_up(role, layers, tokens)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
