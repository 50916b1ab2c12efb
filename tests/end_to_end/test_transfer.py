"""Kernels of one model in another: what a Llama left in the store serves its relatives of the same sizes."""

from __future__ import annotations

import shutil
from pathlib import Path
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


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, inductor_cache: Path) -> tuple[Path, list[dict[str, Any]]]:
    """A store with a kernel for every region of a Llama that the backend takes, and the reports of compiling that Llama.
    Nothing may change the store: take `llama`."""
    root = tmp_path_factory.mktemp("planted")
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setenv("ACCELOPT_CACHE_DIR", str(root))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(inductor_cache))
        model, inputs = build("llama", "tiny")
        planting.plant(model, *inputs)
        regions = compiled("llama", mode="apply")
    assert sum(region["outcome"] == "HIT" for region in regions) >= 5
    return root, regions


@pytest.fixture
def llama(planted: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> list[dict[str, Any]]:
    """The reports of that Llama; its kernels are in this test's store."""
    root, regions = planted
    shutil.copytree(root, tmp_path / "accelopt")
    return regions


@pytest.mark.sweep(2)
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["mistral", "qwen2"])
def test_relative_is_served_without_a_search(llama: list[dict[str, Any]], name: str) -> None:
    """All regions of a Mistral and of a Qwen2 are Llama's: mode "tune" finds a kernel for each and has nothing to search."""
    with torch.no_grad():
        told = compare(llama, compiled(name, mode="tune", budget_s=60))
    hits = sum(region["outcome"] == "HIT" for region in llama)
    assert (told["regions"], hits, 0, 0) == (told["shared"], told["hits"], told["unanswered"], told["searches"])


@pytest.mark.sweep(2)
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["qwen3", "mistral_window"])
def test_relative_with_parts_of_its_own(llama: list[dict[str, Any]], name: str) -> None:
    """A Qwen3 normalises its heads and a Mistral may have a window: what differs is a miss, the rest is served."""
    with torch.no_grad():
        told = compare(llama, compiled(name, mode="apply"))
    assert told["own"]
    assert told["hits"] >= 5
    assert (0, 0) == (told["unanswered"], told["searches"])
