"""Optimizer steps and other in-place updates: one workload for tensors of every shape, and nothing that would not be safe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from accelopt_compile.capture import CapturedGraph, capture
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.foreach import expand
from accelopt_compile.graph_pass import signature_of
from accelopt_compile.in_place import Update, pooled, updates_of
from accelopt_compile.partition import partition
from accelopt_compile.records import Workload

SHAPES = ((64, 64), (128,), (8, 4, 3, 3), (24, 10))


def graph_of(function: Callable[..., Any], *inputs: Any) -> CapturedGraph:
    """The one graph that torch.compile makes of `function`."""
    found: list[CapturedGraph] = []

    def look(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        found.extend(capture(gm, example_inputs))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(function, backend=look)(*inputs)
    (captured,) = found
    return captured


def updates(captured: CapturedGraph) -> list[Update]:
    expand(captured.graph)
    captured.graph.lint()
    return list(updates_of([(r, signature_of(r)) for r in partition(captured.graph).regions]).values())


def step_of(optimizer: type[torch.optim.Optimizer], **options: Any) -> Callable[[], Any]:
    """A step over parameters of several shapes, one of them in channels-last order, with its state made."""
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    parameters[2].data = parameters[2].data.to(memory_format=torch.channels_last)
    for p in parameters:
        p.grad = torch.randn_like(p)
    made = optimizer(parameters, **options)
    made.step()
    return made.step


@pytest.mark.parametrize(
    "optimizer,options,outputs",
    [
        (torch.optim.AdamW, {}, 4),
        (torch.optim.AdamW, {"lr": torch.tensor(1e-3), "amsgrad": True}, 5),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}, 2),
        (torch.optim.RMSprop, {"foreach": True}, 2),
        (torch.optim.Adadelta, {}, 3),
    ],
)
def test_a_step_is_one_workload_for_parameters_of_every_shape(
    optimizer: type[torch.optim.Optimizer], options: dict[str, Any], outputs: int
) -> None:
    """Its outputs lie over the parameter and its state; it is measured at the elements of all parameters together."""
    found = updates(graph_of(step_of(optimizer, **options)))
    workloads = {u.signed.workload for u in found}
    assert [4096, 128, 288, 240] == [u.elements for u in found]
    assert 1 == len(workloads)
    (workload,) = workloads
    assert list(range(outputs)) == [out for out, _ in workload.aliases]
    assert {workload.digest: {"s0": 4096 + 128 + 288 + 240}} == pooled(found)
    assert workload == Workload.from_json(workload.to_json())


def test_foreach_calls_are_spelled_out() -> None:
    """The same values come out of the expanded graph."""
    captured = graph_of(step_of(torch.optim.AdamW, foreach=True))
    inputs = [torch.randn(n.meta["val"].shape).abs() for n in captured.graph.nodes if n.op == "placeholder"]
    before = [x.clone() for x in inputs]
    captured.gm(*before)
    assert 10 < expand(captured.graph)
    assert not any("_foreach" in str(n.target) for n in captured.graph.nodes)
    captured.gm.recompile()
    after = [x.clone() for x in inputs]
    captured.gm(*after)
    for x, y in zip(before, after, strict=True):
        torch.testing.assert_close(y, x, rtol=1e-6, atol=1e-7, equal_nan=True)


def read_again(p: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    total = p.sum()
    p.mul_(0.9).add_(g, alpha=-0.1)
    return total


def returned(p: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    new = p * 0.9 - g
    p.copy_(new)
    return new + 0


def whole_rows(p: torch.Tensor, g: torch.Tensor) -> None:
    p.sub_(p.mean(-1, keepdim=True)).add_(g)


def turned(p: torch.Tensor, g: torch.Tensor) -> None:
    p.mul_(0.9).add_(g.t(), alpha=-0.1)


def shifted(p: torch.Tensor, g: torch.Tensor) -> None:
    p.copy_(torch.roll(p, 1, 0) * 0.9 + g)


def one_row(p: torch.Tensor, g: torch.Tensor) -> None:
    p.mul_(g[0]).add_(1.0)


@pytest.mark.parametrize("function", [read_again, returned, whole_rows, turned, shifted, one_row])
def test_what_depends_on_more_than_its_own_elements_is_no_update(function: Callable[..., Any]) -> None:
    """Another reader of the old values, a value that is also returned, other elements, other layouts."""
    assert [] == updates(graph_of(function, torch.randn(64, 64), torch.randn(64, 64)))


def test_an_alias_of_tensors_that_differ_is_no_workload() -> None:
    """Records from elsewhere are checked."""
    (update, *_) = updates(graph_of(step_of(torch.optim.AdamW)))
    for alias in ([0, 0], [9, 0], [0, 99]):
        document = update.signed.workload.to_json()
        document["aliases"] = [alias, *document["aliases"][1:]]
        if alias == [0, 0]:
            document["output_specs"][0] = ["bf16", ["s0"], [1]]
        with pytest.raises(InvalidRecord):
            Workload.from_json(document)
