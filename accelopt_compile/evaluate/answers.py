"""Cases and their right answers. An answer is computed once per case and kept for all candidates of a session."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch.fx import GraphModule

from accelopt_compile.dtypes import DTYPES
from accelopt_compile.evaluate.compare import Exact, Expected, Picked
from accelopt_compile.evaluate.exact import exact_outputs
from accelopt_compile.evaluate.families import EXPONENTS, NONFINITE
from accelopt_compile.evaluate.inputs import MASKING, make_inputs
from accelopt_compile.evaluate.overflow import overflows
from accelopt_compile.evaluate.reference import reference_module, widen
from accelopt_compile.evaluate.roles import Role, roles
from accelopt_compile.evaluate.roundings import UNIT
from accelopt_compile.evaluate.sensitivity import Moves, sensitivity
from accelopt_compile.evaluate.tolerance import (
    ROUNDED_OPERANDS,
    Allowance,
    allow,
    input_steps,
    nan_allowed,
    reduced_elements,
    rounds_operands,
    rounds_to_half,
)
from accelopt_compile.records import Node, Ref, Workload

CACHE_BYTES = 1 << 30
PROBE_SECONDS = 1.5
SIGN_DRAWS, FEW_SIGN_DRAWS = 32, 2
"""Draws of inputs on which eager must give numbers, of few elements and of many. One was not enough: with two variances of a
batch norm, or the one step count of AdamW, it gave numbers by luck, and later cases NaN."""
MANY_DRAWN = 1 << 16
EQUAL_TERMS = (
    "constant_rows", "constant_columns", "zero_rows", "impulse_last", "one_hot", "ties", "subnormal", "negative_zeros",
    "tile_edges", "spikes", "sorted", "offset_rows", *EXPONENTS,
)  # fmt: skip
"""Families in which a sum has many equal terms, if only after an exponential: its roundings are on one side."""
ILL_CONDITIONED = {torch.float64: 1e-2, torch.float32: 1e-2, torch.bfloat16: 0.1, torch.float16: 0.1}
"""Share of the float64 answer (rms) that eager may be off by: a multiple of more would accept almost anything."""


@dataclass(frozen=True)
class Case:
    """One set of inputs to try a kernel on."""

    binding: tuple[tuple[str, int], ...]
    family: str
    seed: int

    def __str__(self) -> str:
        sizes = ", ".join(f"{n}={v}" for n, v in self.binding)
        return f"{self.family} inputs" + (f" at {sizes}" if sizes else "")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Inputs of a case and what is expected of each output. `eager_s` is what eager took."""

    inputs: list[torch.Tensor]
    expected: list[Expected]
    eager_s: float

    @property
    def bytes(self) -> int:
        kept = list(self.inputs)
        for e in self.expected:
            kept += [e.source, e.values] if isinstance(e, Picked) else [e.golden, e.eager]
            kept += [e.limit] if isinstance(e, Allowance) else []
        return sum(t.numel() * t.element_size() for t in kept)


