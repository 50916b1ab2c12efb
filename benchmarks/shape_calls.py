"""What eager in float64 and compiled models compute at random shapes: output, loss and gradients, by name."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.utils import counters

from benchmarks.shape_errors import Exact


def compiled_calls(
    case: Any, arguments: Mapping[str, Any], shapes: Sequence[Mapping[str, int]], *, precision: str, training: bool
) -> tuple[list[dict[str, Any]], int]:
    """What a compiled model computes at each shape, and how many graphs Dynamo made for that."""
    torch._dynamo.reset()
    counters.clear()
    module = case.model(training=training)
    compiled = torch.compile(module, **arguments)
    results = []
    for number, sizes in enumerate(shapes):
        inputs = inputs_of(case, sizes, number, precision)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            results.append(one_call(module, compiled, inputs, training=training))
    return results, counters["stats"]["unique_graphs"]


def one_call(module: Any, function: Any, inputs: Sequence[Any], *, training: bool) -> dict[str, Any]:
    """{"output", "loss", "grad.<parameter>", "written.<input>"}: everything that a call computes, by name."""
    given = [t.clone() for t in inputs]
    with torch.set_grad_enabled(training):
        answer = function(*given)
    if not training:
        written = {f"written.{i}": new for i, (t, new) in enumerate(zip(inputs, given, strict=True)) if t.is_floating_point()}
        return {"output": answer, **written}
    output, loss = answer
    module.zero_grad()
    with torch.autocast("cpu", enabled=False):
        loss.backward()
    gradients = {f"grad.{name}": p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    return {"output": output.detach(), "loss": loss.detach(), **gradients}


def inputs_of(case: Any, sizes: Mapping[str, int], number: int, precision: str) -> tuple[Any, ...]:
    """The inputs of a shape, equal for all variants."""
    inputs: tuple[Any, ...] = case.inputs(sizes, torch.Generator().manual_seed(number))
    return inputs if precision == "fp32" else case.under_autocast(inputs)


def references(case: Any, shapes: Sequence[Mapping[str, int]], *, precision: str, training: bool) -> list[dict[str, Any]]:
    """The same in float64, without autocast."""
    module = copy.deepcopy(case.model(training=training)).double()
    results = []
    for number, sizes in enumerate(shapes):
        inputs = inputs_of(case, sizes, number, precision)
        with Exact():
            results.append(
                one_call(module, module, [t.to(torch.float64) if t.is_floating_point() else t for t in inputs], training=training)
            )
    return results
