"""Who writes kernels in a search, as the settings say: the built-in proposer, language models, or both.

Nothing of a language model is imported, and no server is asked, unless the settings name a model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from accelopt_compile.config import Settings
from accelopt_compile.errors import InvalidOption
from accelopt_compile.search.builtin import BuiltinProposer
from accelopt_compile.search.proposer import Proposer

if TYPE_CHECKING:
    from accelopt_compile.llm.client import Client, Reply, Request, Role
    from accelopt_compile.llm.openai_client import OpenAIClient
    from accelopt_compile.llm.spending import Spending

DEFAULT_USD = 0.5
"""What a search may cost where nobody said, and the model's price is known."""

Kind = Literal["builtin", "llm", "both"]
Tell = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Authors:
    """`proposer` and `companion` as `search` takes them; `spending` is None without a model; `prompts` names the versions."""

    kind: Kind
    proposer: Proposer
    companion: Proposer | None = None
    spending: Spending | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)


def kind_of_authors(settings: Settings) -> Kind:
    """Who proposes. Raises InvalidOption for a language model that has no name."""
    named = any(models_of(settings).values())
    if settings.proposer == "auto":
        return "both" if named else "builtin"
    if settings.proposer != "builtin" and not named:
        raise InvalidOption(
            f"proposer={settings.proposer!r} needs a model: set model= (or ACCELOPT_MODEL); no model is ever a default"
        )
    return settings.proposer  # type: ignore[return-value]


def check_authors(settings: Settings) -> None:
    """Raises InvalidOption for settings with which no search could begin: no model, or a limit in dollars and no price."""
    if kind_of_authors(settings) == "builtin":
        return
    if without := sorted(role for role, names in models_of(settings).items() if not names):
        raise InvalidOption(f"no model for the {', '.join(without)}: set model=, or {without[0]}_model=")
    spending_of(settings)


def models_of(settings: Settings) -> dict[Role, list[str]]:
    """The models of each role, in the order in which they take turns; empty lists where none is set."""
    given: dict[Role, str | None] = {
        "planner": settings.planner_model,
        "executor": settings.executor_model,
        "fixer": settings.fixer_model,
        "summarizer": settings.summarizer_model,
    }
    return {role: [m.strip() for m in (own or settings.model or "").split(",") if m.strip()] for role, own in given.items()}


def authors_of(settings: Settings, *, calls: Path | None, client: Client | None = None, tell: Tell | None = None) -> Authors:
    """The proposers of one search. Calls are recorded in `calls`, and what it has an answer to is not asked again.

    Another `client` may stand in for the server; `tell` hears of each paid call, from any thread. Raises InvalidOption (no
    model, no price under a limit in dollars) and LanguageModelMissing.
    """
    kind = kind_of_authors(settings)
    if kind == "builtin":
        return Authors(kind=kind, proposer=BuiltinProposer())
    from accelopt_compile.llm.prompts import prompt
    from accelopt_compile.llm.spending import MeteredClient
    from accelopt_compile.search.agents import AgentProposer

    check_authors(settings)
    models, spending = models_of(settings), spending_of(settings)
    metered = MeteredClient(client or server_of(settings), spending)
    asked = _recorded(metered if tell is None else _Telling(metered, tell), calls, spending, settings)
    return Authors(
        kind=kind,
        proposer=AgentProposer(asked, models=models, effort=settings.llm_effort),
        companion=BuiltinProposer() if kind == "both" else None,
        spending=spending,
        prompts={role: f"{prompt(role).version}:{prompt(role).digest[:12]}" for role in models},
    )


class _Telling:
    """A client that tells of each call once it is answered, see `told_of`."""

    def __init__(self, client: Client, tell: Tell) -> None:
        self._client, self._tell = client, tell

    def ask(self, request: Request) -> Reply:
        reply = self._client.ask(request)
        self._tell(told_of(request, reply))
        return reply


def told_of(request: Request, reply: Reply) -> dict[str, Any]:
    """The event of a call: {"kind": "call", "role", "model" (the one asked for), "problem", "tokens", "usd"}."""
    tokens = reply.usage.prompt + reply.usage.completion
    asked = {"role": request.role, "model": request.model}
    return {"kind": "call", **asked, "problem": reply.problem, "tokens": tokens, "usd": reply.usd}


def spending_of(settings: Settings) -> Spending:
    """The hard limit of one search. Raises InvalidOption where dollars are limited and a model has no price."""
    from accelopt_compile.llm.prices import load_prices
    from accelopt_compile.llm.spending import Spending

    prices = load_prices(settings.prices)
    unknown = sorted({m for names in models_of(settings).values() for m in names if prices.of(m) is None})
    if settings.budget_usd is not None and unknown:
        raise InvalidOption(
            f"budget_usd={settings.budget_usd:g} needs the price of {', '.join(unknown)}: give prices=FILE, or budget_tokens="
        )
    usd = settings.budget_usd if settings.budget_usd is not None or unknown else DEFAULT_USD
    return Spending(prices=prices, usd=usd, tokens=settings.budget_tokens)


def server_of(settings: Settings) -> OpenAIClient:
    """The client of the endpoint that the settings name. Raises InvalidOption and LanguageModelMissing."""
    from accelopt_compile.llm.openai_client import OpenAIClient, key_from_environment

    return OpenAIClient(
        settings.base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1",
        key_from_environment(os.environ),
        api=settings.api,  # type: ignore[arg-type]
        deadline_s=settings.llm_deadline_s,
        concurrency=settings.llm_concurrency,
        seed=settings.seed,
    )


def _recorded(client: Client, calls: Path | None, spending: Spending, settings: Settings) -> Client:
    if calls is None:
        return client
    from accelopt_compile.llm.recording import RecordingClient, recorded_spending, set_aside_if_damaged

    if calls.exists():
        set_aside_if_damaged(calls)
        spending.carry(recorded_spending(calls))
    return RecordingClient(client, calls, keep_texts=settings.keep_texts)


def spent(authors: Authors) -> dict[str, Any]:
    """What the models took, as plain JSON; empty without a model."""
    return {} if authors.spending is None else authors.spending.to_json()
