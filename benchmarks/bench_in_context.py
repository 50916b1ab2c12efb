"""Does a kernel that wins alone still win where it stands?

For every region of some graphs: the backend's first kernel is verified and timed against the region by itself, as a search
does; then each context (`accelopt_compile/context.py`) is timed with the kernels that won in it and without any. Both
ratios are over Inductor, above 1 where the kernels are faster. "at risk" says whether the check of a compile would measure
the context at all, `kept` what it would decide.

    python -m benchmarks.bench_in_context --quick
    python -m benchmarks.bench_in_context --only llama,alike
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from accelopt_compile.bench import Bench
from accelopt_compile.config import settings_from
from accelopt_compile.context import chosen, rim
from accelopt_compile.graph_pass import Choice, choice
from accelopt_compile.pipeline import bench_for
from accelopt_compile.records import Accepted, Record, Workload
from accelopt_compile.sites import Site, machine, sites_of
from accelopt_compile.whole_graph import Weighing, could_lose, lightened
from accelopt_compile.winners import Winner, winner_of
from accelopt_compile.wording import operators
from benchmarks import harness

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def llama(*, train: bool = False) -> Case:
    """The model of `accelopt demo`; two layers and their gradients with `train`."""
    from accelopt_compile.cli.demo_model import build

    module, inputs = build(layers=2 if train else 4)
    return (module.train() if train else module), inputs


def group_norm_block(dtype: torch.dtype) -> Case:
    """A residual block as in a diffusion model, between convolutions."""
    first, second = (torch.nn.Conv2d(128, 128, 3, padding=1).to(dtype) for _ in range(2))
    norm, last = torch.nn.GroupNorm(32, 128).to(dtype), torch.nn.GroupNorm(32, 128).to(dtype)

    def block(x: torch.Tensor) -> torch.Tensor:
        h = second(F.silu(norm(first(x)))) + x
        return h * torch.sigmoid(last(h))

    return block, (torch.randn(2, 128, 32, 32, dtype=dtype),)


def mlp(activation: Callable[..., Any]) -> Case:
    up, gate, down = torch.nn.Linear(512, 2048), torch.nn.Linear(512, 2048), torch.nn.Linear(2048, 512)
    norm = torch.nn.LayerNorm(512)
    return (lambda x: x + down(activation(gate(norm(x))) * up(norm(x)))), (torch.randn(512, 512),)


def alike() -> Case:
    """A producer with two like consumers, which Inductor computes in one loop: the kernels cut it in three."""

    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = F.gelu(x)
        return h * y + 1, h * z + 1

    return function, tuple(torch.randn(512, 1024) for _ in range(3))


def heavy() -> Case:
    """The same with far more to compute."""

    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = torch.tanh(x)
        return torch.tanh(torch.tanh(h * y)), torch.tanh(torch.tanh(h * z))

    return function, tuple(torch.randn(512, 1024) for _ in range(3))


def long_chain() -> Case:
    """More element-wise calls than a region may hold."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(60):
            x = torch.relu(x * 1.01) + w
        return x

    return function, (torch.randn(512, 1024), torch.randn(512, 1024))


CASES: Mapping[str, Callable[[], Case]] = {
    "alike": alike,
    "heavy": heavy,
    "group_norm_f32": lambda: group_norm_block(torch.float32),
    "group_norm_bf16": lambda: group_norm_block(torch.bfloat16),
    "mlp_gelu": lambda: mlp(F.gelu),
    "mlp_silu": lambda: mlp(F.silu),
    "llama": llama,
    "llama_train": lambda: llama(train=True),
    "long_chain": long_chain,
}


