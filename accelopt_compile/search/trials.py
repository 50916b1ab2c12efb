"""Evaluations of one search: each kernel once, counted, within the budget, and replayed after an interruption."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from accelopt_compile.events import Log
from accelopt_compile.records import Accepted, Candidate, KernelSource, Rejected, Verdict, canonical_json, sha256_text
from accelopt_compile.search.budget import Budget
from accelopt_compile.search.state import verdict_from, verdict_json

Effort = Literal["quick", "full"]
"""`quick` ranks candidates; `full` decides whether one is adopted (fresh seeds, more cases, longer timing)."""

_FULL_COSTS = 10
"""A full evaluation is expected to take this many quick ones (17 s against 1 s, measured on two busy cores); that much
time is kept back for it."""

_RESERVE_AT_MOST = 0.25
"""Share of the time budget that is kept back at most."""


_LONGEST = 256 * 1024
"""Characters of a source beyond which its text is taken as it is."""

_CPP_SPLICE = re.compile(r"\\[ \t]*\n")
_CPP_GLUED = re.compile(r"\S\\[ \t]*\n\S")
"""Lines joined within what may be a token, the beginning of a comment for one; other continued lines stay as they are."""

_CPP_TOKEN = re.compile(
    r"//(?:\\[ \t]*\n|[^\n])*"
    r"|/\*.*?(?:\*/|\Z)"
    r"|(?<![\w.])\d[\w.]*(?:'[\w.]+)+"  # a number with separators
    r"|\"(?:\\[ \t]*\n|\\.|[^\"\\\n])*\"?"
    r"|'(?:\\[ \t]*\n|\\.|[^'\\\n])*'?",
    re.DOTALL,
)
"""Comments, and what may look as if one began in it. One pass from left to right, as the compiler reads."""

Pass = Literal["quick", "again", "full", "second", "third"]
"""What an evaluation is in a search: `again` is a second quick one; `second` and `third` are full ones of the same kernel."""

_IN_FULL = ("full", "second", "third")

Kernel = tuple[KernelSource, Mapping[str, int]]
"""A source with the tunables it is built with."""

_TOGETHER = 2
"""Kernels handed to the evaluator at once, so that it can build one while another builds; few, so that a budget that
ends between them wastes at most one build."""


class Evaluator(Protocol):
    """Proves and times kernels. A bad kernel is a `Rejected`; only our own failures raise (`EvaluatorDied`)."""

    def evaluate_each(self, candidates: Sequence[Kernel], *, effort: Effort = "quick") -> Iterator[Verdict]:
        """Verdicts in the order given, each as soon as it is there; the caller may stop early."""


@dataclass(frozen=True, kw_only=True)
class Duplicate:
    """Not a verdict: the same text with the same tunables, or the same object code, has had its trial."""

    key: str


class BudgetSpent(Exception):
    """No further evaluation may start: how a spent budget leaves the nested loops of a round. Never leaves this room."""


class Trials:
    """Every evaluation of one search goes through `run`.

    `name` marks this search's events, so that several searches can share a log. What the log already holds under that
    name and `known` (the trials up to the last saved round) does not, is replayed instead of evaluated; but a kernel that
    a log calls right in full is evaluated again, since a file that anybody may have edited adopts no kernel.
    """

    def __init__(
        self, *, evaluator: Evaluator, budget: Budget, clock: Callable[[], float], log: Log, name: str, known: Iterable[str] = ()
    ) -> None:
        self._evaluator, self._budget, self._clock, self._log, self._name = evaluator, budget, clock, log, name
        self._known = set(known)
        self._objects: set[str] = set()
        self._replay = {
            str(event["key"]): event
            for event in log.events()
            if event["kind"] == "verdict" and event["search"] == name and event["key"] not in self._known and not adopts(event)
        }
        self._reserve_cap_s = _RESERVE_AT_MOST * budget.remaining_s
        self._quick_s = 0.0
        self._quick_count = 0
        self.rejected: Counter[str] = Counter()
        self.evaluated = 0
        self.duplicates = 0

    def restore(self, *, rejected: Mapping[str, int], evaluated: int, duplicates: int, candidates: Iterable[Candidate]) -> None:
        """Go on counting from a saved state."""
        self.rejected.update(rejected)
        self.evaluated, self.duplicates = evaluated, duplicates
        self._objects.update(digest for c in candidates if (digest := _object_digest(c.verdict)) is not None)

    @property
    def known(self) -> tuple[str, ...]:
        """Keys of all trials so far, sorted."""
        return tuple(sorted(self._known))

    def knows(self, source: KernelSource, tunables: Mapping[str, int]) -> bool:
        """Whether the kernel has had its quick trial."""
        return trial_key(source, tunables) in self._known

    @property
    def late(self) -> bool:
        """Whether the whole budget is spent, with what was kept back for full evaluations."""
        return self._budget.spent() is not None

    @property
    def remaining_s(self) -> float:
        """Seconds until the whole budget is spent."""
        return self._budget.remaining_s

    @property
    def spent(self) -> str | None:
        """Why no quick evaluation may start any more, or None. Time for one full evaluation is kept back."""
        mean_s = self._quick_s / self._quick_count if self._quick_count else 0.0
        return self._budget.spent(reserve_s=min(_FULL_COSTS * mean_s, self._reserve_cap_s))

    def run(self, source: KernelSource, tunables: Mapping[str, int], *, effort: Pass = "quick") -> Verdict | Duplicate:
        """The verdict on a kernel that had none yet. Raises BudgetSpent; a full evaluation always may run."""
        return next(self._run_together([(source, tunables)], effort))

    def again(self, kernels: Sequence[Kernel]) -> Iterator[Verdict | Duplicate]:
        """A second quick evaluation of kernels that had one. Raises BudgetSpent."""
        yield from self._run_together(kernels, "again")

    def run_each(self, kernels: Sequence[Kernel]) -> Iterator[Verdict | Duplicate]:
        """`run` for several kernels, in their order; the evaluator builds some of them together. Raises BudgetSpent
        when asked for a verdict that the budget has no room for."""
        for start in range(0, len(kernels), _TOGETHER):
            yield from self._run_together(kernels[start : start + _TOGETHER], "quick")

    def _run_together(self, kernels: Sequence[Kernel], effort: Pass) -> Iterator[Verdict | Duplicate]:
        keys = [trial_key(source, tunables, effort) for source, tunables in kernels]
        fresh: dict[str, Kernel] = {}
        for key, kernel in zip(keys, kernels, strict=True):
            if key not in self._known and key not in self._replay:
                fresh.setdefault(key, kernel)
        verdicts = self._evaluate(fresh, effort)
        for key in keys:
            if key in self._known:
                self.duplicates += 1
                yield Duplicate(key=key)
                continue
            verdict, seconds = self._replayed(key) or next(verdicts)
            yield self._counted(key, verdict, seconds, effort)

    def _counted(self, key: str, verdict: Verdict, seconds: float, effort: Pass) -> Verdict | Duplicate:
        self._known.add(key)
        self.evaluated += 1
        # The first evaluation waits for the baseline's compilation, so it says nothing about the next ones.
        if effort == "quick" and self.evaluated > 1:
            self._quick_s, self._quick_count = self._quick_s + seconds, self._quick_count + 1
        if isinstance(verdict, Rejected):
            self.rejected[verdict.stage.value] += 1
        elif effort == "quick" and self._same_object(verdict):
            self.duplicates += 1
            return Duplicate(key=key)
        return verdict

    def _replayed(self, key: str) -> tuple[Verdict, float] | None:
        if (event := self._replay.get(key)) is None:
            return None
        self._budget.carry(seconds=float(event["seconds"]), candidates=1)
        return verdict_from(event["verdict"]), float(event["seconds"])

    def _evaluate(self, fresh: Mapping[str, Kernel], effort: Pass) -> Iterator[tuple[Verdict, float]]:
        in_full = effort in _IN_FULL
        verdicts = self._evaluator.evaluate_each(list(fresh.values()), effort="full" if in_full else "quick")
        for key, (source, tunables) in fresh.items():
            if not in_full and self.spent is not None:
                raise BudgetSpent
            started = self._clock()
            verdict = next(verdicts)
            seconds = self._clock() - started
            self._budget.spend_candidate()
            data: dict[str, Any] = {
                "effort": "full" if in_full else effort,
                "tunables": dict(tunables),
                "source": source.digest,
                "origin": source.origin,
            }
            self._log.append("verdict", search=self._name, key=key, seconds=seconds, verdict=verdict_json(verdict), **data)
            yield verdict, seconds

    def _same_object(self, verdict: Accepted) -> bool:
        if (digest := _object_digest(verdict)) is None:
            return False
        seen = digest in self._objects
        self._objects.add(digest)
        return seen


def trial_key(source: KernelSource, tunables: Mapping[str, int], effort: Pass = "quick") -> str:
    """Equal for kernels that differ only in comments and white space."""
    return f"{effort}:{sha256_text(normalised(source) + canonical_json(dict(tunables)))[:32]}"


def normalised(source: KernelSource) -> str:
    """The source's text without comments, blank lines and white space that means nothing in its language. In doubt more is
    left in, so that kernels that differ never become one; a text that no backend builds is left as it is."""
    if len(source.text) > _LONGEST:
        return source.text
    if source.language == "cpp":
        text = _CPP_SPLICE.sub("", source.text) if _CPP_GLUED.search(source.text) else source.text
        text = _CPP_TOKEN.sub(_without_comment, text)
        lines = [" ".join(line.split()) for line in text.splitlines()]
    else:
        lines = [_without_hash(line).rstrip() for line in source.text.splitlines()]
    return "\n".join(line for line in lines if line)


def _without_comment(found: re.Match[str]) -> str:
    return " " if found[0].startswith("/") else found[0]


def _without_hash(line: str) -> str:
    return line if '"' in line or "'" in line else re.sub(r"(^|\s)#.*", "", line)


def adopts(event: Mapping[str, Any]) -> bool:
    """Whether an event's verdict could make a kernel the winner."""
    return str(event["key"]).partition(":")[0] in _IN_FULL and "stage" not in event["verdict"]


def _object_digest(verdict: Accepted) -> str | None:
    digest = verdict.features.get("object_digest")
    return None if digest is None else str(digest)
