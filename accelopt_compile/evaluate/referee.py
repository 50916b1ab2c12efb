"""The referee: prepares what a kernel is called on and judges what it left. It runs in a trusted process and never meets
a kernel: the two share an `Arena`, and only the referee holds right answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from accelopt_compile.errors import InvalidRecord
from accelopt_compile.evaluate.answers import Answer, Answers, Case
from accelopt_compile.evaluate.buffers import POISONS, Buffers, Fence, bits_equal, mapped
from accelopt_compile.evaluate.compare import judge
from accelopt_compile.evaluate.families import NONFINITE
from accelopt_compile.evaluate.informative import why_uninformative
from accelopt_compile.evaluate.reference import reference_module
from accelopt_compile.evaluate.roles import roles
from accelopt_compile.records import Stage, Workload

Reply = dict[str, Any]


class Wrong(Exception):
    """A check failed."""

    def __init__(self, stage: Stage, reason: str, diagnosis: str = "") -> None:
        super().__init__(reason)
        self.stage, self.reason, self.diagnosis = stage, reason, diagnosis

    def to_reply(self) -> Reply:
        return {"wrong": [self.stage.value, self.reason, self.diagnosis]}


class Referee:
    """Judges kernels of one workload, one after another, on the arena behind `descriptor`."""

    def __init__(self, workload: Workload, descriptor: int) -> None:
        torch.set_num_threads(1)
        self._workload = workload
        self._memory = mapped(descriptor)
        self._answers = Answers(workload)
        self._passed: set[tuple[tuple[tuple[str, int], ...], str]] = set()
        self._layout: tuple[Any, ...] = ()
        self._buffers: Buffers | None = None
        self._case: Case | None = None
        self._answer: Answer | None = None
        self._first: list[torch.Tensor] = []
        self._stale: list[torch.Tensor] = []

    def begin(self) -> Reply:
        """Another kernel: forget which cases the last one passed, and what it wrote."""
        self._passed.clear()
        self._first, self._stale = [], []
        return {}

    def prepare(self, case: Case, *, probes: int, shift: int = 0, fence: Fence = "", apart: bool = False) -> Reply:
        """Put the case's inputs and poisoned outputs into the arena. {"offsets", "sizes", "fences", "readonly", "span",
        "eager_s"}: where the tensors begin, which pages the kernel must not touch or write, how much of the arena is in use, in
        bytes, and what eager took; or
        {"skip": why it can prove nothing}. With `apart` outputs lie over no inputs: for timing, where the runner copies
        what a call left."""
        answer = self._answers.get(case, probes=probes)
        if isinstance(answer, str):
            return {"skip": answer}
        wanted = (case.binding, shift, fence, apart)
        if self._layout != wanted or self._buffers is None:
            self._layout, self._stale = wanted, []
            binding = dict(case.binding)
            self._buffers = Buffers(self._workload, binding, memory=self._memory, shift=shift, fence=fence, apart=apart)
        elif self._first:
            self._stale = self._first
        self._case, self._answer, self._first = case, answer, []
        self._fill(0)
        fences, readonly = self._buffers.closed(self._memory)
        places = {"offsets": self._buffers.offsets(self._memory), "fences": fences, "readonly": readonly}
        places["span"] = self._buffers.span
        return {**places, "sizes": self._buffers.sizes, "eager_s": answer.eager_s}

    def prepare_outside(self, case: Case, *, probes: int, side: str, index: int) -> Reply:
        """`prepare`, with one position above or below what it indexes, in the input of that `index` among those that index; a
        "skip" where eager takes that, or there is none."""
        prepared = self.prepare(case, probes=probes)
        if "skip" in prepared:
            return prepared
        assert self._answer is not None and self._buffers is not None
        binding = dict(case.binding)
        eager = reference_module(self._workload, binding)
        indexing = [(position, role) for position, role in enumerate(roles(self._workload, binding)) if role.kind == "index"]
        for position, role in indexing[index : index + 1]:
            given = list(self._answer.inputs)
            if given[position].numel() == 0:
                continue
            given[position] = given[position].clone(memory_format=torch.contiguous_format)
            given[position].view(-1)[case.seed % given[position].numel()] = -1 if side == "below" else role.bound
            try:
                eager(*given)
            except (IndexError, RuntimeError):
                self._buffers.fill(given, 0)
                return prepared
        return {"skip": "eager refuses no index"}

    def check(self, run: int, *, again: bool) -> Reply:
        """Judge call number `run` on the prepared case, and make ready for the next one if there is `again` one.
        {"share": worst error as a share of what is allowed} or {"wrong": [stage, reason, diagnosis]}."""
        assert self._buffers is not None and self._answer is not None and self._case is not None
        share = 0.0
        try:
            _check_memory(self._buffers, self._case)
            results = self._buffers.results()
            if run == 0:
                share = self._judge(results, self._answer, self._case)
                self._first = results
            elif not bits_equal(results, self._first):
                raise Wrong(*_difference(results, self._first, run, self._case))
        except Wrong as wrong:
            return wrong.to_reply()
        if again:
            self._fill(run + 1)
        else:
            self._passed.add((self._case.binding, self._case.family))
        return {"share": share}

    def informative(self, binding: Mapping[str, int], seed: int) -> Reply:
        """{"reasons"}: what no case at `binding` could tell of any kernel, a sentence each."""
        return {"reasons": why_uninformative(self._workload, self._answers, binding, seed=seed)}

    def check_timed(self) -> Reply:
        """Judge what a timed call left in the (`apart`) outputs, and poison them again."""
        assert self._buffers is not None and self._answer is not None
        found = judge(self._buffers.results(), self._answer.expected)
        self._buffers.poison(0)
        return {"share": found.share, "fault": found.fault}

    def _fill(self, run: int) -> None:
        assert self._buffers is not None and self._answer is not None
        if run < 2 or self._buffers.overwritten:
            self._buffers.fill(self._answer.inputs, run)
        self._buffers.poison(run)
        if run == 1 and self._stale and not self._buffers.overwritten:
            self._buffers.offer(self._stale)  # what was right for other inputs: a kernel that takes it for done is wrong

    def _judge(self, results: list[torch.Tensor], answer: Answer, case: Case) -> float:
        found = judge(results, answer.expected)
        if not found.fault:
            return found.share
        assert self._buffers is not None
        unwritten = sum(g.poisoned(POISONS[0]) for g in self._buffers.outputs)
        hint = f"; {unwritten} output elements were never written" if unwritten and case.family not in NONFINITE else ""
        elsewhere = self._layout[1:3] == (0, "") and any(
            family == case.family and binding != case.binding for binding, family in self._passed
        )
        stage = Stage.SHAPE if elsewhere else Stage.NUMERICS
        raise Wrong(stage, f"wrong result on {case}", found.fault + hint)


def referee(message: Mapping[str, Any], descriptor: int) -> Referee:
    """The referee that a host's "open" asks for. Raises InvalidRecord."""
    workload = Workload.from_json(message["workload"])
    made = Referee(workload, descriptor)
    made.prepare(Case(tuple(sorted((n, min(v, 2)) for n, v in message["binding"].items())), "normal", 1), probes=2)
    return made


