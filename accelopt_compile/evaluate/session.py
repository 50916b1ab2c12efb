"""A session of the evaluation child: one workload at one binding; verifies and times one loaded kernel after another."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch

from accelopt_compile.errors import InvalidRecord
from accelopt_compile.evaluate.answers import Answer, Answers, Case
from accelopt_compile.evaluate.baseline import Baselines
from accelopt_compile.evaluate.buffers import GUARDS, POISONS, Buffers, bits_equal
from accelopt_compile.evaluate.compare import judge
from accelopt_compile.evaluate.inputs import FAMILIES, QUICK_FAMILIES, SMALL, bindings_to_try
from accelopt_compile.evaluate.stopwatch import Stopwatch
from accelopt_compile.records import Stage, Workload

Kernel = Any
Passed = set[tuple[tuple[tuple[str, int], ...], str]]
"""(binding, family) of the cases that a kernel got right so far."""
CALLS = {"quick": 5, "full": 20}
LARGE_CALLS = {"quick": 3, "full": 8}
PROBES = {"quick": 6, "full": 10}
MANY_ELEMENTS = 1 << 18
"""Above this many elements a case gets fewer probes, calls and families: each costs tens of milliseconds."""
LARGE_ELEMENTS = 1 << 20
OTHER_ELEMENTS = 1 << 20
"""Sizes beside the target's are tried up to so many elements."""


class Wrong(Exception):
    """A check failed."""

    def __init__(self, stage: Stage, reason: str, diagnosis: str = "") -> None:
        super().__init__(reason)
        self.stage, self.reason, self.diagnosis = stage, reason, diagnosis


