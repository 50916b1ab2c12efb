"""Kernels of one model in another: what a Llama left in the store serves its relatives of the same sizes."""

from __future__ import annotations

from typing import Any

import planting
import pytest
import torch

import accelopt_compile
from benchmarks.bench_transfer import build, compare

pytest.importorskip("transformers")


def compiled(name: str, **options: Any) -> list[dict[str, Any]]:
    """The reports of the regions of one model that this process compiles, its result checked against eager."""
    model, inputs = build(name, "tiny")
    before = len(accelopt_compile.explain(structured=True))
    torch._dynamo.reset()
    result = torch.compile(model, backend="accelopt", options=options)(*inputs)
    torch.testing.assert_close(model(*inputs), result)
    graphs = accelopt_compile.explain(structured=True)[before:]
    assert [] == [graph["problem"] for graph in graphs if graph["problem"]]
    return [region for graph in graphs for region in graph["regions"]]


@pytest.fixture
def llama() -> list[dict[str, Any]]:
    """A Llama whose every region that the backend takes has a kernel in the store; the reports of compiling it."""
    model, inputs = build("llama", "tiny")
    with torch.no_grad():
        planting.plant(model, *inputs)
        regions = compiled("llama", mode="apply")
    assert sum(region["outcome"] == "HIT" for region in regions) >= 5
    return regions


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["mistral", "qwen2"])
def test_relative_is_served_without_a_search(llama: list[dict[str, Any]], name: str) -> None:
    """All regions of a Mistral and of a Qwen2 are Llama's: mode "tune" finds a kernel for each and has nothing to search."""
    with torch.no_grad():
        told = compare(llama, compiled(name, mode="tune", budget_s=60))
    hits = sum(region["outcome"] == "HIT" for region in llama)
    assert (told["regions"], hits, 0, 0) == (told["shared"], told["hits"], told["unanswered"], told["searches"])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["qwen3", "mistral_window"])
def test_relative_with_parts_of_its_own(llama: list[dict[str, Any]], name: str) -> None:
    """A Qwen3 normalises its heads and a Mistral may have a window: what differs is a miss, the rest is served."""
    with torch.no_grad():
        told = compare(llama, compiled(name, mode="apply"))
    assert told["own"]
    assert told["hits"] >= 5
    assert (0, 0) == (told["unanswered"], told["searches"])
