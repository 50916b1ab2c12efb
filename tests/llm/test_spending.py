"""The budget holds, whoever asks, in whatever order."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelopt_compile.errors import InvalidOption
from accelopt_compile.llm.client import Reply, Request, Role, Usage
from accelopt_compile.llm.openai_client import OpenAIClient
from accelopt_compile.llm.prices import Price, Prices, load_prices
from accelopt_compile.llm.retrying import Policy
from accelopt_compile.llm.scripted import ScriptedClient
from accelopt_compile.llm.spending import WRAPPING_TOKENS, MeteredClient, Spending, Ticket
from accelopt_compile.llm.totals import ledger_of
from tests.llm.faulty_server import FaultyServer, Received, answer, completion

PRICES = Prices({"m": Price(prompt=1.0, cached=0.1, completion=6.0), "free": Price(prompt=0, cached=0, completion=0)})
ROUNDING = 1e-9


def request(size: int = 1000, max_tokens: int = 1000, *, model: str = "m", role: Role = "executor", call: str = "") -> Request:
    return Request(role=role, model=model, system="", user="u" * size, max_tokens=max_tokens, call=call)


def reply(prompt: int = 0, completion_: int = 0, cached: int = 0) -> Reply:
    return Reply(text="x", usage=Usage(prompt=prompt, cached=cached, completion=completion_))


def reserved(spending: Spending, asked: Request) -> Ticket:
    ticket = spending.reserve(asked)
    assert isinstance(ticket, Ticket), ticket
    return ticket


# ---------------------------------------------------------------- one after the other


def test_a_search_that_is_over_pays_for_nothing_more() -> None:
    """Its planners may still think, in threads of their own, and then want kernels; what was under way is settled."""
    spending = Spending(prices=PRICES)
    under_way = reserved(spending, request())
    spending.close()
    assert "the search that would pay for it is over" == spending.reserve(request())
    assert 0.0 < (spending.settle(under_way, reply(100, 10)) or 0.0)


def test_a_call_costs_its_tokens() -> None:
    """Cached tokens have their own price, and totals are kept per role and per model."""
    spending = Spending(prices=PRICES)
    cost = spending.settle(reserved(spending, request(role="planner")), reply(1000, 100, cached=600))
    assert pytest.approx((400 * 1.0 + 600 * 0.1 + 100 * 6.0) / 1e6) == cost
    spending.settle(reserved(spending, request(model="free")), reply(10, 1))
    data = spending.to_json()
    assert {"planner": 1100, "executor": 11} == {k: v["prompt"] + v["completion"] for k, v in data["by_role"].items()}
    assert (["free", "m"], 2, pytest.approx(cost)) == (list(data["by_model"]), data["total"]["calls"], data["total"]["usd"])


def test_the_worst_case_of_what_is_in_flight_is_counted_in() -> None:
    """Two calls whose worst cases do not fit together are not both made, however cheap the first turns out to be."""
    spending = Spending(prices=PRICES, usd=0.012)
    first = reserved(spending, request())
    assert pytest.approx((1000 + WRAPPING_TOKENS + 6000) / 1e6) == first.usd
    reason = spending.reserve(request())
    assert isinstance(reason, str)
    assert all(part in reason for part in ("0.012 USD", "0 spent", "0.007256 in flight", "0.007256 asked for")), reason
    spending.settle(first, reply(100, 10))
    reserved(spending, request())


def test_tokens_and_seconds_are_limits_too() -> None:
    """Each limit refuses by its own name."""
    spending = Spending(prices=PRICES, tokens=3000)
    spending.settle(reserved(spending, request()), reply(1000, 1000))
    assert "the limit of 3000 tokens: 2000 spent" in str(spending.reserve(request()))
    now = [0.0]
    spending = Spending(prices=PRICES, seconds=5, clock=lambda: now[0])
    reserved(spending, request())
    now[0] = 5.0
    assert "the limit of 5 s is reached" == spending.reserve(request())


def test_without_a_price_there_is_no_limit_in_usd() -> None:
    """An unknown price refuses under such a limit; without one tokens are counted, and the totals say that it is unpriced."""
    assert "no price is known for 'new'" in str(Spending(prices=PRICES, usd=1).reserve(request(model="new")))
    spending = Spending(prices=PRICES)
    assert None is spending.settle(reserved(spending, request(model="new")), reply(5, 5))
    total = spending.to_json()["by_model"]["new"]
    assert (5, 5, 1, 0.0) == (total["prompt"], total["completion"], total["unpriced"], total["usd"])


def test_a_call_that_generated_nothing_costs_nothing() -> None:
    """A refused or failed call gives its reservation back."""
    spending = Spending(prices=PRICES, usd=0.008)
    for problem in ("authentication", "rate_limit", "timeout"):
        spending.settle(reserved(spending, request()), Reply(problem=problem))
    assert 0 == spending.usd
    reserved(spending, request())


def test_a_guess_is_never_more_than_could_have_been() -> None:
    """Long words make an estimate from characters too high: it is held to the bound that the endpoint had to keep."""
    spending = Spending(prices=PRICES, usd=0.007256)
    guess = Reply(text="x", usage=Usage(prompt=250, completion=1500, estimated=True))
    answered = MeteredClient(ScriptedClient(lambda _: guess), spending).ask(request())
    assert (1000, pytest.approx(0.00625)) == (answered.usage.completion, answered.usd)


def test_a_ticket_settles_once() -> None:
    """Settling again changes nothing."""
    spending = Spending(prices=PRICES)
    ticket = reserved(spending, request())
    spending.settle(ticket, reply(1000, 1000))
    spending.settle(ticket, reply(1000, 1000))
    assert 1 == spending.to_json()["total"]["calls"]


def test_what_was_seen_makes_the_worst_case_less_pessimistic() -> None:
    """Bytes bound a prompt until a model's usage was seen; then the densest prompt so far, and a quarter, never over one."""
    spending = Spending(prices=PRICES)
    assert 1000 + WRAPPING_TOKENS == reserved(spending, request(1000)).prompt
    spending.settle(reserved(spending, request(1000)), reply(400, 1))
    spending.settle(reserved(spending, request(1000)), reply(200, 1))
    assert 500 + WRAPPING_TOKENS == reserved(spending, request(1000)).prompt
    spending.settle(reserved(spending, request(1000)), reply(990, 1))
    assert 1000 + WRAPPING_TOKENS == reserved(spending, request(1000)).prompt
    estimated = Reply(text="x", usage=Usage(prompt=1, completion=1, estimated=True))
    spending.settle(reserved(spending, request(1000, model="free")), estimated)
    assert 1000 + WRAPPING_TOKENS == reserved(spending, request(1000, model="free")).prompt


