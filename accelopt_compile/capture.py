"""Dry capture: the graphs Inductor would compile for a module, collected before anything is compiled.

The whole of `compile_fx` runs up to code generation (pre-grad passes, AOTAutograd, joint passes, min-cut partitioner)
with an inner compiler that only keeps the graph. Each kept graph is then brought to the very state in which Inductor
hands it to `post_grad_custom_pre_pass`, so that a region found here has the digest that the pass finds later.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.fx import Graph, GraphModule

Role = Literal["inference", "forward", "backward"]


@dataclass(frozen=True, kw_only=True)
class CapturedGraph:
    """One graph of functional ATen, as `post_grad_custom_pre_pass` would see it. `gm` belongs to the capture."""

    role: Role
    gm: GraphModule

    @property
    def graph(self) -> Graph:
        return self.gm.graph


def capture(gm: GraphModule, example_inputs: Sequence[Any]) -> tuple[CapturedGraph, ...]:
    """The inference graph of `gm`, or its forward and backward graphs, in the order in which they were made.

    `gm` is a Dynamo graph and stays as it is, and so do counters, tracing context, RNG and the caches on disk.
    A backward that AOTAutograd would compile lazily is asked for at once. Raises whatever tracing raises.
    """
    from torch._inductor.compile_fx import compile_fx

    found: list[CapturedGraph] = []

    def keep(inner: GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Any:
        role: Role = "backward" if kwargs.get("is_backward") else "inference" if kwargs.get("is_inference") else "forward"
        if any(node.op.startswith("call_") for node in inner.graph.nodes):
            kept = prepare(copy_of(inner), inputs, is_inference=role == "inference")
            found.append(CapturedGraph(role=role, gm=kept))
        return _never_called

    with _leave_no_trace():
        compile_fx(copy_of(gm), list(example_inputs), inner_compile=keep)
    return tuple(found)


def prepare(gm: GraphModule, inputs: Sequence[Any], *, is_inference: bool) -> GraphModule:
    """Bring a graph given to an inner compiler to the state in which Inductor calls `post_grad_custom_pre_pass`.

    The steps of `_InProcessFxCompile.codegen_and_compile` and `post_grad_passes` of torch 2.13, in their order. Works
    in place and returns `gm`.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import fake_tensor_prop
    from torch._inductor.fx_passes.post_grad import reorder_for_locality, view_to_reshape

    view_to_reshape(gm)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        fake_tensor_prop(gm, inputs)
    if config.dce:
        gm.graph.eliminate_dead_code()
    if is_inference and config.reorder_for_locality:
        reorder_for_locality(gm.graph)
    return gm


def copy_of(gm: GraphModule) -> GraphModule:
    """Another graph over the same parameters. A deep copy would double the weights of a model held by its graph."""
    twin = GraphModule(gm, copy.deepcopy(gm.graph))
    twin.meta = dict(gm.meta)
    for old, new in zip(gm.graph.nodes, twin.graph.nodes, strict=True):
        new.meta = dict(old.meta)
    return twin


def _never_called(*args: Any) -> Any:
    raise RuntimeError("a dry capture was executed; it only collects graphs")


@contextlib.contextmanager
def _leave_no_trace() -> Iterator[None]:
    """Caches off, backward compiled at once; counters, tracing context and RNG as before afterwards."""
    from torch._dynamo.utils import counters, preserve_rng_state
    from torch._functorch import config as functorch_config
    from torch._guards import TracingContext
    from torch._inductor import config as inductor_config

    context = TracingContext.try_get()
    state = None if context is None else dict(vars(context))
    before = {name: copy.copy(counter) for name, counter in counters.items()}
    patches = {"fx_graph_cache": False, "fx_graph_remote_cache": False, "post_grad_custom_pre_pass": None}
    try:
        with (
            inductor_config.patch(patches),
            functorch_config.patch(enable_autograd_cache=False, force_non_lazy_backward_lowering=True),
            preserve_rng_state(),
        ):
            yield
    finally:
        counters.clear()
        counters.update(before)
        if context is not None and state is not None:
            vars(context).clear()
            vars(context).update(state)
