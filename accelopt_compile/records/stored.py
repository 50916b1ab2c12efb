"""What the store keeps of a finished search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records.kernels import (
    RUNGS,
    ErrorReport,
    KernelSource,
    Rung,
    Timing,
    source_from_json,
    timing_from_json,
)

Outcome = Literal["winner", "baseline", "candidate"]
OUTCOMES: tuple[Outcome, ...] = ("winner", "baseline", "candidate")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the store keeps of one finished search on (workload, target, binding): a winner, or "baseline" and why, or, where
    the target's device was not there, candidates: kernels that are right, and whose speed is an estimate. Candidates are never
    served; `accelopt cache promote` on the device decides on them.

    `environment` is compared on load; `verification` and `provenance` are plain JSON for people and tools.
    """

    outcome: Outcome
    workload: str
    target: str
    binding: Mapping[str, int]
    reason: str = ""
    rung: Rung = "device"
    source: KernelSource | None = None
    tunables: Mapping[str, int] = field(default_factory=dict)
    timing: Timing | None = None
    errors: ErrorReport | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""

    def to_json(self) -> dict[str, Any]:
        data = {k: v for k, v in asdict(self).items() if v is not None}
        data["binding"] = dict(self.binding)
        if self.timing is not None:
            data["timing"] = self.timing.to_json()
        return data

    @staticmethod
    def from_json(data: Any) -> Record:
        """Inverse of `to_json`, checked. Raises InvalidRecord."""
        try:
            source = data.get("source")
            timing = data.get("timing")
            errors = data.get("errors")
            if data["outcome"] not in OUTCOMES:
                raise InvalidRecord(f"unknown outcome {data['outcome']!r}")
            return Record(
                outcome=data["outcome"],
                workload=str(data["workload"]),
                target=str(data["target"]),
                binding={str(k): int(v) for k, v in data["binding"].items()},
                reason=str(data.get("reason", "")),
                rung=data.get("rung", "device"),
                source=None if source is None else source_from_json(source),
                tunables={str(k): int(v) for k, v in data.get("tunables", {}).items()},
                timing=None if timing is None else timing_from_json(timing),
                errors=None if errors is None else ErrorReport(**errors),
                environment={str(k): str(v) for k, v in data.get("environment", {}).items()},
                provenance=dict(data.get("provenance", {})),
                created=str(data.get("created", "")),
            )._checked()
        except (KeyError, TypeError, ValueError, AttributeError) as failure:
            raise InvalidRecord(f"not a record: {type(failure).__name__} {failure}") from failure

    def _checked(self) -> Record:
        """Itself. Raises InvalidRecord for what no search leaves: an estimate may never pass for a measurement, nor a kernel
        that did not run on the device for one that did."""
        basis = None if self.timing is None else self.timing.basis
        if self.rung not in RUNGS:
            raise InvalidRecord(f"unknown rung {self.rung!r}")
        if self.outcome == "winner" and (self.source is None or self.timing is None):
            raise InvalidRecord("a winner without source or timing")
        if self.outcome == "winner" and (self.rung != "device" or basis != "measured"):
            raise InvalidRecord(f"a winner of rung {self.rung}, its time {basis}: one is proven and timed on the device")
        if self.outcome == "candidate" and (self.source is None or self.errors is None or self.timing is None):
            raise InvalidRecord("a candidate without source, errors or estimate")
        if self.outcome == "candidate" and (self.rung == "device" or basis != "estimated"):
            raise InvalidRecord(f"a candidate of rung {self.rung}, its time {basis}: the device has not decided on one")
        if self.outcome == "baseline" and (self.rung != "device" or basis == "estimated"):
            raise InvalidRecord(f"a baseline of rung {self.rung}: only the device says that nothing is faster")
        return self
