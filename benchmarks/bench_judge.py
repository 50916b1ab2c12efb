"""The judge alone: right ways to compute an operator must all pass, wrong ones must fall somewhere, on every input family.

    python -m benchmarks.bench_judge --quick
    python -m benchmarks.bench_judge --seeds 3 --dtypes f32,bf16,f16     into results/judge-<date>.json

False rejection: a right way refused on one case. Killed: a wrong way refused on at least one. Equivalent: a wrong way whose
results are bit for bit those of eager or of a right way on every case (E[x^2] at bfloat16, say); it is in no percentage.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks import harness
from benchmarks.judge_corpus import Operator, Way

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
SEED = 20261203


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four operators, one seed")
    parser.add_argument("--only", default="", help="operators whose name matches this regular expression")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dtypes", default="f32,bf16,f16")
    parser.add_argument("--no-kernels", action="store_true", help="without our own C++ kernels among the right ways")
    chosen = parser.parse_args()
    from benchmarks.judge_operators import OPERATORS

    quick = ("softmax", "layer_norm", "transpose", "gelu")
    names = [n for n in OPERATORS if re.search(chosen.only, n) and (not chosen.quick or n in quick)]
    found: dict[str, dict[str, Any]] = {}
    for dtype in chosen.dtypes.split(","):
        for name in names:
            began = time.perf_counter()
            one = tried(OPERATORS[name], dtype, 1 if chosen.quick else chosen.seeds, kernels=not chosen.no_kernels)
            found.setdefault(dtype, {})[name] = one | {"seconds": round(time.perf_counter() - began, 1)}
            print(line(f"{name} {dtype}", found[dtype][name]), flush=True)
    summary = {dtype: summed(each) for dtype, each in found.items()}
    path = harness.write_result("judge", {"operators": found, "summary": summary}, quick=chosen.quick)
    harness.finish("judge", {**summary, "results": str(path)})


def line(name: str, one: Mapping[str, Any]) -> str:
    text = f"{name:30} {one['right']:5} right, {len(one['false_rejections'])} refused; "
    text += f"{one['wrong']:3} wrong, {one['killed']} killed"
    return "\n    ".join([f"{text} ({one['seconds']} s)", *one["false_rejections"][:6], *map(str, one["survivors"])])


def summed(each: Mapping[str, Any]) -> dict[str, int]:
    counted = {k: sum(one[k] for one in each.values()) for k in ("right", "wrong", "killed", "cases", "skipped")}
    lists = ("false_rejections", "survivors", "equivalent")
    return counted | {k: sum(len(one[k]) for one in each.values()) for k in lists}


def tried(operator: Operator, dtype: str, seeds: int, *, kernels: bool) -> dict[str, Any]:
    """All ways of one operator in one dtype on every family: counts, false rejections and survivors by name."""
    from accelopt_compile.evaluate.answers import Answers, Case
    from accelopt_compile.evaluate.compare import judge
    from accelopt_compile.evaluate.inputs import FAMILIES

    one = signed(operator, DTYPES[dtype])
    workload, binding = one.workload, one.binding
    answers = Answers(workload)
    right = dict(right_ways(operator))
    wrong = {**operator.wrong, **generic_wrong(operator, dtype), **(operator.fine if dtype == "f32" else {})}
    kernel = built(workload, binding) if kernels else None
    refused: list[str] = []
    killed: set[str] = set()
    differs: set[str] = set()
    judged = cases = skipped = 0
    for family, seed in itertools.product(FAMILIES, range(seeds)):
        case = Case(tuple(sorted(binding.items())), family, SEED + seed)
        answer = answers.get(case, probes=10)
        if isinstance(answer, str):
            skipped += 1
            continue
        cases += 1
        given = one.arguments(answer.inputs)
        outcomes = {name: results_of(way, given, answer, one.results) for name, way in right.items()}
        if kernel is not None:
            outcomes |= {"our kernel": kernel(answer.inputs)}
        for name, outputs in outcomes.items():
            if family == "nonfinite" and name != "our kernel" and name != "in float64":
                continue  # inf - inf and 0 * inf come out differently by another way, and then that way is wrong
            if family == "near_max" and name != "our kernel":
                continue  # nor do these guard against overflow
            judged += 1
            if fault := judge(outputs, answer.expected).fault:
                refused.append(f"{name} on {family} {seed}: {fault}")
        same = [*outcomes.values(), [e.eager for e in answer.expected if hasattr(e, "eager")]]
        for name, way in wrong.items():
            outputs = results_of(way, given, answer, one.results)
            if not any(equal(outputs, each) for each in same):
                differs.add(name)
                if name not in killed and judge(outputs, answer.expected).fault:
                    killed.add(name)
    return {
        "right": judged,
        "false_rejections": refused,
        "wrong": len(differs),
        "killed": len(killed),
        "survivors": sorted(differs - killed),
        "equivalent": sorted(set(wrong) - differs),
        "cases": cases,
        "skipped": skipped,
    }


def right_ways(operator: Operator) -> Iterator[tuple[str, Way]]:
    yield "in float64", lambda *given: operator.function(*(x.double() if x.is_floating_point() else x for x in given))
    yield "in float32", operator.function
    yield from operator.right.items()


def generic_wrong(operator: Operator, dtype: str) -> dict[str, Way]:
    """Mistakes that any operator's result can have. The function computes in float32."""
    function, unit = operator.function, {"f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11}[dtype]

    def after(change: Any) -> Way:
        def way(*given: Tensor) -> Any:
            found = function(*given)
            first = (found[0] if isinstance(found, tuple) else found).clone()
            changed = change(first.contiguous())
            return (changed, *found[1:]) if isinstance(found, tuple) else changed

        return way

    def at(y: Tensor, index: int, value: Any) -> Tensor:
        y.view(-1)[index] = value(y.view(-1)[index])
        return y

    def shuffled(y: Tensor) -> Tensor:
        return y.view(-1).roll(1).view_as(y) if y.numel() > 1 else y * 1.5

    wrong = {
        "zeros": after(torch.zeros_like),
        "the mean": after(lambda y: torch.full_like(y, float(y.nan_to_num().mean())) + (y.numel() < 2)),
        "x 1.009": after(lambda y: y * 1.009),
        "shifted by one": after(shuffled),
        "the last element zero": after(lambda y: at(y, -1, lambda v: v * 0)),
        "the first element off by 2 %": after(lambda y: at(y, 0, lambda v: v * 1.02)),
        "the middle element of the wrong sign": after(lambda y: at(y, y.numel() // 2, lambda v: -v)),
        "the last element never written": after(lambda y: at(y, -1, lambda v: v * 0 + float("nan"))),
        "small results zeroed": after(lambda y: torch.where(y.abs() < 1e-3 * y.nan_to_num().abs().max(), 0.0, y)),
        "NaN swallowed": after(lambda y: torch.nan_to_num(y, nan=0.0) if bool(y.isnan().any()) else y * 1.02),
        "clipped to 30": after(lambda y: y.clamp(-30, 30) if bool((y.abs() > 30).any()) else y * 1.02),
    }
    if dtype == "f32":
        wrong |= {
            "x 1.001": after(lambda y: y * 1.001),
            "x (1 + 2^-14)": after(lambda y: y * (1 + 2.0**-14)),
            "rounded to bfloat16": after(lambda y: y.bfloat16().float()),
            "inputs in bfloat16": lambda *given: function(*(x.bfloat16().float() if x.is_floating_point() else x for x in given)),
        }
    else:
        wrong["noise of 6 units"] = after(lambda y: y * (1 + 6 * unit * torch.sin(torch.arange(y.numel()).view_as(y) * 12.9898)))
    if operator.defined and dtype != "bf16":  # to bfloat16 the hardware itself flushes
        tiny = torch.finfo(DTYPES[dtype]).tiny
        wrong["subnormals flushed"] = after(lambda y: torch.where(y.abs() < tiny, 0.0, y))
    return wrong


def results_of(way: Way, given: Sequence[Tensor], answer: Any, order: Sequence[int]) -> list[Tensor]:
    """What a way makes of the inputs, computed in float32 and rounded to the dtypes of the outputs."""
    wide = [x.float() if x.is_floating_point() else x for x in given]
    found = way(*wide)
    outputs = [found[k] for k in order] if isinstance(found, tuple) else [found]
    return [y.to(e.eager.dtype).reshape(e.eager.shape).contiguous() for y, e in zip(outputs, answer.expected, strict=True)]


def equal(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    """Bit for bit, any NaN equal to any other."""

    def same(x: Tensor, y: Tensor) -> bool:
        return torch.equal(x.nan_to_num(), y.nan_to_num()) and torch.equal(x.signbit(), y.signbit())

    return len(a) == len(b) and all(torch.equal(x.isnan(), y.isnan()) and same(x, y) for x, y in zip(a, b, strict=True))


def drawn(operator: Operator, dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    made = []
    for shape in operator.shapes:
        indices = bool(shape) and isinstance(shape[0], str)
        made.append(torch.randint(int(shape[0][1:]), shape[1]) if indices else torch.randn(shape).to(dtype))
    return made


@dataclass(frozen=True, kw_only=True)
class Signed:
    """An operator as a workload at a binding. Workload input k is argument `order[k]` of the function, output k its result
    `results[k]`; `shapes` are the function's, in its order."""

    workload: Any
    binding: Mapping[str, int]
    order: tuple[int, ...]
    results: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]

    def arguments(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The function's arguments from the workload's inputs."""
        return [inputs[self.order.index(k)].reshape(shape) for k, shape in enumerate(self.shapes)]


def signed(operator: Operator, dtype: torch.dtype) -> Signed:
    """The operator's workload. Which argument is which is found by trying: every order but one gives other results."""
    from accelopt_compile.dtypes import DTYPES
    from accelopt_compile.evaluate.reference import reference_module
    from tests.backends.seeds import regions_of

    given = drawn(operator, dtype)
    wanted = operator.function(*given)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    workload, binding = next(iter(regions_of(operator.function, *given)), None) or by_hand(given, wanted[0])
    program = reference_module(workload, binding)
    specs = [(workload.bound_shape(s, binding), DTYPES[s.dtype]) for s in workload.inputs]
    for order in itertools.permutations(range(len(given)), len(specs)):
        chosen = [given[k] for k in order]
        if any(x.numel() != math.prod(s) or x.dtype != d for x, (s, d) in zip(chosen, specs, strict=True)):
            continue
        found = program(*(x.reshape(s) for x, (s, _) in zip(chosen, specs, strict=True)))
        for results in itertools.permutations(range(len(wanted)), len(found)):
            if all(close(found[k], wanted[n]) for k, n in enumerate(results)):
                shapes = tuple(tuple(x.shape) for x in given)
                return Signed(workload=workload, binding=binding, order=order, results=results, shapes=shapes)
    raise RuntimeError("no order of the arguments gives the function's result")


def close(a: Tensor, b: Tensor) -> bool:
    return a.numel() == b.numel() and torch.allclose(a.float().reshape(-1), b.float().reshape(-1), rtol=0.05, atol=0.02)


def by_hand(given: Sequence[Tensor], result: Tensor) -> tuple[Any, dict[str, int]]:
    """What no region holds: a matrix product, or a transposed copy."""
    from accelopt_compile.records import Node, Ref, TensorSpec, Workload

    name = next(n for n, d in DTYPES.items() if d == given[0].dtype)

    def spec(x: Tensor) -> TensorSpec:
        return TensorSpec(dtype=name, shape=tuple(x.shape), strides=tuple(x.stride()))

    if len(given) == 2:
        nodes = [Node(op="aten.mm.default", args=(Ref("i", 0), Ref("i", 1)), outputs=(spec(result),))]
    else:
        nodes = [Node(op="aten.permute.default", args=(Ref("i", 0), (1, 0)), outputs=(spec(given[0].t()),))]
        nodes += [Node(op="aten.clone.default", args=(Ref("n", 0),), outputs=(spec(result),))]
    inputs = tuple(spec(x) for x in given)
    return Workload(inputs=inputs, nodes=tuple(nodes), outputs=(Ref("n", len(nodes) - 1),), output_specs=(spec(result),)), {}


def built(workload: Any, binding: Mapping[str, int]) -> Any:
    """Our own kernel as a function of the workload's inputs, or None where the backend has none."""
    from accelopt_backends.cpp import CppBackend
    from accelopt_compile.evaluate.buffers import Buffers

    backend = CppBackend()
    if backend.supports(workload) is not None:
        return None
    source = backend.seed(workload)
    kernel = backend.load(backend.build(source, source.defaults(), tempfile.mkdtemp(prefix="accelopt-judge-")))

    def call(inputs: Sequence[Tensor]) -> list[Tensor]:
        buffers = Buffers(workload, binding)
        buffers.fill(inputs, 0)
        buffers.poison(0)
        if kernel(buffers.pointers(), buffers.sizes, 1) != 0:
            raise RuntimeError("our own kernel failed")
        return buffers.results()

    return call


if __name__ == "__main__":
    main()