class Session:
    """`progress` announces to the host how long the next step may take."""

    def __init__(
        self,
        workload: Workload,
        binding: Mapping[str, int],
        *,
        threads: int,
        seed: int,
        call_s: float,
        progress: Callable[[dict[str, Any]], None],
    ) -> None:
        torch.set_num_threads(threads)
        self._workload, self._binding = workload, dict(binding)
        self._threads, self._seed, self._call_s, self._progress = threads, seed, call_s, progress
        self._answers = Answers(workload)
        self.baselines = Baselines(workload, binding)
        self._stopwatch = Stopwatch(workload, binding, self.baselines, threads=threads, seed=seed)
        self._timed_seed = seed + 7919

    # ------------------------------------------------------------ verification

    def cases(self, effort: str, seeds: list[int]) -> list[Case]:
        """What a kernel is tried on. Quick: a few families at a small size (where sizes are free) and the target.
        Full: every family there, several at the target, and other sizes."""
        target = self._target()
        small = tuple(sorted({n: min(v, SMALL) for n, v in self._binding.items()}.items()))
        large = self._elements(self._binding) > LARGE_ELEMENTS
        if effort == "quick":
            families = QUICK_FAMILIES[:2] if small == target and large else QUICK_FAMILIES
            found = [Case(small, family, seeds[k % 2]) for k, family in enumerate(families)]
            return found if small == target else [Case(target, "normal", seeds[1]), *found]
        found = [Case(small, family, seeds[k % len(seeds)]) for k, family in enumerate(FAMILIES)]
        if small != target:
            at_target = ("normal", "logits") if large else ("normal", "logits", "nonfinite")
            found = [Case(target, family, seeds[k % len(seeds)]) for k, family in enumerate(at_target)] + found
        for other in bindings_to_try(self._workload, self._binding):
            if self._elements(other) <= OTHER_ELEMENTS and tuple(sorted(other.items())) != small:
                key = tuple(sorted(other.items()))
                found += [Case(key, family, seeds[0]) for family in (("normal",) if self._many(key) else ("normal", "offset"))]
        return found

    def _target(self) -> tuple[tuple[str, int], ...]:
        """The binding, or where that is large one like it with fewer rows: the golden answer costs seconds there, and
        what is timed at the real binding is judged too."""
        binding = dict(self._binding)
        while self._elements(binding) > LARGE_ELEMENTS and (name := max(binding, key=lambda n: binding[n], default="")):
            if binding[name] <= SMALL:
                break
            binding[name] = binding[name] // 2 + 1
        return tuple(sorted(binding.items()))

    def verify(self, kernel: Kernel, effort: str, seeds: list[int]) -> dict[str, Any]:
        """Try `kernel` on every case. {"worst_share", "worst_case", "cases", "skipped"} or {"rejected": [...]}."""
        worst, worst_case, done, skipped = 0.0, "", 0, 0
        buffers: dict[tuple[tuple[str, int], ...], Buffers] = {}
        passed: Passed = set()
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            for case in self.cases(effort, seeds):
                answer = self._answers.get(case, probes=self._probes(case, effort))
                if isinstance(answer, str):
                    skipped += 1
                    continue
                if case.binding not in buffers:
                    buffers = {case.binding: Buffers(self._workload, dict(case.binding))}
                again = any(binding == case.binding for binding, _ in passed)
                calls = 2 if again else (LARGE_CALLS if self._many(case.binding) else CALLS)[effort]
                share = self._try(kernel, case, answer, buffers[case.binding], calls, passed)
                self._progress({"allow_s": None})  # the next answer is not the kernel's to hurry
                passed.add((case.binding, case.family))
                done += 1
                worst, worst_case = max((worst, worst_case), (share, str(case)), key=lambda pair: pair[0])
            if effort == "full":
                self._misaligned(kernel, seeds[0])
            if done == 0:
                raise Wrong(Stage.NUMERICS, "no case could be verified", f"{skipped} cases skipped, last: {answer}")
        except Wrong as wrong:
            return {"rejected": [wrong.stage.value, wrong.reason, wrong.diagnosis]}
        finally:
            torch.set_num_threads(before)
            self._progress({"allow_s": None})
        return {"worst_share": worst, "worst_case": worst_case, "cases": done, "skipped": skipped}

    def _try(self, kernel: Kernel, case: Case, answer: Answer, buffers: Buffers, calls: int, passed: Passed) -> float:
        """All checks of one case; the worst share. Raises Wrong."""
        self._progress({"allow_s": self._call_s + 20 * calls * answer.eager_s, "note": str(case)})
        first: list[torch.Tensor] = []
        share = 0.0
        for run in range(calls):
            if run < 2 or buffers.overwritten:
                buffers.fill(answer.inputs, run)
            buffers.poison(run)
            status = int(kernel(buffers.pointers(), buffers.sizes, self._threads))
            if status != 0:
                raise Wrong(Stage.RUN, f"the kernel returned {status}", f"on {case}: a kernel returns 0 when it ran")
            _check_memory(buffers, run, case)
            results = buffers.results()
            if run == 0:
                share = self._judge(results, answer, buffers, case, passed)
                first = results
            elif not bits_equal(results, first):
                raise Wrong(*_difference(results, first, run, case))
        return share

    def _judge(self, results: list[torch.Tensor], answer: Answer, buffers: Buffers, case: Case, passed: Passed) -> float:
        found = judge(results, answer.expected)
        if not found.fault:
            return found.share
        unwritten = sum(g.poisoned(POISONS[0]) for g in buffers.outputs)
        hint = f"; {unwritten} output elements were never written" if unwritten and case.family != "nonfinite" else ""
        elsewhere = any(family == case.family and binding != case.binding for binding, family in passed)
        stage = Stage.SHAPE if elsewhere else Stage.NUMERICS
        raise Wrong(stage, f"wrong result on {case}", found.fault + hint)

    def _misaligned(self, kernel: Kernel, seed: int) -> None:
        """Inputs one element off the usual alignment: views of larger tensors are passed like that."""
        small = tuple(sorted({n: min(v, SMALL) for n, v in self._binding.items()}.items()))
        case = Case(small, "normal", seed)
        answer = self._answers.get(case, probes=PROBES["full"])
        if isinstance(answer, Answer):
            buffers = Buffers(self._workload, dict(small), shift=1)
            try:
                self._try(kernel, case, answer, buffers, 2, set())
            except Wrong as wrong:
                raise Wrong(wrong.stage, wrong.reason + ", inputs one element off alignment", wrong.diagnosis) from wrong

    def _probes(self, case: Case, effort: str) -> int:
        return PROBES["quick" if self._many(case.binding) else effort]

    def _many(self, binding: tuple[tuple[str, int], ...]) -> bool:
        return self._elements(dict(binding)) > MANY_ELEMENTS

    def _elements(self, binding: Mapping[str, int]) -> int:
        total = 0
        for spec in (*self._workload.inputs, *self._workload.output_specs):
            count = 1
            for n in self._workload.bound_shape(spec, binding):
                count *= n
            total += count
        return total

    # ------------------------------------------------------------ timing

    def time(self, kernel: Kernel, effort: str, *, inductor: bool) -> dict[str, Any]:
        """{"timing": {...}} of `kernel` against the better baseline, or {"rejected": [...]}: what timed calls write must
        be right too."""
        answer = self._timed_answer(self._timed_seed if effort == "quick" else secrets.randbits(62))
        found, fault = self._stopwatch.time(kernel, answer, effort, inductor=inductor)
        if fault:
            return {"rejected": [Stage.CHEAT.value, "wrong result after timing, right before it", fault]}
        return {"timing": asdict(found)}

    def baseline_medians(self, *, inductor: bool) -> dict[str, float]:
        """Median microseconds of each baseline at the binding; measured once."""
        return self._stopwatch.medians(self._timed_answer(self._timed_seed), inductor=inductor)

    def _timed_answer(self, seed: int) -> Answer:
        """Inputs that are timed; never those of a check. Raises InvalidRecord when the workload has no usable inputs."""
        answer = self._answers.get(Case(tuple(sorted(self._binding.items())), "normal", seed), probes=4)
        if isinstance(answer, str):
            raise InvalidRecord(f"nothing can be timed: {answer}")
        return answer


def _check_memory(buffers: Buffers, run: int, case: Case) -> None:
    """Inputs must be as they were, canaries too. Raises Wrong."""
    for number, guarded in enumerate(buffers.inputs):
        if number not in buffers.overwritten and not guarded.unchanged():
            raise Wrong(Stage.MUTATION, f"input {number} was changed", f"on {case}: a kernel writes to its outputs only")
    for number, guarded in enumerate(buffers.outputs):
        if not guarded.intact(GUARDS[run % 2]):
            raise Wrong(Stage.MUTATION, f"memory around output {number} was written", f"on {case}: check the loop bounds")


def _difference(results: list[torch.Tensor], first: list[torch.Tensor], run: int, case: Case) -> tuple[Stage, str, str]:
    for number, (a, b) in enumerate(zip(results, first, strict=True)):
        wrong = ~((a == b) | ((a != a) & (b != b)))
        if bool(wrong.any()):
            at = int(wrong.reshape(-1).to(torch.uint8).argmax())
            detail = f"output {number}, element {at}: {b.reshape(-1)[at].item()!r} then {a.reshape(-1)[at].item()!r}"
            break
    else:
        detail = "the bytes differ (sign of zero, or NaN payloads)"
    why = " (a race, a read outside the inputs, or an element never written)"
    return Stage.NONDETERMINISM, f"call {run + 1} gave another result than call 1", f"on {case}: {detail}{why}"