def sites_in(case: Case) -> list[Site]:
    found: list[Site] = []

    def look(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        found.extend(sites_of(gm, inputs)[0])
        return gm.forward

    function, inputs = case
    torch._dynamo.reset()
    training = getattr(function, "training", False)
    with torch.enable_grad() if training else torch.no_grad():
        torch.compile(function, backend=look)(*inputs)
    return found


def flat(sites: Sequence[Site]) -> Iterator[Site]:
    for site in sites:
        yield site
        yield from flat(site.parts)


def alone(place: Bench, site: Site) -> Winner | str:
    """The first kernel of a region as a winner, or why it is none."""
    from accelopt_compile.evaluate import open_evaluator

    if why := place.backend.supports(site.workload):
        return why
    seed = place.backend.seed(site.workload)
    with (
        tempfile.TemporaryDirectory() as workdir,
        open_evaluator(
            site.workload, site.binding, backend=place.backend, threads=place.threads, seed=0, workdir=workdir
        ) as evaluator,
    ):
        verdict = evaluator.evaluate(seed, seed.defaults())
    if not isinstance(verdict, Accepted):
        return f"{verdict.stage.name}: {verdict.reason}"[:120]
    record = Record(
        outcome="winner",
        workload=site.workload.digest,
        target=place.target,
        binding=dict(site.binding),
        source=seed,
        tunables=seed.defaults(),
        timing=verdict.timing,
        environment=dict(place.environment),
    )
    return winner_of(record, site.workload)


def in_context(place: Bench, weighing: Weighing, site: Site, winners: Mapping[Choice, Winner]) -> dict[str, Any] | None:
    """One row: a region's context with the winners in it; None where there is nothing to compare."""
    if site.context is None or not any(s.choice in winners for s in (site, *site.parts)):
        return None
    members = [site.context["members"][k] for k in chosen(site.context["members"], winners)]
    kinds = list(dict.fromkeys(choice(*m["choice"]) for m in members))
    workload = Workload.from_json(site.context["workload"])
    edge, gain = rim(workload, [m["nodes"] for m in members]), sum(winners[choice(*m["choice"])].gain_us for m in members)
    started = time.perf_counter()
    context = site.context
    kept, paired = lightened(kinds, lambda some: weighing.weigh(context, members, winners, some, 120.0))
    assert paired is not None
    return {
        "in_context": paired.ratio,
        "interval": [paired.low, paired.high],
        "context_us": paired.base_us,
        "context_nodes": len(workload.nodes),
        "kernels": len(members),
        "rim_bytes": edge.stored + edge.shared,
        "rim_edges": edge.edges,
        "gain_us": gain,
        "at_risk": could_lose(edge, gain, machine().bandwidth_bytes_s),
        "kept": f"{len(kept)} of {len(kinds)}",
        "seconds": round(time.perf_counter() - started, 1),
    }


def measured(name: str, place: Bench, least: float) -> list[dict[str, Any]]:
    """The rows of one case."""
    sites = sites_in(CASES[name]())
    total = sum(site.cost for site in sites)
    worth = [site for site in sites if site.cost >= 0.01 * total]
    found = {site.choice: alone(place, site) for site in flat(worth)}
    winners = {k: w for k, w in found.items() if isinstance(w, Winner) and (t := w.record.timing) and t.low > least}
    rows = []
    with Weighing(place) as weighing:
        for site in worth:
            verdict = found[site.choice]
            timing = verdict.record.timing if isinstance(verdict, Winner) else None
            row: dict[str, Any] = {
                "case": name,
                "region": operators(site.workload),
                "count": site.count,
                "alone": None if timing is None else timing.speedup,
                "why": verdict if isinstance(verdict, str) else "" if site.choice in winners else "does not win alone",
            }
            try:
                row |= in_context(place, weighing, site, winners) or {}
            except Exception as failure:  # one context that cannot be compared is a row too
                row["why"] = f"{type(failure).__name__}: {failure}"[:200]
            print(line(row), flush=True)
            rows.append(row)
    return rows


def line(row: Mapping[str, Any]) -> str:
    alone = f"{row['alone']:.2f}x" if row["alone"] else "-"
    if "in_context" not in row:
        there = row["why"] or "nothing to fuse with"
    else:
        low, high = row["interval"]
        risk = "at risk" if row["at_risk"] else "no risk"
        there = (
            f"{row['in_context']:.2f}x [{low:.2f}, {high:.2f}] {row['kernels']} kernels, rim {row['rim_bytes'] >> 10} KiB "
            f"{row['rim_edges']} edges, {risk}, kept {row['kept']}, {row['seconds']} s"
        )
    return f"{row['case']:16} {row['region'][:44]:44} x{row['count']:<2} alone {alone:>6}  in context {there}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the two smallest cases")
    parser.add_argument("--only", default="", help="cases, with commas")
    arguments = parser.parse_args()
    names = [n for n in arguments.only.split(",") if n] or (list(CASES)[:2] if arguments.quick else list(CASES))
    torch.manual_seed(0)
    place = bench_for(settings_from())
    rows = [row for name in names for row in measured(name, replace(place), place.settings.min_speedup)]
    compared = [row for row in rows if "in_context" in row]
    losing = [row for row in compared if row["interval"][1] < 1.0]
    summary = {
        "regions": len(rows),
        "contexts": len(compared),
        "at_risk": sum(row["at_risk"] for row in compared),
        "losing": len(losing),
        "losing_unseen": sum(not row["at_risk"] for row in losing),
    }
    harness.write_result("in-context", {**summary, "rows": rows}, quick=arguments.quick)
    harness.finish("in-context", summary)


if __name__ == "__main__":
    main()
