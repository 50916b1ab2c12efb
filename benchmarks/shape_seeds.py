"""A backend that launches the generator's first kernel for every region it knows, proven or not, fast or not.

For `check_shapes --seeds` only: a search adopts what is right at the sizes that it verified and faster, a few kernels a
model; this looks at all others, so that a fault of the generator or of the rewrite is found before a search runs into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from accelopt_compile.config import settings_from
from accelopt_compile.pipeline import bench_for
from accelopt_compile.records import Record, Timing
from accelopt_compile.sites import sites_of
from accelopt_compile.torch_backend import accelopt

MADE_UP = Timing(kernel_us=1.0, baselines_us={"inductor": 2.0}, speedup=2.0, low=2.0, high=2.0, blocks=1, threads=1)


def seeding_backend(options: Mapping[str, Any]) -> Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]:
    """accelopt with these options, which finds a seed in the store for every region of the graph."""

    def compile_seeded(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        bench = bench_for(settings_from(options))
        for site in sites_of(gm, example_inputs)[0]:
            if bench.backend.supports(site.workload):
                continue
            seed = bench.backend.seed(site.workload)
            record = Record(
                outcome="winner",
                workload=site.workload.digest,
                target=bench.target,
                binding=site.binding,
                source=seed,
                tunables=seed.defaults(),
                timing=MADE_UP,
                environment=bench.environment,
                created="2025-01-01T00:00:00+00:00",
            )
            bench.store.put(record, site.workload)
        return accelopt(gm, example_inputs, options=options)

    return compile_seeded
