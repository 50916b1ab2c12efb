"""One line for a run: from its result where it has ended, else from its logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accelopt_cache.run_store import Run
from accelopt_compile.report.history import costs_of, dots_of
from accelopt_compile.report.model import outcome_of
from accelopt_compile.report.reading import read_calls, read_run


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A run in short. `speedup` is the winner's, or of the fastest so far; `unpriced` of the `calls` have no price."""

    id: str
    created: str
    name: str
    proposer: str
    models: tuple[str, ...]
    outcome: str
    speedup: float | None
    evaluated: int
    tokens: int
    usd: float
    calls: int
    unpriced: int
    seconds: float


def summarize(run: Run) -> Summary:
    """The summary of a run. Raises DamagedEntry."""
    result = run.result()
    if result is None or run.holder is not None:
        files = read_run(run)
        dots = dots_of(files)
        best, evaluated = dots[-1].best if dots else None, len(dots)
        outcome, seconds, calls = outcome_of(files), dots[-1].seconds if dots else 0.0, files.calls
    else:
        outcome, best = result["outcome"], _number(result.get("speedup"))
        evaluated, seconds = int(_number(result.get("evaluated")) or 0), _number(result.get("seconds")) or 0.0
        calls = read_calls(run)
    costs = costs_of(calls)
    about: Mapping[str, Any] = run.about
    return Summary(
        id=run.id,
        created=str(about["created"]),
        name=" ".join(str(about[part]) for part in ("family", "name") if about.get(part)),
        proposer=str(about["proposer"]),
        models=tuple(sorted({str(model) for model in about["models"].values() if model})),
        outcome=outcome,
        speedup=best,
        evaluated=evaluated,
        tokens=sum(cost.prompt + cost.completion for cost in costs),
        usd=sum(cost.usd for cost in costs),
        calls=sum(cost.calls for cost in costs),
        unpriced=sum(cost.unpriced for cost in costs),
        seconds=seconds,
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        return None
    return float(value)
