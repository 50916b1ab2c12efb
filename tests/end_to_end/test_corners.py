"""Programs that were wrong once: what a region reads is written elsewhere, sizes are equal by chance, a result has views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import planting
import pytest
import torch

from accelopt_compile.launch import kernels

APPLY: dict[str, Any] = {"backend": "accelopt", "options": {"mode": "apply"}}


def step_and_rate(p: torch.Tensor, m: torch.Tensor, g: torch.Tensor, lr: torch.Tensor) -> None:
    m.mul_(0.9).add_(g)
    p.sub_(lr * m)
    lr.mul_(0.5)


def average_of_the_old(p: torch.Tensor, ema: torch.Tensor, g: torch.Tensor) -> None:
    ema.mul_(0.9).add_(p * 0.1)
    p.sub_(g * 0.5)


def leapfrog(x: torch.Tensor, v: torch.Tensor, f: torch.Tensor) -> None:
    x.add_(v.tanh() * 0.1)
    v.mul_(0.99).add_(f)


def average_of_a_view(p: torch.Tensor, ema: torch.Tensor, g: torch.Tensor) -> None:
    ema.mul_(0.9).add_(p.view(64, 64) * 0.1)
    p.sub_(g * 0.5)


STEPS: dict[str, tuple[Callable[..., None], tuple[tuple[int, ...], ...]]] = {
    "a rate that changes after its use": (step_and_rate, ((64, 64), (64, 64), (64, 64), ())),
    "an average of what is overwritten": (average_of_the_old, ((64, 64),) * 3),
    "two that read each other": (leapfrog, ((64, 64),) * 3),
    "a view of what is overwritten": (average_of_a_view, ((4096,), (64, 64), (4096,))),
}


@pytest.mark.parametrize("name", STEPS)
def test_an_update_reads_what_was_there_before(name: str) -> None:
    """It comes at the end of the graph: whatever else writes to what it reads has done so by then."""
    step, shapes = STEPS[name]
    ours, eager = ([torch.full(s, 0.3) for s in shapes] for _ in range(2))
    with torch.no_grad():
        planting.plant(step, *(t.clone() for t in eager))
        torch.compile(step, **APPLY)(*ours)
        step(*eager)
    torch.testing.assert_close(ours, eager)


def checked(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """The compiled function with its seeds planted, which ran; right on these inputs."""
    planting.plant(function, *inputs)
    torch._dynamo.reset()
    compiled = torch.compile(function, **APPLY)
    torch.testing.assert_close(compiled(*inputs), function(*inputs))
    assert any(kernel["calls"] for kernel in kernels.statistics().values())
    return compiled


@pytest.mark.parametrize("operator", [torch.add, torch.sub, torch.rsub])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_alpha_is_multiplied_in_the_result_s_dtype(operator: Any, dtype: torch.dtype) -> None:
    """Twice a uint8 of 200 is 400 beside a float32."""
    y = torch.full((256, 512), 120).to(dtype)
    checked(lambda x, y: torch.relu(operator(x, y, alpha=2)), torch.zeros(256, 512), y)


@pytest.mark.parametrize("alpha", [0, 2])
def test_alpha_of_truth_values_is_one(alpha: int) -> None:
    """They are added as truth values."""
    x, y = (torch.arange(256 * 512).view(256, 512) % n == 0 for n in (2, 3))
    checked(lambda x, y: torch.where(torch.add(x, y, alpha=alpha), 2.0, 3.0), x, y)


def test_rows_that_were_as_many_by_chance_need_not_be_so_again() -> None:
    """gather asks for no more rows of positions than there are; the output has as many as there are positions."""
    x, at = torch.randn(64, 512), torch.randint(0, 512, (64, 1))
    for tensor in (x, at):
        torch._dynamo.mark_dynamic(tensor, 0)
    function = lambda x, at: torch.log_softmax(x * 2, -1).gather(1, at)  # noqa: E731
    planting.plant(function, x, at)
    compiled = torch.compile(function, **APPLY)
    for rows in (64, 4096, 65):
        x = torch.randn(rows, 512)
        torch.testing.assert_close(compiled(x, at), function(x, at))


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "regrouped": lambda y: y.view(-1),
    "turned": lambda y: y.t(),
    "a view of a view": lambda y: y.view(-1, 64).t(),
    "the first part": lambda y: y.split([128, 128])[0],
    "the first of three": lambda y: y.view(256, 4, 128).unbind(1)[0],
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_a_result_stays_one(name: str) -> None:
    """As in eager and Inductor: what is written to the one is seen in the other."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(x * 2 + 1)
        v = VIEWS[name](y)
        return y, v, v.sin()

    with torch.no_grad():
        y, v, _ = checked(function, torch.randn(256, 512))(torch.randn(256, 512))
        assert y.data_ptr() == v.data_ptr()


def test_what_a_kernel_computes_is_not_computed_again_beside_it() -> None:
    """A wide copy of a short result, read by regions without kernels, is made of the kernel's result."""
    from torch._inductor.utils import run_and_get_code

    def function(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = torch.tanh(a) + b
        wide = h.float()
        one, two = ((wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + e)).bfloat16() for e in (1e-5, 1e-6))
        return h @ w, one @ w, two @ w

    a, b, w = torch.randn(512, 256).bfloat16(), torch.randn(512, 256).bfloat16(), torch.randn(256, 256).bfloat16()
    with torch.no_grad():
        place = planting.bench()
        sites = [s for s in planting.sites_seen(function, a, b, w) if any("tanh" in node.op for node in s.workload.nodes)]
        planting.plant_sites(place, sites[:1])
        torch._dynamo.reset()
        found, code = run_and_get_code(torch.compile(function, **APPLY), a, b, w)
        torch.testing.assert_close(found, function(a, b, w), rtol=5e-2, atol=0.5)
    assert any("accelopt" in text for text in code)
    assert not any("tanh()" in text for text in code)


def sampled_around(x: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Two draws, the first of a region's early result; its last comes after both."""
    a = torch.softmax(x, -1)
    first, second = torch.multinomial(a, 1), torch.multinomial(q, 1)
    return first, second, -(a * (a + 1e-9).log()).sum(-1)


def test_random_draws_keep_their_order() -> None:
    """The one call of a region stands behind its last node: what reads an early result of it would draw later."""
    x, q = torch.randn(64, 1000), torch.rand(64, 1000)
    with torch.no_grad(), torch._inductor.config.patch(fallback_random=True):
        planting.plant(sampled_around, x, q)
        compiled = torch.compile(sampled_around, **APPLY)
        torch.manual_seed(0)
        found = compiled(x, q)
        torch.manual_seed(0)
        wanted = sampled_around(x, q)
    assert kernels.statistics()
    assert torch.equal(wanted[0], found[0])
    assert torch.equal(wanted[1], found[1])
    torch.testing.assert_close(wanted[2], found[2])


def test_divisions_by_either_zero_are_two_kernels() -> None:
    """0.0 == -0.0 as numbers; updates by them are not."""
    for zero, wanted in ((0.0, torch.inf), (-0.0, -torch.inf)):

        def divided(p: torch.Tensor, by: float = zero) -> None:
            p.div_(by)

        p = torch.ones(8192)
        with torch.no_grad():
            planting.plant(divided, p.clone())
            torch._dynamo.reset()
            torch.compile(divided, **APPLY)(p)
        assert bool((p == wanted).all()), zero