def test_a_resumed_run_starts_from_what_it_spent() -> None:
    """Carried totals count against the limits."""
    ledger = ledger_of([(request(), replace(reply(1000, 1000), usd=0.007))])
    spending = Spending(prices=PRICES, usd=0.014, seconds=10, clock=lambda: 0.0)
    spending.carry(ledger, seconds=4)
    assert "0.007 spent" in str(spending.reserve(request()))
    assert 4 == spending.to_json()["seconds"]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_interleaving_overspends(data: st.DataObject) -> None:
    """Calls begin and end in any order: with honest usage, what is spent never exceeds a limit, by not a cent."""
    usd = data.draw(st.floats(0, 0.05))
    tokens = data.draw(st.integers(0, 20_000))
    spending = Spending(prices=PRICES, usd=usd, tokens=tokens)
    open_: list[Ticket] = []
    for _ in range(data.draw(st.integers(1, 25))):
        if open_ and data.draw(st.booleans()):
            ticket = open_.pop(data.draw(st.integers(0, len(open_) - 1)))
            prompt, completion_ = (data.draw(st.integers(0, most)) for most in (ticket.prompt, ticket.completion))
            spending.settle(ticket, reply(prompt, completion_, cached=data.draw(st.integers(0, prompt))))
        else:
            got = spending.reserve(request(data.draw(st.integers(0, 3000)), data.draw(st.integers(1, 3000))))
            open_ += [got] if isinstance(got, Ticket) else []
        total = spending.to_json()["total"]
        assert total["usd"] <= usd + ROUNDING
        assert total["prompt"] + total["completion"] <= tokens
    for ticket in open_:
        spending.settle(ticket, reply(ticket.prompt, ticket.completion))
    assert spending.usd <= usd + ROUNDING


# ---------------------------------------------------------------- through a client


def test_a_refusal_is_a_reply() -> None:
    """The problem is "budget", fatal, it says what is spent, and nothing was asked."""
    client = MeteredClient(ScriptedClient(lambda _: pytest.fail("was asked")), Spending(prices=PRICES, usd=0.001))
    refused = client.ask(request())
    assert ("budget", True, 0) == (refused.problem, refused.fatal, refused.tries)
    assert "the limit of 0.001 USD: 0 spent, 0 in flight" in refused.detail


