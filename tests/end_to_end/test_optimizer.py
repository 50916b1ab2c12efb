"""Optimizer steps compiled with adopted kernels: the same parameters as the step in eager, in one call a step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from planting import plant
from torch._dynamo.utils import counters

from accelopt_compile.launch import kernels

SHAPES = ((64, 64), (300,), (8, 4, 3, 3), (24, 10), (1,), (0, 3))


def pair(optimizer: type[torch.optim.Optimizer], **options: Any) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
    """Two optimizers over equal parameters and gradients, after one step that made their state."""
    made = []
    for _ in range(2):
        torch.manual_seed(1)
        parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]
        for p in parameters:
            p.grad = torch.randn_like(p)
        given = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in options.items()}
        made.append(optimizer(parameters, **given))
        made[-1].step()
    return made[0], made[1]


def everything(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Parameters and state tensors."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state = [value for p in parameters for value in optimizer.state[p].values() if isinstance(value, torch.Tensor)]
    return [*(p.detach() for p in parameters), *state]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "optimizer,options",
    [
        (torch.optim.AdamW, {"lr": torch.tensor(1e-2)}),
        (torch.optim.AdamW, {"lr": 1e-2, "foreach": True, "amsgrad": True}),
        (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9, "weight_decay": 0.1}),
    ],
)
def test_steps_as_in_eager(optimizer: type[torch.optim.Optimizer], options: dict[str, Any]) -> None:
    """Parameters of any shape share one kernel and one call; a single element and an empty tensor come out right, too. A
    learning rate in a tensor may change."""
    plain, compiled = pair(optimizer, **options)
    plant(pair(optimizer, **options)[1].step)  # takes a step
    step = torch.compile(compiled.step, backend="accelopt", options={"mode": "apply"})
    for k in range(3):
        if isinstance(options["lr"], torch.Tensor):
            for given in (plain, compiled):
                given.param_groups[0]["lr"].fill_(1e-2 / (k + 1))
        plain.step()
        step()
    for expected, actual in zip(everything(plain), everything(compiled), strict=True):
        torch.testing.assert_close(actual, expected, rtol=2e-5, atol=5e-6)  # Inductor alone: 1.4e-6
    assert 4 <= counters["accelopt"]["replaced"]
    (statistic,) = (s for s in kernels.statistics().values() if s["calls"] >= 12)
    assert "" == statistic["problem"]


def test_a_training_step_in_one_graph_updates_its_parameters() -> None:
    """Gradients that the graph computes itself are read by the update at its end."""

    def train(w: torch.Tensor, m: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        loss = (x @ w).square().mean()
        g = 2 * x.t() @ (x @ w) / (x.shape[0] * w.shape[1])
        m.mul_(0.9).add_(g)
        w.sub_(m * 0.1)
        return loss

    def state() -> list[torch.Tensor]:
        torch.manual_seed(2)
        return [torch.randn(40, 50), torch.randn(40, 50), torch.randn(30, 40)]

    with torch.no_grad():
        expected, actual = state(), state()
        plant(train, *state())
        compiled = torch.compile(train, backend="accelopt", options={"mode": "apply"})
        for _ in range(2):
            torch.testing.assert_close(compiled(*actual), train(*expected))
    for a, b in zip(expected, actual, strict=True):
        torch.testing.assert_close(b, a)
    assert any(s["calls"] == 2 for s in kernels.statistics().values())
