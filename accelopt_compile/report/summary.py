"""One line for a run: from its result where it has ended, else from its logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accelopt_cache.run_store import Run
from accelopt_compile.errors import DamagedEntry
from accelopt_compile.records import Basis
from accelopt_compile.report.history import costs_of, dots_of, worked_s
from accelopt_compile.report.model import outcome_of
from accelopt_compile.report.reading import read_calls, read_run


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A run in short. `speedup` is the winner's, or of the fastest so far, on the `basis`; `unpriced` of the
    `calls` have no price, `usd` is None where none has."""

    id: str
    created: str
    name: str
    proposer: str
    models: tuple[str, ...]
    outcome: str
    speedup: float | None
    evaluated: int
    tokens: int
    usd: float | None
    calls: int
    unpriced: int
    seconds: float
    basis: Basis = "measured"


def summarize(run: Run) -> Summary:
    """The summary of a run. Raises DamagedEntry."""
    result = run.result()
    if result is None or run.holder is not None:
        files = read_run(run)
        dots = dots_of(files)
        best, evaluated = dots[-1].best if dots else None, len(dots)
        outcome, seconds, asked = outcome_of(files), worked_s(files), files.calls
    else:
        outcome, best, evaluated = result["outcome"], _number(result.get("speedup")), int(_number(result.get("evaluated")) or 0)
        seconds, asked = _worked_s(run, result), read_calls(run)
    costs = costs_of(asked)
    calls, unpriced = len(asked), sum(cost.unpriced for cost in costs)
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
        usd=None if calls and unpriced == calls else sum(cost.usd for cost in costs),
        calls=calls,
        unpriced=unpriced,
        seconds=seconds,
        basis="estimated" if about["settings"].get("estimated") else "measured",
    )


def _worked_s(run: Run, result: Mapping[str, Any]) -> float:
    """The time of a run that has ended; what its result says where its log is damaged."""
    try:
        return worked_s(read_run(run))
    except DamagedEntry:
        return _number(result.get("seconds")) or 0.0


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        return None
    return float(value)
