"""The dry capture sees what the pass will see, and leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.exc import InductorError

from accelopt_compile.capture import capture
from accelopt_compile.partition import partition
from accelopt_compile.signature import try_sign
from tests.regions.models import Block, build, run


def digests_of(graph: torch.fx.Graph) -> list[str]:
    signed = [try_sign(region) for region in partition(graph).regions]
    return [s if isinstance(s, str) else s.workload.digest for s in signed]


class _Stop(Exception):
    """Ends a real compilation after the pass."""


class _Pass(CustomGraphPass):
    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def __call__(self, graph: torch.fx.Graph) -> None:
        self.seen.append(digests_of(graph))
        raise _Stop

    def uuid(self) -> str:
        return "test"


def compare_with_the_pass(model: Callable[..., Any], inputs: dict[str, Any], *, training: bool, dynamic: bool) -> list[list[str]]:
    """Compile for real up to the pass beside a dry capture; returns the digests per graph after asserting that they agree."""
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    found: list[list[str]] = []
    real = _Pass()

    def until_the_pass(gm: torch.fx.GraphModule, example_inputs: list[Any], **kwargs: Any) -> Any:
        with pytest.raises(InductorError, match="_Stop"):
            compile_fx_inner(gm, example_inputs, **kwargs)
        return lambda *args: None

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        found.extend(digests_of(g.graph) for g in capture(gm, example_inputs))
        patches = {"post_grad_custom_pre_pass": real, "fx_graph_cache": False}
        with torch._functorch.config.patch(force_non_lazy_backward_lowering=True, enable_autograd_cache=False):
            compile_fx(torch.fx.GraphModule(gm, gm.graph), example_inputs, inner_compile=until_the_pass, config_patches=patches)
        return gm.forward

    torch._dynamo.reset()
    run(torch.compile(model, backend=backend, dynamic=dynamic), inputs, training=training)
    assert real.seen == found
    return found


@pytest.mark.sweep(2)
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_a_dry_capture_finds_the_digests_that_the_pass_finds(training: bool) -> None:
    """Two layers of Llama, static shapes."""
    model, inputs = build("llama")
    graphs = compare_with_the_pass(model, inputs, training=training, dynamic=False)
    assert (2 if training else 1) == len(graphs)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_with_dynamic_shapes_too(training: bool) -> None:
    """A block with attention, norm and a gated product, all sizes symbolic."""

    graphs = compare_with_the_pass(Block(), {"x": torch.randn(3, 10, 32)}, training=training, dynamic=True)
    assert (2 if training else 1) == len(graphs)
    assert all(len(graph) >= 3 for graph in graphs)


def test_capture_leaves_no_trace() -> None:
    """Graph, counters, configuration, tracing context and random numbers are as they were."""
    from torch._guards import TracingContext

    states: list[Any] = []

    def state(gm: torch.fx.GraphModule) -> Any:
        context = TracingContext.get()
        return (
            str(gm.graph),
            {k: dict(v) for k, v in counters.items()},
            torch._inductor.config.get_config_copy(),
            torch._functorch.config.get_config_copy(),
            dict(vars(context)),
            torch.get_rng_state().tolist(),
        )

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        states.append(state(gm))
        roles = [g.role for g in capture(gm, example_inputs)]
        assert ["forward", "backward"] == roles
        states.append(state(gm))
        return gm.forward

    torch._dynamo.reset()
    x = torch.randn(4, 8, requires_grad=True)
    torch.compile(lambda x: torch.nn.functional.dropout(x, 0.5).softmax(-1).sum(), backend=backend)(x).backward()
    before, after = states
    assert before == after
