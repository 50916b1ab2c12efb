"""What became of each region of a compile: the reports behind `stats()` and `explain()`, and the one line in the log."""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from accelopt_compile.records import Basis
from accelopt_compile.wording import plural, times_text

log = logging.getLogger("accelopt_compile")

Outcome = Literal["HIT", "TUNED", "CANDIDATE", "BASELINE", "MISS"]
"""HIT: a stored kernel serves. TUNED: this compile found one. CANDIDATE: kernels wait for their device, which is not here, and
Inductor keeps the region. BASELINE: a search found none, Inductor keeps the region.
MISS: nothing is known and nothing was searched."""


@dataclass(frozen=True, kw_only=True)
class RegionReport:
    """One distinct region of a compile. `operators` are its ATen calls in short, `count` how often the region occurs,
    `speedup` that of its kernel over the better of Inductor and eager (0 without a kernel). On the
    basis "estimated" it is the best candidate's by a model of the device, over the region without fusion."""

    workload: str
    name: str
    operators: str
    count: int
    binding: Mapping[str, int]
    outcome: Outcome
    reason: str = ""
    speedup: float = 0.0
    kernel_us: float = 0.0
    baseline_us: float = 0.0
    seconds: float = 0.0
    basis: Basis = "measured"

    def line(self) -> str:
        """The region's line in the log, without its place in the list.

        >>> RegionReport(workload="ab12" * 16, name="mul_3", operators="pow mean mul", count=2, binding={"s0": 8},
        ...              outcome="TUNED", speedup=1.42).line()
        'TUNED 1.42x  pow mean mul, 2 times [s0=8] ab12ab12'
        """
        gain = f" {times_text(self.speedup, self.basis)}" if self.speedup else ""
        what = f"{self.outcome}{gain}" + (f" ({self.reason})" if self.reason else "")
        times = f", {self.count} times" if self.count > 1 else ""
        sizes = f" [{' '.join(f'{k}={v}' for k, v in self.binding.items())}]" if self.binding else ""
        return f"{what}  {self.operators}{times}{sizes} {self.workload[:8]}"


@dataclass(frozen=True, kw_only=True)
class CompileReport:
    """One call of the backend. `refused` counts the nodes that no region holds, by reason; `warm` says that the graph
    was known, so that no dry capture was made; `problem` is what made our layer step aside, if anything did."""

    graph: str
    target: str = ""
    mode: str = ""
    regions: Sequence[RegionReport] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    warm: bool = False
    problem: str = ""


class Reports:
    """The compiles of this process, oldest first; of at most `LIMIT` graphs, so that a long-lived server does not grow."""

    LIMIT = 1000

    def __init__(self) -> None:
        self._reports: list[CompileReport] = []
        self._lock = threading.Lock()
        self._added = 0

    def add(self, report: CompileReport) -> None:
        with self._lock:
            self._added += 1
            self._reports.append(report)
            del self._reports[: -self.LIMIT]

    @property
    def added(self) -> int:
        """How many there have been, those that are kept no longer among them."""
        return self._added

    def since(self, added: int) -> tuple[CompileReport, ...]:
        """Those after the first `added`, as far as they are kept."""
        with self._lock:
            return tuple(self._reports[max(0, len(self._reports) - (self._added - added)) :])

    def all(self) -> tuple[CompileReport, ...]:
        with self._lock:
            return tuple(self._reports)

    def clear(self) -> None:
        with self._lock:
            self._reports.clear()


reports = Reports()


def announce(report: RegionReport, number: int) -> None:
    """One INFO line for a region, and its outcome in torch's counters."""
    count(report.outcome.lower())
    log.info("region %d: %s", number, report.line())


def summarize(report: CompileReport) -> None:
    """One INFO line for a whole compile: how many regions fared how, and how long that took."""
    if report.regions:
        log.info("%s", summary(report))


def summary(report: CompileReport) -> str:
    """The line of a compile.

    >>> tuned, kept = (RegionReport(workload="ab12" * 16, name="mul", operators="mul", count=1, binding={}, outcome=o)
    ...                for o in ("TUNED", "BASELINE"))
    >>> summary(CompileReport(graph="c0ffee" * 10, regions=[tuned, kept, kept], seconds=41.26))
    'graph c0ffeec0ffee: 3 regions, 1 TUNED, 2 BASELINE; 41.3 s besides Inductor'
    """
    found = Counter(region.outcome for region in report.regions)
    fared = ", ".join(f"{found[outcome]} {outcome}" for outcome in get_args(Outcome) if found[outcome])
    return f"graph {report.graph[:12]}: {plural(len(report.regions), 'region')}, {fared}; {report.seconds:.1f} s besides Inductor"


def count(what: str, amount: int = 1) -> None:
    """Add to `torch._dynamo.utils.counters["accelopt"]`."""
    from torch._dynamo.utils import counters

    counters["accelopt"][what] += amount


class _Stderr(logging.StreamHandler[Any]):
    """Writes to whatever sys.stderr is at the time, as logging's last resort does."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(logging.Formatter("accelopt: %(message)s"))

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, value: Any) -> None:
        pass


def set_verbosity(level: str) -> None:
    """Apply the setting `log`. Where the program has set up logging itself, its levels and handlers are left alone."""
    if log.handlers and not isinstance(log.handlers[0], _Stderr):
        return
    if logging.getLogger().handlers or log.level not in (logging.NOTSET, *_LEVELS.values()):
        return
    if not log.handlers:
        log.addHandler(_Stderr())
        log.propagate = True
    log.setLevel(_LEVELS[level])


_LEVELS = {"quiet": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}


def as_json(report: CompileReport) -> dict[str, Any]:
    """A report as plain JSON: what the store keeps of a graph, and what `explain(structured=True)` gives."""
    from dataclasses import asdict

    data = asdict(report)
    data["regions"] = [dict(r, binding=dict(r["binding"])) for r in data["regions"]]
    data["refused"] = dict(report.refused)
    return data
