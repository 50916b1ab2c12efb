"""Can the cases of a workload tell right from wrong at all? Asked once when a session opens, never per candidate.

Impostors are tried instead of kernels: zeros, the mean of the golden answer, any input of the output's shape, the answer
to another seed. An output is told apart where every impostor is refused in at least one case. An input counts where the
answer to it drawn anew, all others kept, is refused in at least one case. Covered: workloads whose answer hardly depends
on anything. Not covered: a kernel that is wrong where no family of inputs reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from accelopt_compile.evaluate.answers import Answer, Answers, Case, one_thread
from accelopt_compile.evaluate.compare import Expected, Picked, judge
from accelopt_compile.evaluate.reference import reference_module
from accelopt_compile.records import Binding, Workload, refs_of

FAMILIES = ("normal", "offset", "logits", "small_ints")
"""Tried in this order until nothing is open; the first usually settles all."""
OTHER_SEED = 0x5EED


def why_uninformative(workload: Workload, answers: Answers, binding: Binding, *, seed: int, probes: int = 6) -> list[str]:
    """What no case at `binding` (a small one) can tell, a sentence each; empty when all can be told. Costs a few golden
    answers, which `answers` keeps."""
    outputs = {k for k in range(len(workload.outputs)) if _depends(workload, k)}
    inputs = set(range(len(workload.inputs)))
    passed: dict[int, str] = {}
    last = "no family of inputs was tried"
    for family in FAMILIES:
        case = Case(tuple(sorted(binding.items())), family, seed)
        answer, other = (answers.get(c, probes=probes) for c in (case, replace(case, seed=seed ^ OTHER_SEED)))
        if not isinstance(answer, Answer) or not isinstance(other, Answer):
            last = next(a for a in (answer, other) if isinstance(a, str))
            continue
        last = ""
        for k in sorted(outputs):
            fooled = next((name for name, fake in _impostors(k, answer, other) if not _refused(fake, answer.expected[k])), "")
            if fooled:
                passed[k] = fooled
            else:
                outputs.discard(k)
        inputs -= _influential(workload, binding, answer, other, inputs)
        if not outputs and not inputs:
            return []
    if last:
        return [f"no case has an answer: {last}"]
    return [f"output {k}: {passed[k]} would pass in every case" for k in sorted(outputs)] + [
        f"input {k} changes no output beyond rounding" for k in sorted(inputs)
    ]


def _depends(workload: Workload, output: int) -> bool:
    """Whether an output depends on any input."""
    open_, seen = [workload.outputs[output]], set()
    while open_:
        ref = open_.pop()
        if ref.kind == "i":
            return True
        if ref.index not in seen:
            seen.add(ref.index)
            node = workload.nodes[ref.index]
            open_ += [r for a in (*node.args, *(v for _, v in node.kwargs)) for r in refs_of(a)]
    return False


def _impostors(output: int, answer: Answer, other: Answer) -> Iterator[tuple[str, torch.Tensor]]:
    """Results that need no kernel. What equals eager bit for bit is none: a copy is right to return its input."""
    right = _eager(answer.expected[output])
    yield "the answer to another seed", _eager(other.expected[output])
    yield "zeros", torch.zeros_like(right)
    if right.is_floating_point() and right.numel() > 1:
        yield "the mean", torch.full_like(right, float(torch.nan_to_num(right.double()).mean()))
    for k, given in enumerate(answer.inputs):
        if given.shape == right.shape and given.dtype == right.dtype and not torch.equal(given, right):
            yield f"input {k}", given.contiguous()


def _eager(expected: Expected) -> torch.Tensor:
    return expected.positions if isinstance(expected, Picked) else expected.eager


def _refused(fake: torch.Tensor, expected: Expected) -> bool:
    return fake.numel() == 0 or bool(judge([fake], [expected]).fault)


def _influential(workload: Workload, binding: Binding, answer: Answer, other: Answer, inputs: set[int]) -> set[int]:
    """Those of `inputs` that, taken from another draw, give an answer that is refused."""
    program = reference_module(workload, binding)
    found = set()
    for k in sorted(inputs):
        given = [o if n == k else a for n, (a, o) in enumerate(zip(answer.inputs, other.inputs, strict=True))]
        with torch.no_grad(), one_thread():
            try:
                results = [r.contiguous() for r in program(*given)]
            except (RuntimeError, IndexError):
                continue
        if not answer.inputs[k].numel() or any(map(_refused, results, answer.expected)):
            found.add(k)
    return found
