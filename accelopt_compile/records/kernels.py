"""Kernels: their source, what is built of it, how they were proven and timed, and the verdict on one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records.canonical import sha256_text


@dataclass(frozen=True, kw_only=True)
class KernelSource:
    """One text file with one entry point, human-readable.

    `tunables` maps a name to its allowed values, the declared default first; `structure` names the structural
    choices the text was rendered with (empty when a person or a model wrote it); `origin` says who wrote it.
    """

    language: str
    text: str
    tunables: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    structure: Mapping[str, str] = field(default_factory=dict)
    origin: Literal["seed", "mutation", "llm", "human", "import"] = "seed"

    @property
    def digest(self) -> str:
        return sha256_text(self.text)

    @property
    def rendered(self) -> bool:
        """Whether a template wrote the text, so that `structure` and tunables say all about it."""
        return self.origin in ("seed", "mutation")

    def defaults(self) -> dict[str, int]:
        """The declared default of each tunable."""
        return {name: values[0] for name, values in self.tunables.items()}

    def to_json(self) -> dict[str, Any]:
        """What `source_from_json` reads back."""
        return {
            "language": self.language,
            "text": self.text,
            "tunables": {name: list(values) for name, values in self.tunables.items()},
            "structure": dict(self.structure),
            "origin": self.origin,
        }


def source_from_json(data: Any) -> KernelSource:
    """Read back a KernelSource. Raises InvalidRecord."""
    try:
        return KernelSource(
            language=str(data["language"]),
            text=str(data["text"]),
            tunables={str(k): tuple(int(v) for v in values) for k, values in data.get("tunables", {}).items()},
            structure={str(k): str(v) for k, v in data.get("structure", {}).items()},
            origin=data.get("origin", "import"),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as failure:
        raise InvalidRecord(f"not a kernel source: {type(failure).__name__} {failure}") from failure


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A built kernel: the file to load, the digest of what it was built from, what the toolchain said of it."""

    path: str
    source_digest: str
    tunables: Mapping[str, int]
    features: Mapping[str, Any] = field(default_factory=dict)
    build_s: float = 0.0


class Stage(str, Enum):
    """Where a candidate fell."""

    SCREEN = "screen"
    BUILD = "build"
    RUN = "run"
    TIMEOUT = "timeout"
    SHAPE = "shape"
    NUMERICS = "numerics"
    MUTATION = "mutation"
    NONDETERMINISM = "nondeterminism"
    CHEAT = "cheat"
    SLOWER = "slower"


Rung = Literal["device", "compiled", "simulated"]
"""How a kernel was proven: it ran on the target's device; the toolchain built it for that device; it ran in a simulation."""

RUNGS: tuple[Rung, ...] = ("device", "compiled", "simulated")

Basis = Literal["measured", "estimated"]
"""What a time rests on: a clock on the device, or a model of it."""


LEVEL = 0.98
"""A kernel at this share of eager's speed is level with it: two timings of one kernel differ by as much."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """A paired measurement. `speedup` is the better baseline's time over ours (geometric mean of block medians), ours with
    what a reader of its outputs waits longer than after the baseline's; `low` and `high` its 95 % interval; `baselines_us`
    holds each baseline's median ("inductor", "eager"); `kernel_us` is ours without the reader.

    With the basis "estimated" nothing was timed: `kernel_us` is the backend's estimate, `baselines_us` that of the region's
    operators one after another ("unfused"), `low` and `high` are `speedup`, and `blocks` is 0.
    """

    kernel_us: float
    baselines_us: Mapping[str, float]
    speedup: float
    low: float
    high: float
    blocks: int
    threads: int
    noise: float = 0.0
    basis: Basis = "measured"

    @property
    def baseline_us(self) -> float:
        """The better baseline's median; 0 where there is none."""
        return min(self.baselines_us.values(), default=0.0)

    @property
    def inductor_lags(self) -> float:
        """How many times longer than the better baseline Inductor's code takes; 1 where it is the better one, or not there."""
        return max(1.0, self.baselines_us.get("inductor", 0.0) / self.baseline_us) if self.baseline_us > 0 else 1.0

    @property
    def over_inductor(self) -> float:
        """Speedup over Inductor's code."""
        return self.speedup * self.inductor_lags

    @property
    def level_with_eager(self) -> bool:
        """Whether the kernel may be no faster than eager, but Inductor's code is slower than either."""
        return self.low <= 1.0 < self.over_inductor and self.inductor_lags > 1.0

    def gains(self, minimum: float, *, surely: bool = True) -> bool:
        """Whether to launch the kernel is a gain of more than `minimum`: over the better baseline; or, where it is level with
        eager, over Inductor's code, which would run in its place. `surely`: at the low end of the interval, not on average."""
        speedup = self.low if surely else self.speedup
        return speedup > minimum or (self.speedup >= LEVEL and speedup * self.inductor_lags > minimum)

    def to_json(self) -> dict[str, Any]:
        """What `timing_from_json` reads back. A measurement names no basis, as before there were estimates."""
        data = {name: getattr(self, name) for name in ("kernel_us", "speedup", "low", "high", "blocks", "threads", "noise")}
        data["baselines_us"] = dict(self.baselines_us)
        return data if self.basis == "measured" else data | {"basis": self.basis}


def timing_from_json(data: Any) -> Timing:
    """Inverse of `Timing.to_json`. Raises TypeError and ValueError."""
    timing = Timing(**data)
    if timing.basis not in ("measured", "estimated"):
        raise ValueError(f"a timing that is neither measured nor estimated, but {str(timing.basis)[:40]!r}")
    if timing.basis == "estimated" and (timing.blocks != 0 or not timing.low == timing.speedup == timing.high):
        raise ValueError("an estimate with blocks or an interval, which only a measurement has")
    return timing


@dataclass(frozen=True, kw_only=True)
class ErrorReport:
    """Worst error against float64, as a share of what is allowed (<= 1 passes), and the case it came from."""

    worst_share: float
    cases: int
    worst_case: str = ""


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """Right, and timed. Whether it is fast enough to adopt is `timing.low`'s to say."""

    errors: ErrorReport
    timing: Timing
    features: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """Not usable, and why, in words an author of kernels can act on."""

    stage: Stage
    reason: str
    diagnosis: str = ""


Verdict = Accepted | Rejected