def answer(referee: Referee, message: Mapping[str, Any]) -> Reply:
    """One request of the host."""
    match message["op"]:
        case "begin":
            return referee.begin()
        case "prepare":
            if message["outside"]:
                return referee.prepare_outside(
                    _case(message), probes=message["probes"], side=message["outside"], index=message["index"]
                )
            return referee.prepare(_case(message), probes=message["probes"], shift=message["shift"], fence=message["fence"])
        case "prepare_timed":
            return referee.prepare(_case(message), probes=message["probes"], apart=True)
        case "check":
            return referee.check(message["run"], again=message["again"])
        case "informative":
            return referee.informative(message["binding"], int(message["seed"]))
        case "check_timed":
            return referee.check_timed()
    raise InvalidRecord(f"unknown request {message['op']!r}")


def _case(message: Mapping[str, Any]) -> Case:
    return Case(tuple((str(n), int(v)) for n, v in message["binding"]), message["family"], int(message["seed"]))


def _check_memory(buffers: Buffers, case: Case) -> None:
    """Inputs must be as they were, canaries too. Raises Wrong."""
    for number, guarded in enumerate(buffers.inputs):
        if number not in buffers.overwritten and not guarded.unchanged():
            raise Wrong(Stage.MUTATION, f"input {number} was changed", f"on {case}: a kernel writes to its outputs only")
    for number, guarded in enumerate(buffers.outputs):
        if not guarded.intact():
            raise Wrong(Stage.MUTATION, f"memory around output {number} was written", f"on {case}: check bounds and strides")


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
