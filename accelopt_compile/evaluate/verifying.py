"""Is it right? A runner calls the kernel, the referee prepares and judges; the host, here, decides who does what when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from accelopt_compile.evaluate.cases import Trial
from accelopt_compile.evaluate.limits import Limits
from accelopt_compile.evaluate.sandbox.host import ChildFailed
from accelopt_compile.records import ErrorReport, Rejected, Stage


@dataclass(frozen=True, kw_only=True)
class Verified:
    """Right on every case that proves anything; `skipped` did not. `walls` stood while it ran."""

    errors: ErrorReport
    skipped: int
    walls: dict[str, str]


class Judge(Protocol):
    """Whoever asks the referee."""

    limits: Limits

    def ask(self, message: dict[str, Any]) -> dict[str, Any]: ...


class Caller(Protocol):
    """Whoever calls the kernel. Raises ChildFailed."""

    def request(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]: ...


def called(runner: Caller, message: dict[str, Any], timeout_s: float, during: str) -> dict[str, Any] | Rejected:
    """A request on which the candidate runs. Its misdeeds come back as a verdict."""
    try:
        reply = runner.request(message, timeout_s)
    except ChildFailed as failure:
        stage = Stage.TIMEOUT if failure.timed_out else Stage.RUN
        return Rejected(stage=stage, reason=f"{failure.what} ({during})", diagnosis=failure.output)
    if "error" in reply:
        return Rejected(stage=Stage.RUN, reason=f"{during}: {str(reply['error'])[:2000]}")
    return reply


def verify(judge: Judge, runner: Caller, trials: Sequence[Trial]) -> Verified | Rejected:
    """Hold the kernel that `runner` has loaded to every trial; the first failure ends it."""
    judge.ask({"op": "begin"})
    worst, worst_case, done, skipped, last = 0.0, "", 0, 0, ""
    for trial in trials:
        case = trial.case
        prepared = judge.ask(
            {
                "op": "prepare",
                "binding": list(case.binding),
                "family": case.family,
                "seed": case.seed,
                "probes": trial.probes,
                "shift": trial.shift,
                "fence": trial.fence,
                "outside": trial.outside,
                "index": trial.index,
            }
        )
        if "skip" in prepared:
            if trial.outside:
                continue
            skipped, last = skipped + 1, str(prepared["skip"])
            continue
        share = _try(judge, runner, trial, prepared)
        if isinstance(share, Rejected):
            return share
        done += 1
        worst, worst_case = max((worst, worst_case), (share, str(trial)), key=lambda pair: pair[0])
    if done == 0:
        reason, diagnosis = "no case could be verified", f"{skipped} cases skipped, last: {last}"
        return Rejected(stage=Stage.NUMERICS, reason=reason, diagnosis=diagnosis)
    return Verified(errors=ErrorReport(worst_share=worst, cases=done, worst_case=worst_case), skipped=skipped, walls={})


def _try(judge: Judge, runner: Caller, trial: Trial, prepared: dict[str, Any]) -> float | Rejected:
    """All calls of one trial; the share of the allowed error that the first used up."""
    places = {name: prepared[name] for name in ("offsets", "sizes", "fences", "readonly", "span")}
    message = {"op": "run", **places, "threads": trial.threads}
    timeout_s = judge.limits.call_s + 20 * trial.calls * float(prepared["eager_s"])
    share = 0.0
    for run in range(trial.calls):
        reply = called(runner, message, timeout_s, str(trial))
        if isinstance(reply, Rejected):
            return reply
        if trial.outside and reply.get("status") != 0:
            return 0.0
        if trial.outside:
            reason = f"it accepts an index that eager refuses ({trial})"
            return Rejected(stage=Stage.NUMERICS, reason=reason, diagnosis="check indices, and return another value than 0")
        if reply.get("status") != 0:
            reason = f"the kernel returned {reply.get('status')!r}"[:200]
            why = str(reply.get("fault") or "a kernel returns 0 when it ran")[:500]
            return Rejected(stage=Stage.RUN, reason=reason, diagnosis=f"on {trial}: {why}")
        if reply.get("fault"):
            reason = f"{str(reply['fault'])[:300]} ({trial})"
            return Rejected(stage=Stage.MUTATION, reason=reason, diagnosis="a kernel leaves its process as it found it")
        found = judge.ask({"op": "check", "run": run, "again": run + 1 < trial.calls})
        if "wrong" in found:
            stage, reason, diagnosis = found["wrong"]
            return Rejected(stage=Stage(stage), reason=reason + trial.circumstances, diagnosis=diagnosis)
        share = max(share, float(found["share"]))
    return share
