"""A budget that holds: a call is made only when its worst case, with those of all calls under way, still fits.

Worst case of a call: its prompt in tokens, times the price, plus `max_tokens` of answer. A prompt has at most one token a
byte, and the endpoint's own wrapping; once a model's usage was seen, the largest tokens-per-byte ratio seen, and a quarter,
is taken instead. So the money limit holds for every endpoint that counts honestly, keeps to `max_tokens`, and whose
prompts do not become over a quarter denser than all before.
What a call costs is its usage. One that failed without saying any costs nothing here: an answer that was cut off by the
deadline may have been generated, and billed, all the same. A model without a price cannot be asked under a limit in USD.
Seconds are checked before a call; one under way may end later, by at most the client's deadline.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from accelopt_compile.llm.client import Client, Reply, Request
from accelopt_compile.llm.prices import Prices
from accelopt_compile.llm.totals import Ledger, total_of

WRAPPING_TOKENS = 256
"""What chat templates put around a prompt, at most (gpt-oss: about 100)."""

RATIO_MARGIN = 1.25


@dataclass(frozen=True, kw_only=True, eq=False)
class Ticket:
    """The right to make one call, which may take up to `prompt` and `completion` tokens and cost up to `usd`."""

    request: Request
    prompt: int
    completion: int
    usd: float

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion


class Spending:
    """Limits for all calls together; None is no limit. Safe to use from several threads."""

    def __init__(
        self,
        *,
        prices: Prices,
        usd: float | None = None,
        tokens: int | None = None,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = {"usd": usd, "tokens": tokens, "seconds": seconds}
        self._prices, self._clock, self._began, self._carried_s = prices, clock, clock(), 0.0
        self._changed = threading.Condition()
        self._ledger = Ledger()
        self._in_flight: set[Ticket] = set()
        self._closed = False
        self._ratios: dict[str, float] = {}

    def carry(self, ledger: Ledger, *, seconds: float = 0.0) -> None:
        """Count what a recorded run already took."""
        with self._changed:
            self._ledger.add_all(ledger)
            self._carried_s += seconds

    def reserve(self, request: Request, *, wait: bool = False) -> Ticket | str:
        """A ticket, to be given back by `settle`; or the reason, a sentence, why the call may not be made.

        With `wait`, a call that only the reservations of others keep out waits until they have settled.
        """
        with self._changed:
            while True:
                if self._closed:
                    return "the search that would pay for it is over"
                ticket = self._ticket(request)
                if isinstance(ticket, str):
                    return ticket
                reason = self._reason(ticket, in_flight=True)
                if reason == "":
                    self._in_flight.add(ticket)
                    return ticket
                alone = self._reason(ticket, in_flight=False)
                if not wait or alone or not self._in_flight:
                    return alone or reason
                self._changed.wait(self._left_s())

    def close(self) -> None:
        """The search is over: whoever still thinks for it, in a thread of its own, may ask no more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def settle(self, ticket: Ticket, reply: Reply) -> float | None:
        """Book what the call took; its cost in USD, None where no price is known. A ticket settles once."""
        with self._changed:
            if ticket not in self._in_flight:
                return reply.usd
            self._in_flight.discard(ticket)
            reply = _within(ticket, reply)
            price = self._prices.of(ticket.request.model)
            usd = None if price is None else price.usd(reply.usage)
            self._ledger.add(ticket.request.role, ticket.request.model, total_of(replace(reply, usd=usd)))
            self._observe(ticket.request, reply)
            self._changed.notify_all()
            return usd

    @property
    def usd(self) -> float:
        """Spent so far, calls under way not counted."""
        with self._changed:
            return self._ledger.total().usd

    def to_json(self) -> dict[str, Any]:
        """Limits, seconds gone, and totals per role and model, as plain JSON."""
        with self._changed:
            return {"limits": dict(self._limits), "seconds": self._seconds(), **self._ledger.to_json()}

    def _ticket(self, request: Request) -> Ticket | str:
        size = _bytes(request)
        prompt = math.ceil(size * self._ratios.get(request.model, 1.0)) + WRAPPING_TOKENS
        price = self._prices.of(request.model)
        if price is None and self._limits["usd"] is not None:
            return f"no price is known for {request.model!r}, so that a limit in USD cannot hold; give one, or limit the tokens"
        usd = price.most_usd(prompt, request.max_tokens) if price else 0.0
        return Ticket(request=request, prompt=prompt, completion=request.max_tokens, usd=usd)

    def _reason(self, ticket: Ticket, *, in_flight: bool) -> str:
        """Why the ticket does not fit, "" if it does; with the calls under way, or as if all had cost nothing."""
        flying = self._in_flight if in_flight else ()
        spent = self._ledger.total()
        most, limit_s = self._limits["tokens"], self._limits["seconds"]
        if limit_s is not None and self._seconds() >= limit_s:
            return f"the limit of {limit_s:g} s is reached"
        for name, limit, gone, pending, asked in (
            ("USD", self._limits["usd"], spent.usd, math.fsum(t.usd for t in flying), ticket.usd),
            ("tokens", most, float(spent.tokens), float(sum(t.tokens for t in flying)), float(ticket.tokens)),
        ):
            if limit is not None and gone + pending + asked > limit:
                return f"the limit of {limit:g} {name}: {gone:.6g} spent, {pending:.6g} in flight, {asked:.6g} asked for"
        return ""

    def _observe(self, request: Request, reply: Reply) -> None:
        usage, size = reply.usage, _bytes(request)
        if usage.prompt and not usage.estimated and size:
            seen = min(1.0, usage.prompt / size * RATIO_MARGIN)
            known = self._ratios.get(request.model, 0.0)
            self._ratios[request.model] = max(known, seen)

    def _seconds(self) -> float:
        return self._clock() - self._began + self._carried_s

    def _left_s(self) -> float | None:
        limit_s = self._limits["seconds"]
        return None if limit_s is None else max(0.0, limit_s - self._seconds())


class MeteredClient:
    """A client whose calls are paid from a budget. What does not fit is a reply with the problem "budget"."""

    def __init__(self, client: Client, spending: Spending) -> None:
        self._client, self._spending = client, spending

    def ask(self, request: Request) -> Reply:
        """The client's answer with its cost, once the budget has room for the worst case."""
        ticket = self._spending.reserve(request, wait=True)
        if isinstance(ticket, str):
            return Reply(problem="budget", detail=ticket, tries=0)
        reply = Reply(problem="server", detail="the client failed")
        usd: float | None = None
        try:
            reply = self._client.ask(request)
        finally:
            # A client that raises breaks its promise; its reservation must not block the others for ever.
            usd = self._spending.settle(ticket, reply)
        return replace(_within(ticket, reply), usd=usd)


def _within(ticket: Ticket, reply: Reply) -> Reply:
    """The reply with an estimate that is no more than could have been: a guess must not break the limit that it is under."""
    usage = reply.usage
    if not usage.estimated:
        return reply
    prompt, completion = min(usage.prompt, ticket.prompt), min(usage.completion, ticket.completion)
    return replace(reply, usage=replace(usage, prompt=prompt, completion=completion))


def _bytes(request: Request) -> int:
    return len(request.system.encode("utf-8", "replace")) + len(request.user.encode("utf-8", "replace"))