class Answers:
    """Right answers of one workload, least recently used dropped beyond 1 GiB. `skipped` counts cases that have none."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._low = rounds_to_half(workload)
        self._kept: OrderedDict[Case, Answer | str] = OrderedDict()
        self._modules: dict[tuple[tuple[str, int], ...], tuple[GraphModule, GraphModule]] = {}
        self._picks = picks(workload)
        self._exact = exact_outputs(workload)
        self._may_be_nan = (*NONFINITE, *(MASKING if any(s.dtype == "b8" for s in workload.inputs) else ()))
        self._signs: list[bool] | None = None

    def get(self, case: Case, *, probes: int) -> Answer | str:
        """The answer, or why the case can prove nothing."""
        if case not in self._kept:
            with torch.no_grad(), one_thread():
                try:
                    self._kept[case] = self._compute(case, probes)
                except IndexError as refused:  # a position that is computed, in float64 or a probe another one than in eager
                    self._kept[case] = f"a position outside its table: {refused}"[:200]
        self._kept.move_to_end(case)
        total = 0
        for kept in reversed(self._kept):
            answer = self._kept[kept]
            total += answer.bytes if isinstance(answer, Answer) else 0
            if total > CACHE_BYTES and kept != case:
                self._kept[kept] = ""
        for dropped in [c for c, a in self._kept.items() if a == ""]:
            del self._kept[dropped]
        return self._kept[case]

    def _compute(self, case: Case, probes: int) -> Answer | str:
        eager, golden = self._programs(case)
        try:
            inputs, results, took = self._eager(case, eager)
        except (RuntimeError, IndexError, ValueError, ZeroDivisionError, NotImplementedError) as refused:
            return f"the reference refuses this case: {type(refused).__name__} {refused}"[:200]
        if case.family not in self._may_be_nan and any(r.is_floating_point() and bool(r.isnan().any()) for r in results):
            return "the reference gives NaN"
        wide = widen(inputs)
        begin = time.perf_counter()
        try:
            answers = golden(*wide)
        except (RuntimeError, NotImplementedError):  # no float64 kernel for an operator: eager is then all there is
            return self._without_golden(inputs, results, took)
        if case.family in ("near_max", *EXPONENTS) and overflows(golden, wide):
            return "a value on the way is larger than its type holds"
        probes = max(2, min(probes, int(PROBE_SECONDS / max(time.perf_counter() - begin, 1e-6))))
        reduced = reduced_elements(self._workload, dict(case.binding))
        equal_terms = case.family in EQUAL_TERMS
        steps = input_steps(reduced, equal_terms=equal_terms)
        moved = sensitivity(
            golden, inputs, answers, probes=probes, low=False, seed=case.seed, multiple=steps, equal_terms=equal_terms
        )
        moved_low = (
            sensitivity(golden, inputs, answers, probes=probes, low=True, seed=case.seed) if self._low else [None] * len(moved)
        )
        rounded = ROUNDED_OPERANDS if rounds_operands(self._workload) else 1.0
        expected: list[Expected] = []
        for k, (r, g, s, low) in enumerate(zip(results, answers, moved, moved_low, strict=True)):
            if k in self._picks:
                expected.append(self._picked(k, case, wide, g, r))
                continue
            if not r.is_floating_point() or k in self._exact:
                right = r.contiguous()
                golden_too = right if r.is_floating_point() else g.contiguous()
                expected.append(Exact(eager=right, golden=golden_too, signed=self._exact.get(k, False)))
                continue
            allowance = allow(g, r, s, low, reduced, equal_terms=equal_terms, rounded=rounded)
            if case.family in NONFINITE:
                allowance = replace(allowance, nan=nan_allowed(self._workload))
            if _ill_conditioned(allowance):
                return "eager itself is far off the float64 answer"
            expected.append(allowance)
        return Answer(inputs=inputs, expected=expected, eager_s=took)

    def _without_golden(self, inputs: list[torch.Tensor], results: list[torch.Tensor], took: float) -> Answer:
        expected: list[Expected] = []
        for r in results:
            if r.is_floating_point():
                g = r.to(torch.float64)
                s = Moves(elements=torch.nan_to_num(g.abs()) * UNIT[r.dtype], along=(0.0, 0.0, 0.0), probes=16)
                expected.append(allow(g, r, s, None, 1))
            else:
                expected.append(Exact(eager=r.contiguous(), golden=r.contiguous()))
        return Answer(inputs=inputs, expected=expected, eager_s=took)

    def _picked(self, output: int, case: Case, wide: list[torch.Tensor], golden: torch.Tensor, eager: torch.Tensor) -> Picked:
        """What positions chosen by a top-k must lead to. Eager's own choice, and rounding before it, may be a little off."""
        node, source = self._picks[output]
        given = source.kind == "i"
        if given:
            row = wide[source.index]
        else:
            (row,) = reference_module(replace(self._workload, outputs=(source,)), dict(case.binding), wide=True)(*wide)
        dim = int(node.args[2] if len(node.args) > 2 else dict(node.kwargs).get("dim", -1)) % max(row.dim(), 1)
        values = row.gather(dim, golden.to(torch.int64))
        own = (row.gather(dim, eager.to(torch.int64)) - values).abs()
        unit = 0.0 if given else UNIT[DTYPES[node.outputs[0].dtype]]
        limit = torch.nan_to_num(2 * unit * values.abs() + own, nan=0.0, posinf=0.0)
        return Picked(positions=eager, source=row, values=values, limit=limit, dim=dim)

    def _programs(self, case: Case) -> tuple[GraphModule, GraphModule]:
        if case.binding not in self._modules:
            binding = dict(case.binding)
            self._modules[case.binding] = (
                reference_module(self._workload, binding),
                reference_module(self._workload, binding, wide=True),
            )
        return self._modules[case.binding]

    def _eager(self, case: Case, eager: GraphModule) -> tuple[list[torch.Tensor], list[torch.Tensor], float]:
        domain = self._domain(dict(case.binding), eager)
        plain = [replace(role, compared=()) for role in domain]
        # As usual; no integers that only comparisons expect; 0 or 1; 0: where the reference refuses the ones before.
        for bound, tried in ((None, domain), (None, plain), (2, plain), (1, plain)):
            inputs = make_inputs(self._workload, dict(case.binding), case.family, case.seed, tried, integers_below=bound)
            begin = time.perf_counter()
            try:
                results = eager(*inputs)
                break
            except (RuntimeError, IndexError, ZeroDivisionError):
                if bound == 1:
                    raise
        took = time.perf_counter() - begin
        owned = {x.data_ptr() for x in inputs}
        return inputs, [r.clone() if r.data_ptr() in owned else r for r in results], took

    def _domain(self, binding: Mapping[str, int], eager: GraphModule) -> list[Role]:
        """Roles of the inputs; found out once: which of them must not be negative for eager to give numbers at all."""
        found = roles(self._workload, binding)
        if self._signs is None:
            self._signs = self._needed_signs(found, binding, eager)
        return [replace(role, nonnegative=sign) for role, sign in zip(found, self._signs, strict=True)]

    def _needed_signs(self, found: list[Role], binding: Mapping[str, int], eager: GraphModule) -> list[bool]:
        drawn = sum(math.prod(self._workload.bound_shape(spec, binding)) for spec in self._workload.inputs)
        seeds = random.Random(0)  # generators of small seeds in a row begin alike: 32 step counts, none below -1
        draws = [seeds.getrandbits(62) for _ in range(FEW_SIGN_DRAWS if drawn > MANY_DRAWN else SIGN_DRAWS)]

        def gives_nan(signs: list[bool]) -> bool:
            domain = [replace(role, nonnegative=sign) for role, sign in zip(found, signs, strict=True)]
            for seed in draws:
                try:
                    results = eager(*make_inputs(self._workload, binding, "normal", seed, domain))
                except (RuntimeError, IndexError, ZeroDivisionError):
                    return False
                if any(r.is_floating_point() and bool(r.isnan().any()) for r in results):
                    return True
            return False

        none, every = [False] * len(found), [role.kind == "float" for role in found]
        if not gives_nan(none) or gives_nan(every):
            return none
        signs = list(every)
        for k in range(len(signs)):
            trial = [sign and j != k for j, sign in enumerate(signs)]
            if signs[k] and not gives_nan(trial):
                signs = trial
        return signs


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Golden answers are many small operations: on contended cores a second thread made each take 3 ms instead of 0.1."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def picks(workload: Workload) -> dict[int, tuple[Node, Ref]]:
    """The outputs that are the positions of a top-k: its node, and the value it chooses from."""
    found = {}
    for k, ref in enumerate(workload.outputs):
        node = workload.nodes[ref.index] if ref.kind == "n" else None
        if node is not None and node.op == "aten.topk.default" and ref.output == 1 and isinstance(node.args[0], Ref):
            found[k] = (node, node.args[0])
    return found


def _ill_conditioned(a: Allowance) -> bool:
    """Whether eager's error is so large that its multiple would accept almost anything."""
    if a.golden.numel() == 0:
        return False
    g = torch.nan_to_num(a.golden, nan=0.0, posinf=0.0, neginf=0.0)
    d = torch.nan_to_num(a.eager.to(torch.float64) - a.golden, nan=0.0, posinf=0.0, neginf=0.0)
    size = math.sqrt(float(g.square().mean()))
    return math.sqrt(float(d.square().mean())) > ILL_CONDITIONED[a.eager.dtype] * size > 0
