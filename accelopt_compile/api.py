"""What users call besides torch.compile: `prewarm`, `stats`, `explain`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accelopt_compile.config import settings_from
from accelopt_compile.outcomes import CompileReport, RegionReport, as_json, reports
from accelopt_compile.wording import plural

NOTHING_COMPILED = (
    "nothing was compiled: this process has compiled all of it with these settings; torch._dynamo.reset() makes it compile again"
)


@dataclass(frozen=True, kw_only=True)
class PrewarmReport:
    """What a prewarm left in the store: one report per graph, none for what the process had compiled with the same settings
    before, as Dynamo then does not ask again (`torch._dynamo.reset()` makes it). `hits` counts distinct regions with a kernel,
    `candidates` those whose kernels wait for their device."""

    compiles: Sequence[CompileReport]

    @property
    def regions(self) -> tuple[RegionReport, ...]:
        return tuple(region for compile_ in self.compiles for region in compile_.regions)

    @property
    def hits(self) -> int:
        return sum(region.outcome in ("HIT", "TUNED") for region in self.regions)

    @property
    def candidates(self) -> int:
        return sum(region.outcome == "CANDIDATE" for region in self.regions)

    def __str__(self) -> str:
        return "\n".join(_lines(self.compiles)) or NOTHING_COMPILED


def prewarm(model: Any, inputs: Any, *, budget_s: float | None = None, backward: bool = False, **settings: Any) -> PrewarmReport:
    """Compile `model` for `inputs` and tune its regions, so that later processes find everything in the store.

    `inputs` is one example (a tensor, a tuple of positional or a dict of keyword arguments) or a list of examples.
    The mode is `tune`, whatever the environment or pyproject.toml says, unless it is given. `budget_s` is for each graph;
    `backward` also runs the backward of the summed outputs. The model's buffers (running means), all gradients and torch's random
    numbers are afterwards as they were; what hooks of the model do stays done. Raises UnknownOption and InvalidOption, and what
    the model raises.
    """
    import torch

    from accelopt_compile.authors import check_authors

    options = {"mode": "tune", **settings} | ({} if budget_s is None else {"budget_s": budget_s})
    chosen = settings_from(options)  # what is wrong fails here, in the caller's words, not inside torch.compile
    if chosen.mode == "tune":
        check_authors(chosen)
    before = reports.added
    compiled: Any = torch.compile(model, backend="accelopt", options=options)
    for example in inputs if isinstance(inputs, list) else [inputs]:
        args, kwargs = _arguments(example)
        with _unchanged(model, example), torch.set_grad_enabled(backward):
            result = compiled(*args, **kwargs)
            loss: Any = _total(result) if backward else None
            if getattr(loss, "requires_grad", False):
                loss.backward()
    return PrewarmReport(compiles=reports.since(before))


def stats() -> dict[str, Any]:
    """Counts of this process as plain JSON: graphs, regions by outcome, kernels launched with their calls and fallbacks."""
    from accelopt_compile.launch import kernels

    seen = reports.all()
    regions = [region for report in seen for region in report.regions]
    launched = kernels.statistics()
    return {
        "graphs": len(seen),
        "warm_graphs": sum(report.warm for report in seen),
        "problems": [report.problem for report in seen if report.problem],
        "regions": dict(Counter(region.outcome for region in regions)),
        "seconds": sum(report.seconds for report in seen),
        "kernels": launched,
        "calls": sum(one["calls"] for one in launched.values()),
        "fallbacks": sum(one["fallbacks"] for one in launched.values()),
    }


def explain(*, structured: bool = False) -> Any:
    """What became of every region that this process compiled, and why the rest was left to Inductor: a text, or with
    `structured` a list of plain JSON objects, one per graph."""
    seen = reports.all()
    return [as_json(report) for report in seen] if structured else "\n".join(_lines(seen)) or "nothing has been compiled"


def _lines(seen: Sequence[CompileReport]) -> Iterator[str]:
    for number, report in enumerate(seen, 1):
        how = "known graph" if report.warm else "captured"
        yield f"graph {number}: {report.graph[:12] or '-'} {report.mode} {report.target} ({how}, {report.seconds:.1f} s)"
        if report.problem:
            yield f"  Inductor alone, because: {report.problem}"
        yield from (f"  {region.line()}" for region in report.regions)
        for reason, nodes in sorted(report.refused.items(), key=lambda item: (-item[1], item[0])):
            yield f"  left to Inductor: {plural(nodes, 'node')}: {reason}"


def _arguments(example: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(example, Mapping):
        return (), dict(example)
    return (example if isinstance(example, tuple) else (example,)), {}


def _total(result: Any) -> Any:
    """The sum of all floating-point tensors in a result, as the scalar to differentiate."""
    import torch
    from torch.utils._pytree import tree_leaves

    if hasattr(result, "loss") and isinstance(result.loss, torch.Tensor):
        return result.loss
    return sum(t.float().sum() for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad)


@contextlib.contextmanager
def _unchanged(model: Any, example: Any) -> Iterator[None]:
    """Run the model within, and find buffers, gradients and random numbers afterwards as they were."""
    import torch
    from torch.nn.parameter import is_lazy
    from torch.utils._pytree import tree_leaves

    module = model if isinstance(model, torch.nn.Module) else torch.nn.Module()
    given = [leaf for leaf in tree_leaves(example) if isinstance(leaf, torch.Tensor) and leaf.is_leaf]
    gradients = [(tensor, tensor.grad) for tensor in (*module.parameters(), *given)]
    named = [(inner, dict(inner._buffers)) for inner in module.modules()]
    written = (buffer for buffer in module.buffers() if not (is_lazy(buffer) or buffer.is_inference() or buffer.is_meta))
    values = [(buffer, buffer.detach().clone()) for buffer in written]
    for tensor, _ in gradients:
        tensor.grad = None
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        try:
            yield
        finally:
            for tensor, grad in gradients:
                tensor.grad = grad
            for inner, buffers in named:
                inner._buffers.clear()
                inner._buffers.update(buffers)
            with torch.no_grad():
                for buffer, value in values:
                    # What is written to without need, a pending backward may still need; sparse ones cannot be compared.
                    if buffer.layout is not torch.strided or not torch.equal(buffer, value):
                        buffer.copy_(value)