def test_a_call_that_only_others_keep_out_waits_for_them() -> None:
    """The second call waits until the first has settled, then is made."""
    first_is_in, go_on = threading.Event(), threading.Event()

    def script(asked: Request) -> Reply:
        if asked.call == "first":
            first_is_in.set()
            go_on.wait(10)
        return reply(100, 10)

    client = MeteredClient(ScriptedClient(script), Spending(prices=PRICES, usd=0.012))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(client.ask, request(call="first"))
        first_is_in.wait(10)
        second = pool.submit(client.ask, request(call="second"))
        time.sleep(0.1)
        assert not second.done()
        go_on.set()
        assert ["", ""] == [first.result(10).problem, second.result(10).problem]
    assert pytest.approx(160 / 1e6) == first.result().usd


def test_a_client_that_raises_keeps_no_reservation() -> None:
    """A broken client's error passes, and the budget is as it was."""
    spending = Spending(prices=PRICES, usd=0.008)
    client = MeteredClient(ScriptedClient(lambda _: [][0]), spending)
    for _ in range(2):
        with pytest.raises(IndexError):
            client.ask(request())
    reserved(spending, request())


def test_many_threads_and_a_real_server_stay_within_the_budget() -> None:
    """Twelve threads, an endpoint that fails at times and uses all it may at others: never a cent over, and no call hangs."""
    random, lock = Random(0), threading.Lock()

    def serve(connection: Any, received: Received) -> None:
        with lock:
            kind, share = random.random(), random.random()
        size = sum(len(message["content"]) for message in received.body["messages"])
        most = received.body["max_completion_tokens"]
        usage = {"prompt_tokens": size // 2, "completion_tokens": most if share > 0.6 else int(most * share)}
        behaviour = answer(500, b"") if kind < 0.1 else answer(200, completion(usage=None if kind < 0.2 else usage))
        behaviour(connection, received)

    spending = Spending(prices=PRICES, usd=0.1, tokens=40_000)
    over: list[Any] = []
    with FaultyServer(serve) as server, ThreadPoolExecutor(12) as pool:
        client = MeteredClient(OpenAIClient(server.base_url, concurrency=12, policy=Policy(tries=1)), spending)

        def one(number: int) -> Reply:
            answered = client.ask(request(100 + 37 * number % 900, 200 + 91 * number % 1500, call=str(number)))
            total = spending.to_json()["total"]
            over.extend([total] if total["usd"] > 0.1 or total["prompt"] + total["completion"] > 40_000 else [])
            return answered

        replies = list(pool.map(one, range(80)))
    assert [] == over
    problems = {answered.problem for answered in replies}
    assert {"", "server", "budget"} == problems
    assert pytest.approx(sum(answered.usd or 0 for answered in replies)) == spending.usd
    assert spending.to_json()["total"]["estimated"]


# ---------------------------------------------------------------- prices


def test_shipped_prices_are_found_by_name_and_without_the_vendor() -> None:
    """The exact name first, then the part after the last slash, then nothing."""
    prices = load_prices()
    assert Price(prompt=0.036, cached=0.036, completion=0.18) == prices.of("openai/gpt-oss-120b")
    assert Price(prompt=5.0, cached=0.5, completion=30.0) == prices.of("gpt-5.6-sol")
    assert (None, "2026-11-27") == (prices.of("unheard-of"), prices.date)


def test_a_users_table_is_laid_over(tmp_path: Path) -> None:
    """Own prices win, the others stay."""
    own = tmp_path / "prices.json"
    own.write_text('{"models": {"kimi-k2": {"in": 9, "out": 9}, "mine": {"in": 0, "out": 0}}}')
    prices = load_prices(own)
    assert [9, 0, 0.43] == [price.prompt for name in ("kimi-k2", "mine", "glm-4.6") if (price := prices.of(name))]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cannot be read"),
        ("[]", "no table of models"),
        ('{"models": {"a": 3}}', "'a' needs 'in' and 'out'"),
        ('{"models": {"a": {"in": 1}}}', "'a' needs 'in' and 'out'"),
        ('{"models": {"a": {"in": 1, "out": 2, "cache": 1}}}', "nothing else"),
        ('{"models": {"a": {"in": -1, "out": 2}}}', "'in' of 'a' is -1"),
        ('{"models": {"a": {"in": NaN, "out": 2}}}', "'in' of 'a' is nan"),
        ('{"models": {"a": {"in": "1", "out": 2}}}', "'in' of 'a' is '1'"),
    ],
)
def test_a_table_that_is_none_is_an_error(tmp_path: Path, text: str, reason: str) -> None:
    """The error names file and entry and shows the form."""
    own = tmp_path / "prices.json"
    own.write_text(text)
    with pytest.raises(InvalidOption, match="price table") as refused:
        load_prices(own)
    assert reason in str(refused.value)
