"""What surrounds a region: which computations Inductor might fuse with it, and what crosses between."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

from accelopt_compile.context import NotWeighed, Rim, rim
from accelopt_compile.evaluate.in_context import module_of
from accelopt_compile.graph_pass import choice
from accelopt_compile.literal import calls_of
from accelopt_compile.records import Workload
from accelopt_compile.sites import Site, sites_of
from accelopt_compile.whole_graph import could_lose, lightened

A, B = ("a" * 64, ()), ("b" * 64, ())


def sites(function: Callable[..., Any], *inputs: Any) -> list[Site]:
    """The distinct regions of a function, as a compile finds them."""
    found: list[Site] = []

    def look(gm: GraphModule, given: list[Any]) -> Any:
        found.extend(sites_of(gm, given)[0])
        return gm.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, backend=look)(*inputs)
    return found


def ops(site: Site) -> list[str]:
    assert site.context is not None
    return [node.op.split(".")[1] for node in Workload.from_json(site.context["workload"]).nodes]


def test_a_region_between_walls_has_no_context() -> None:
    """Between two matrix products there is nothing that Inductor could fuse with a region."""
    up, down = torch.randn(64, 64), torch.randn(64, 64)
    (site,) = sites(lambda x: torch.nn.functional.gelu(x @ up) @ down, torch.randn(128, 64))
    assert site.context is None


def test_a_context_holds_producer_and_consumers() -> None:
    """A value with two like consumers is a region of its own: its context holds both of them, and each of theirs holds it."""

    def alike(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.nn.functional.gelu(x)
        return h * y + 1, h * z + 1

    producer, consumer = sorted(sites(alike, *(torch.randn(128, 64) for _ in range(3))), key=lambda s: s.count)
    assert ["mul", "mul", "erf", "add", "mul", "mul", "add", "mul", "add"] == ops(producer)
    assert ["mul", "mul", "erf", "add", "mul", "mul", "add"] == ops(consumer)
    assert producer.context is not None
    members = producer.context["members"]
    assert {choice(*m["choice"]) for m in members} >= {producer.choice, consumer.choice}
    kernels = [m["nodes"] for m in members if choice(*m["choice"]) in (producer.choice, consumer.choice)]
    stored_and_read_twice = 2 * 2 * 128 * 64 * 4
    assert Rim(stored=stored_and_read_twice, shared=0, edges=2) == rim(Workload.from_json(producer.context["workload"]), kernels)


def test_a_consumer_behind_a_wall_is_not_in_the_context() -> None:
    """A residual is read again behind a matrix product that needs it too: nothing can fuse across that."""
    w = torch.randn(64, 64)

    def residual(x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(x * 2)
        return torch.sigmoid(h @ w + h)

    assert [None, None] == [site.context for site in sites(residual, torch.randn(128, 64))]


def test_a_context_is_the_same_after_its_transport() -> None:
    """Every value has the layout that it had in the graph, also where a copy asked for one."""

    def turned(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.nn.functional.gelu(x).t().contiguous()
        return h * y + 1, h * z + 1

    found = sites(turned, torch.randn(128, 64), torch.randn(64, 128), torch.randn(64, 128))
    contexts = [site.context for site in found if site.context is not None]
    assert contexts
    for context in contexts:
        workload = Workload.from_json(json.loads(json.dumps(context["workload"])))
        for node, call in zip(workload.nodes, calls_of(module_of(workload)), strict=True):
            assert (node.outputs[0].shape, node.outputs[0].strides) == (call.meta["val"].shape, call.meta["val"].stride())


@pytest.mark.parametrize(
    ("rim", "gain_us", "expected"),
    [
        (Rim(stored=0, shared=0, edges=0), 0.1, False),
        (Rim(stored=1 << 20, shared=0, edges=1), 10.0, True),
        (Rim(stored=1 << 20, shared=0, edges=1), 1000.0, False),
    ],
)
def test_what_could_lose(rim: Rim, gain_us: float, expected: bool) -> None:
    """Only what crosses the rim can be lost: a megabyte is a hundred microseconds at 10 GB/s."""
    assert expected == could_lose(rim, gain_us, 1e10)


def scales(ratios: dict[frozenset[Any], float]) -> Callable[[frozenset[Any]], Any]:
    """A measurement by table, certain to one percent."""
    return lambda some: SimpleNamespace(ratio=ratios[some], low=ratios[some] - 0.01, high=ratios[some] + 0.01)


def test_winners_that_pay_together_are_kept() -> None:
    """One measurement settles it."""
    kept, paired = lightened([A, B], scales({frozenset({A, B}): 1.2}))
    assert ({A, B}, 1.2) == (kept, paired.ratio)


def test_a_ratio_within_the_noise_is_no_loss() -> None:
    """Dropping needs certainty, as winning does."""
    kept, _ = lightened([A], scales({frozenset({A}): 0.995}))
    assert {A} == kept


def test_a_loss_has_to_show_twice() -> None:
    """What is dropped stays dropped in later processes, so one disturbed measurement is not enough."""
    ratios = iter([0.8, 1.1])

    def weigh(some: frozenset[Any]) -> Any:
        ratio = next(ratios)
        return SimpleNamespace(ratio=ratio, low=ratio - 0.01, high=ratio + 0.01)

    kept, paired = lightened([A], weigh)
    assert ({A}, 1.1) == (kept, paired.ratio)


def test_the_one_that_costs_most_is_dropped_first() -> None:
    """Of two that lose together the one stays that pays by itself."""
    table = {frozenset({A, B}): 0.8, frozenset({A}): 1.3, frozenset({B}): 0.7}
    kept, paired = lightened([A, B], scales(table))
    assert ({A}, 0.8) == (kept, paired.ratio)


def test_none_is_kept_where_all_lose() -> None:
    """Each alone loses, too."""
    table = {frozenset({A, B}): 0.6, frozenset({A}): 0.9, frozenset({B}): 0.8}
    assert frozenset() == lightened([A, B], scales(table))[0]


def test_out_of_time_after_a_loss_none_is_kept() -> None:
    """What is known to lose is not kept because nobody had time to see which of them does."""

    def weigh(some: frozenset[Any]) -> Any:
        if some != {A, B}:
            raise NotWeighed("the time for it is spent", late=True)
        return SimpleNamespace(ratio=0.8, low=0.7, high=0.9)

    assert frozenset() == lightened([A, B], weigh)[0]
