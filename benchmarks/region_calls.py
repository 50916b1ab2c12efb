"""A case as plain calls, one per variant: ours, Inductor, Inductor with max-autotune, and eager.

Dynamo's and AOTAutograd's wrappers cost 50 to 100 us a call and are the same for every compiler, so they are left out on
all sides: the variant is compiled and run once by torch.compile, and what Inductor's runtime called meanwhile (the
generated `call` function of each graph, with its arguments) is called again from then on. Forward and backward
are replayed with the forward's real outputs; autograd's engine is left out of the compiled sides, eager needs it.
"""

from __future__ import annotations

import contextlib
import functools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from benchmarks.region_cases import Case, Problem

Call = Callable[[], Any]
Key = tuple[int, tuple[int, ...], tuple[int, ...]]
"""What tells a tensor: address, shape, strides."""
Fresh = Mapping[Key, Tensor]
"""The inputs of a case in new memory, by the original they replace."""

INDUCTOR: Mapping[str, dict[str, Any]] = {"inductor": {}, "max_autotune": {"max_autotune": True}}
"""Variant name to Inductor's options."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """`make` gives a call that uses these fresh inputs; `first` is what the first, recorded run computed."""

    name: str
    make: Callable[[Fresh], Call]
    first: Sequence[Tensor] = ()
    compile_s: float = 0.0


def key_of(x: Tensor) -> Key:
    return x.data_ptr(), tuple(x.shape), tuple(x.stride())


def renewed(x: Tensor) -> Tensor:
    """A copy of equal shape and strides in new memory."""
    with torch.no_grad():
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x.detach())


@dataclass(frozen=True, kw_only=True)
class Step:
    """One call of a compiled graph: its function, and what it was given and gave."""

    function: Callable[[list[Any]], Sequence[Any]]
    arguments: list[Any]
    results: Sequence[Any]


@contextlib.contextmanager
def recording() -> Iterator[list[Step]]:
    """The compiled graphs that Inductor's runtime calls meanwhile. One place of torch is wrapped: where a graph that was
    just compiled and one from the cache meet."""
    from torch._inductor.output_code import CompiledFxGraph

    steps: list[Step] = []
    original = CompiledFxGraph.__call__

    def call(graph: Any, inputs: Any) -> Any:
        given = list(inputs)  # the generated code empties its list
        results = original(graph, inputs)
        steps.append(Step(function=graph.current_callable, arguments=given, results=list(results)))
        return results

    with mock.patch.object(CompiledFxGraph, "__call__", call):
        yield steps


# ---------------------------------------------------------------- compiled variants


def run(function: Callable[..., Any], problem: Problem, case: Case, inputs: Sequence[Tensor]) -> list[Tensor]:
    """One run of a case by way of autograd where it has gradients: [result..., gradient...]."""
    leaves = [x.detach().requires_grad_(k in problem.wrt) for k, x in enumerate(inputs)]
    with torch.set_grad_enabled(case.mode != "inference"):
        computed = function(*leaves)
    results = [] if computed is None else list(computed) if isinstance(computed, tuple | list) else [computed]
    if not problem.wrt:
        return results
    gradients = torch.autograd.grad(results[0], [leaves[k] for k in problem.wrt], tangent(results[0]))
    return [results[0].detach(), *gradients]


def tangent(result: Tensor) -> Tensor:
    """The gradient that the backward of a case starts from: 1 for a loss, else noise from a fixed seed."""
    if result.dim() == 0:
        return torch.ones_like(result)
    generator = torch.Generator().manual_seed(1)
    return torch.randn(result.shape, generator=generator).to(result.dtype)


def compiled(name: str, case: Case, problem: Problem, **compile_arguments: Any) -> Variant:
    """The case under torch.compile, as a replay of the graphs it calls. Raises what compiling raises."""
    torch.compiler.reset()
    started = time.perf_counter()
    function = torch.compile(problem.function, dynamic=False, **compile_arguments)
    inputs = [renewed(x) for x in problem.inputs]  # cases that write to their inputs must not change the problem's
    run(function, problem, case, inputs)
    compile_s = time.perf_counter() - started
    inputs = [renewed(x) for x in problem.inputs]
    with recording() as steps:
        first = run(function, problem, case, inputs)
    if not steps:
        raise RuntimeError(f"{name}: nothing compiled was called")
    names = {key_of(ours): key_of(theirs) for ours, theirs in zip(inputs, problem.inputs, strict=True)}
    slots = _slots(steps[1:] if case.mode == "backward" else steps, names)
    first = first or inputs  # an optimizer's results are what it wrote
    return Variant(name=name, make=lambda fresh: _replay(slots, fresh), first=first, compile_s=compile_s)


@dataclass(frozen=True)
class _Given:
    """An argument that is an input of the case."""

    key: Key


@dataclass(frozen=True)
class _Made:
    """An argument that an earlier step makes."""

    step: int
    result: int


Slots = list[tuple[Callable[[list[Any]], Sequence[Any]], list[Any]]]
"""Per step its function, and per argument where it comes from (or the value itself)."""


def _slots(steps: Sequence[Step], names: Mapping[Key, Key]) -> Slots:
    made: dict[Key, _Made] = {}
    found: Slots = []
    for number, step in enumerate(steps):
        found.append((step.function, [_slot(a, names, made) for a in step.arguments]))
        made |= {key_of(r): _Made(number, k) for k, r in enumerate(step.results) if isinstance(r, Tensor)}
    return found


def _slot(a: Any, names: Mapping[Key, Key], made: Mapping[Key, _Made]) -> Any:
    if not isinstance(a, Tensor):
        return a
    key = key_of(a)
    return made[key] if key in made else _Given(names[key]) if key in names else a


def _replay(slots: Slots, fresh: Fresh) -> Call:
    """A call of all steps on fresh memory: inputs of the case from `fresh`, results of earlier steps handed on,
    everything else (gradients, what a forward that is not replayed has saved) copied."""
    plans = [(function, [_resolved(a, fresh) for a in arguments]) for function, arguments in slots]
    if len(plans) == 1:
        function, arguments = plans[0]
        return lambda: function(list(arguments))

    def call() -> Any:
        results: list[Sequence[Any]] = []
        for function, plan in plans:
            results.append(function([results[a.step][a.result] if isinstance(a, _Made) else a for a in plan]))
        return results

    return call


def _resolved(a: Any, fresh: Fresh) -> Any:
    return fresh[a.key] if isinstance(a, _Given) else renewed(a) if isinstance(a, Tensor) else a


# ---------------------------------------------------------------- eager


def eagers(case: Case, problem: Problem) -> list[Variant]:
    """The case without a compiler, in every way the problem names."""
    found = []
    for name, function in (problem.eagers or {"eager": problem.function}).items():
        inputs = [renewed(x) for x in problem.inputs]
        first = run(function, problem, case, inputs) or inputs
        found.append(Variant(name=name, make=functools.partial(_eager, function, case, problem), first=first))
    return found


def _eager(function: Callable[..., Any], case: Case, problem: Problem, fresh: Fresh) -> Call:
    inputs = [fresh[key_of(x)].detach().requires_grad_(k in problem.wrt) for k, x in enumerate(problem.inputs)]
    if case.mode == "inference":
        return lambda: function(*inputs)
    wanted = [inputs[k] for k in problem.wrt]
    with torch.enable_grad():
        result = function(*inputs)
    start = tangent(result.detach())
    if case.mode == "backward":
        return lambda: torch.autograd.grad(result, wanted, start, retain_graph=True)

    def both() -> Any:
        with torch.enable_grad():
            return torch.autograd.grad(function(*inputs), wanted, start)

    return both


def fresh_inputs(problem: Problem, generator: random.Random) -> Fresh:
    """The inputs in new memory at places that differ from call to call, shared by all variants of one block."""
    fresh = {}
    for x in problem.inputs:
        padding = torch.empty(generator.randrange(1, 64) * 1024, dtype=torch.uint8)
        fresh[key_of(x)] = renewed(x)
        del padding
    return fresh
