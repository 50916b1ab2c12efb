"""A part of a graph compiled by Inductor twice, with kernels in the place of some regions and without, and timed in turns.

Runs in a process of its own (`sandbox/child.py`, role "scales") that may die. What it loads has been verified and is about
to run in the user's process as it is, so it stands behind no walls.
"""

from __future__ import annotations

import functools
import importlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node

from accelopt_compile import winners
from accelopt_compile.evaluate import timing
from accelopt_compile.evaluate.baseline import compiled_with_inductor, fake_inputs
from accelopt_compile.evaluate.bench import keep_freed_memory
from accelopt_compile.evaluate.inputs import make_inputs
from accelopt_compile.evaluate.reference import reference_module
from accelopt_compile.evaluate.roles import roles
from accelopt_compile.launch import kernels, lowering
from accelopt_compile.literal import calls_of, with_formats
from accelopt_compile.records import Artifact, Ref, Workload, ref_from

Compiled = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]

MOST_PADDING = 64
"""Kilobytes by which buffers are set apart, at random, so that their placement differs from block to block."""


class Scales:
    """Answers {"op": "compare", "context": workload, "replaced": [kernels and where they go], "threads", "seed", "protocol"}
    with {"paired": a `timing.Paired`}. The context without kernels is compiled once."""

    def __init__(self) -> None:
        lowering.install()  # as in the user's process: through the dispatcher a call costs 20 us more
        keep_freed_memory()
        self._plain: tuple[str, Compiled] | None = None

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        if message["op"] != "compare":
            return {"error": f"unknown request {message['op']!r}"}
        torch.set_grad_enabled(False)
        torch.set_num_threads(message["threads"])  # Inductor writes the number into its code
        workload = Workload.from_json(message["context"])
        if self._plain is None or self._plain[0] != workload.digest:
            self._plain = (workload.digest, compiled_with_inductor(module_of(workload), fake_inputs(workload, {})))
        replaced = [Replaced(data) for data in message["replaced"]]
        if why := next((why for r in replaced if (why := kernels.ready(r.key))), ""):
            return {"error": f"a kernel {why}"}
        ours = compiled_with_inductor(with_kernels(workload, replaced), fake_inputs(workload, {}))
        makers = Makers(workload, seed=message["seed"])
        rig = timing.LocalRig(makers.of(ours), makers.of(self._plain[1]), timing.clock_for(message["threads"]))
        paired = timing.measure(
            rig,
            timing.Protocol(**message["protocol"]),
            contended=timing.contended(message["threads"]),
            generator=random.Random(message["seed"]),
        )
        if any(kernels.statistics()[r.key]["fallbacks"] for r in replaced):
            return {"error": "a kernel declined the context's inputs, and eager was timed in its place"}
        return {"paired": asdict(paired)}


class Makers:
    """Fresh buffers for each block of a timing."""

    def __init__(self, workload: Workload, *, seed: int) -> None:
        self._given = make_inputs(workload, {}, "normal", seed, roles(workload, {}))
        self._random = random.Random(seed)

    def of(self, compiled: Compiled) -> timing.Maker:
        def make() -> timing.Call:
            inputs = []
            for x in self._given:
                padding = torch.empty(self._random.randrange(1, MOST_PADDING) * 1024, dtype=torch.uint8)
                inputs.append(_copied(x))
                del padding
            return lambda: compiled(list(inputs))

        return make


def _copied(x: torch.Tensor) -> torch.Tensor:
    """The same values in the same layout; an expanded dimension stays one."""
    span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
    flat = x.as_strided((span,), (1,)).clone()
    return flat.as_strided(x.shape, x.stride())


class Replaced:
    """A kernel, adopted in this process, and the place in a context where it goes."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.key = str(data["key"])
        self.workload = Workload.from_json(data["workload"])
        self.sizes = [int(data["binding"][name]) for name in self.workload.symbols]
        self.nodes = [int(k) for k in data["nodes"]]
        self.inputs = [ref_from(text) for text in data["inputs"]]
        self.outputs = [ref_from(text) for text in data["outputs"]]
        module, _, attribute = data["backend"].partition(":")
        artifact = Artifact(**data["artifact"])
        kernels.adopt(
            kernels.Adopted(
                key=self.key,
                workload=self.workload,
                load=lambda: winners.loaded(artifact, getattr(importlib.import_module(module), attribute)()),
                reference=winners.reference_of(self.workload),
                directory=Path(data["launcher"]),
                kernel_us=float(data["kernel_us"]),
            )
        )


def module_of(workload: Workload) -> GraphModule:
    """A context's calls, each with its fake value."""
    from torch._inductor.compile_fx import fake_tensor_prop

    module = with_formats(reference_module(workload, {}))
    with torch.no_grad():
        fake_tensor_prop(module, fake_inputs(workload, {}))
    return module


def with_kernels(workload: Workload, replaced: Sequence[Replaced]) -> GraphModule:
    """The same with a call of each kernel in the place of its region."""
    from accelopt_compile.graph_pass import call_kernel
    from accelopt_compile.regions import Region
    from accelopt_compile.replace import finish, replace_region
    from accelopt_compile.signature import Signed

    module = module_of(workload)
    inputs, calls = [n for n in module.graph.nodes if n.op == "placeholder"], calls_of(module)

    def value(ref: Ref) -> Node:
        call: Node = inputs[ref.index] if ref.kind == "i" else calls[ref.index]
        if not isinstance(call.meta["val"], tuple | list):
            return call
        results: dict[Any, Node] = {user.args[1]: user for user in call.users}
        return results[ref.output]

    for one in replaced:
        own = [calls[k] for k in one.nodes]
        items = [user for call in own if isinstance(call.meta["val"], tuple | list) for user in call.users]
        region = Region(
            nodes=tuple(sorted([*own, *items])),
            inputs=tuple(value(r) for r in one.inputs),
            outputs=tuple(value(r) for r in one.outputs),
        )
        signed = Signed(
            workload=one.workload,
            binding={},
            input_order=tuple(range(len(one.inputs))),
            output_order=tuple(range(len(one.outputs))),
            symbol_exprs=(),
        )
        make = functools.partial(_sized, functools.partial(call_kernel, region, signed, one.key), one.sizes)
        replace_region(module.graph, region, signed, make)
    finish(module.graph)
    return module


def _sized(make: Any, sizes: Sequence[int], graph: Any, inputs: Any, _: Any) -> Any:
    return make(graph, inputs, sizes)
