"""Puts winners into a store without a search: the backend's seed kernel of every region, with a made-up timing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from accelopt_compile.bench import Bench
from accelopt_compile.config import Settings, settings_from
from accelopt_compile.pipeline import bench_for
from accelopt_compile.records import KernelSource, Record, Timing
from accelopt_compile.sites import Site, sites_of

TIMING = Timing(
    kernel_us=10.0, baselines_us={"inductor": 20.0, "eager": 30.0}, speedup=2.0, low=1.9, high=2.1, blocks=5, threads=1
)


class Norm(torch.nn.Module):
    """A Llama-style norm with its residual, between two matrix products."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
        self.weight = torch.nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.up(x) + x
        h = self.weight * h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.down(h)


class Block(torch.nn.Module):
    """One Llama-like layer with its loss."""

    def __init__(self, width: int = 32, words: int = 50) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(words, width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width, bias=False), torch.nn.Linear(width, width, bias=False)
        self.gate, self.up = torch.nn.Linear(width, 64, bias=False), torch.nn.Linear(width, 64, bias=False)
        self.down, self.head = torch.nn.Linear(64, width, bias=False), torch.nn.Linear(width, words, bias=False)
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(width) for _ in range(2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        q, k, v = self.qkv(self.norms[0](x)).view(*tokens.shape, 3, 2, -1).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        h = self.norms[1](x)
        x = x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h))
        return torch.nn.functional.cross_entropy(self.head(x[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def bench(**options: Any) -> Bench:
    """The store and backend that a compile with these options uses."""
    settings: Settings = settings_from(options)
    return bench_for(settings)


def sites_seen(model: Callable[..., Any], *inputs: Any, **compile_options: Any) -> list[Site]:
    """The regions that compiling `model` would look up."""
    found: list[Site] = []

    def look(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        found.extend(sites_of(gm, example_inputs, products=bench().backend.products)[0])
        return gm.forward

    torch._dynamo.reset()
    torch.compile(model, backend=look, **compile_options)(*inputs)
    torch._dynamo.reset()
    return found


def plant(
    model: Callable[..., Any],
    *inputs: Any,
    source: Callable[[KernelSource], KernelSource] = lambda s: s,
    environment: dict[str, str] | None = None,
    timing: Timing = TIMING,
    **compile_options: Any,
) -> list[Site]:
    """Store a winner for every region of `model` that the backend has a seed for; the regions."""
    place = bench()
    planted = [s for s in sites_seen(model, *inputs, **compile_options) if place.backend.supports(s.workload) is None]
    plant_sites(place, planted, source=source, environment=environment, timing=timing)
    assert planted, "the model has no region that the backend supports"
    return planted


def plant_sites(
    place: Bench,
    sites: list[Site],
    *,
    source: Callable[[KernelSource], KernelSource] = lambda s: s,
    environment: dict[str, str] | None = None,
    timing: Timing = TIMING,
) -> None:
    """Store a winner for each of the regions."""
    for site in sites:
        seed = source(place.backend.seed(site.workload))
        record = Record(
            outcome="winner",
            workload=site.workload.digest,
            target=place.target,
            binding=site.binding,
            source=seed,
            tunables=seed.defaults(),
            timing=timing,
            environment={**place.environment, **(environment or {})},
            created="2025-01-01T00:00:00+00:00",
        )
        place.store.put(record, site.workload)


def broken(seed: KernelSource) -> KernelSource:
    """A kernel that declines every call."""
    return replace(seed, text='extern "C" int accelopt_kernel(void* const*, const long*, long) { return 3; }\n')
