"""Regions of common models: found in every layer alike, equal to their references, replaceable."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from tests.regions.models import MODELS, Block, Checked, build, run

CASES = [("llama", False), ("bert", False), *((name, True) for name in MODELS)]


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("name", "training"), CASES)
def test_every_region_equals_its_reference_and_may_be_replaced_by_it(name: str, training: bool) -> None:
    """On the values of a real call; loss and gradients stay what eager gives, and layers share digests."""
    model, inputs = build(name)
    expected = run(model, inputs, training=training).loss.detach()
    grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    torch._dynamo.reset()
    checked = Checked()
    loss = run(torch.compile(model, backend=checked, dynamic=False), inputs, training=training).loss.detach()
    assert [] == checked.unsigned
    assert checked.worst < 2e-5
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    assert set(grads) == {n for n, p in model.named_parameters() if p.grad is not None}
    largest = max((float(g.abs().max()) for g in grads.values()), default=0.0)
    for n, p in model.named_parameters():
        if n in grads:
            torch.testing.assert_close(p.grad, grads[n], rtol=1e-4, atol=1e-6 * largest)
    counts = Counter(checked.digests)
    assert len(counts) <= 0.75 * len(checked.digests)


def test_symbolic_sizes_are_read_at_run_time() -> None:
    """One compilation with dynamic shapes serves several sizes, regions replaced by references, forward and backward."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    block, checked = Block(), Checked()
    compiled = torch.compile(block, backend=checked, dynamic=True)
    for batch, length in ((3, 10), (2, 7), (5, 33)):
        x = torch.randn(batch, length, 32)
        results = []
        for model in (block, compiled):
            block.zero_grad()
            loss = model(x).loss
            loss.backward()
            results.append((loss.detach(), [p.grad.clone() for p in block.parameters()]))
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-6)
    assert [] == checked.unsigned
    assert checked.worst < 2e-5
    assert 2 == checked.graphs
