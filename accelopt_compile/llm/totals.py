"""Sums of what calls took, per role and per model. Pure, but for `Ledger`, which only adds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from accelopt_compile.llm.client import Reply, Request


@dataclass(frozen=True, kw_only=True)
class Total:
    """Calls and their tokens. `estimated`: some endpoint did not count; `unpriced` calls have no known price."""

    calls: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    usd: float = 0.0
    estimated: bool = False
    unpriced: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion

    def __add__(self, other: Total) -> Total:
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        return Total(**sums, estimated=self.estimated or other.estimated)


_SUMMED = ("calls", "prompt", "cached", "completion", "usd", "unpriced")


def total_of(reply: Reply) -> Total:
    """What one call took. It is unpriced when it took tokens and nobody knows what they cost."""
    usage = reply.usage
    unpriced = int(reply.usd is None and usage.prompt + usage.completion > 0)
    counts = {"prompt": usage.prompt, "cached": usage.cached, "completion": usage.completion}
    return Total(calls=1, **counts, usd=reply.usd or 0.0, estimated=usage.estimated, unpriced=unpriced)


class Ledger:
    """Totals by role and model. Not safe to add to from two threads at once."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Total] = defaultdict(Total)

    def add(self, role: str, model: str, total: Total) -> None:
        self._entries[role, model] += total

    def add_all(self, other: Ledger) -> None:
        for (role, model), total in other:
            self.add(role, model, total)

    def __iter__(self) -> Iterator[tuple[tuple[str, str], Total]]:
        return iter(tuple(self._entries.items()))

    def total(self) -> Total:
        return _sum(total for _, total in self)

    def by_role(self) -> dict[str, Total]:
        return self._by(0)

    def by_model(self) -> dict[str, Total]:
        return self._by(1)

    def to_json(self) -> dict[str, Any]:
        """{"total": {...}, "by_role": {ROLE: {...}}, "by_model": {MODEL: {...}}}, names sorted."""
        parts = {"by_role": self.by_role(), "by_model": self.by_model()}
        return {"total": asdict(self.total()), **{k: {n: asdict(t) for n, t in v.items()} for k, v in parts.items()}}

    def _by(self, part: int) -> dict[str, Total]:
        names = sorted({key[part] for key, _ in self})
        return {name: _sum(total for key, total in self if key[part] == name) for name in names}


def ledger_of(calls: Iterable[tuple[Request, Reply]]) -> Ledger:
    """The totals of calls that were made."""
    ledger = Ledger()
    for request, reply in calls:
        ledger.add(request.role, request.model, total_of(reply))
    return ledger


def _sum(totals: Iterable[Total]) -> Total:
    return sum(totals, Total())
