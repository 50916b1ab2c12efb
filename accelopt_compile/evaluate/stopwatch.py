"""Timing one loaded kernel against the baselines of its workload, on real buffers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch

from accelopt_compile.evaluate import timing
from accelopt_compile.evaluate.answers import Answer
from accelopt_compile.evaluate.baseline import Baselines
from accelopt_compile.evaluate.buffers import GUARDS, POISONS, Guarded
from accelopt_compile.evaluate.compare import judge
from accelopt_compile.evaluate.launching import allocating_call
from accelopt_compile.records import Timing, Workload

CLOSE = 1.2
"""A second baseline within this factor of the better one is measured against too, at full effort."""


class Stopwatch:
    """Medians of the baselines and the noise are measured once and kept for all candidates."""

    def __init__(self, workload: Workload, binding: Mapping[str, int], baselines: Baselines, *, threads: int, seed: int) -> None:
        self._workload, self._binding, self._baselines, self._threads = workload, dict(binding), baselines, threads
        self._clock = timing.clock_for(threads)
        self._random = random.Random(seed)
        self._medians: dict[str, float] = {}
        self._noise: float | None = None
        self._timed: list[torch.Tensor] = []

    def medians(self, answer: Answer, *, inductor: bool) -> dict[str, float]:
        """Median microseconds of "eager" and, where there is one, "inductor"."""
        if not self._medians:
            names = ["eager"] + (["inductor"] if inductor and self._baselines.inductor() is not None else [])
            with torch.no_grad():
                for name in names:
                    call = self._baseline(name, answer)
                    count, _ = timing.repeats(call, self._clock)
                    samples = sorted(timing.sample(call, count, self._clock) for _ in range(7))
                    self._medians[name] = samples[3] / 1e3
        return dict(self._medians)

    def time(self, kernel: Any, answer: Answer, effort: str, *, inductor: bool) -> tuple[Timing, str]:
        """The timing, against whichever baseline leaves the least speedup; and what is wrong with the outputs of timed
        calls, or ""."""
        medians = self.medians(answer, inductor=inductor)
        ranked = sorted(medians, key=lambda name: medians[name])
        rivals = [name for name in ranked if effort == "full" and medians[name] < CLOSE * medians[ranked[0]]] or ranked[:1]
        wrote: list[list[torch.Tensor]] = []
        with torch.no_grad():
            results = {name: self._against(name, kernel, answer, effort, wrote) for name in rivals}
            noise = self._measured_noise(rivals[0], answer, effort)
        paired = min(results.values(), key=lambda p: p.ratio)
        found = Timing(
            kernel_us=paired.ours_us,
            baselines_us=medians | {name: p.base_us for name, p in results.items()},
            speedup=paired.ratio,
            low=paired.low,
            high=paired.high,
            blocks=paired.blocks,
            threads=self._threads,
            noise=noise,
        )
        faults = (judge(outputs, answer.expected).fault for outputs in wrote)
        return found, next((fault for fault in faults if fault), "")

    def _against(self, name: str, kernel: Any, answer: Answer, effort: str, wrote: list[list[torch.Tensor]]) -> timing.Paired:
        """One paired measurement. `wrote` keeps what calls wrote after the first block and after the last."""

        def make() -> timing.Call:
            self._timed = self._fresh(answer)
            return allocating_call(kernel, self._workload, self._binding, self._timed, self._threads)

        def check(call: timing.Call) -> None:
            if self._workload.aliases:
                wrote[1:] = [self._overwritten(call, answer)]
                return
            stale: Any = call()
            for output in stale:  # the next call most likely gets this memory again: it must not find a right answer there
                if output.is_contiguous() and output.numel():
                    output.view(-1).view(torch.uint8).fill_(POISONS[0])
            del stale, output
            results: Any = call()
            wrote[1:] = [[r.contiguous() for r in results]]

        return timing.measure(
            make,
            lambda: self._baseline(name, answer),
            timing.FULL if effort == "full" else timing.QUICK,
            clock=self._clock,
            generator=self._random,
            after_block=check,
        )

    def _overwritten(self, call: timing.Call, answer: Answer) -> list[torch.Tensor]:
        """What one more call writes over the inputs, which get their first values back for it."""
        for x, first in zip(self._timed, answer.inputs, strict=True):
            if 0 not in x.stride():
                x.copy_(first)
        results: Any = call()
        return [r.clone(memory_format=torch.contiguous_format) for r in results]

    def _measured_noise(self, name: str, answer: Answer, effort: str) -> float:
        """The A/A noise of a baseline: measured once for quick evaluations, anew for full ones."""
        if self._noise is None or effort == "full":
            self._noise = timing.noise(
                lambda: self._baseline(name, answer), timing.QUICK, clock=self._clock, generator=self._random
            )
        return self._noise

    def _baseline(self, name: str, answer: Answer) -> timing.Call:
        inputs = self._fresh(answer)
        compiled = self._baselines.inductor() if name == "inductor" else None
        if compiled is not None:
            return lambda: compiled(list(inputs))
        return lambda: self._baselines.eager(inputs)

    def _fresh(self, answer: Answer) -> list[torch.Tensor]:
        """The timed inputs in new memory, each after a random padding, so that placement differs from block to block."""
        fresh = []
        for x in answer.inputs:
            padding = torch.empty(self._random.randrange(1, 64) * 1024, dtype=torch.uint8)
            guarded = Guarded(x.dtype, x.shape, x.stride())
            guarded.write(x, GUARDS[0])
            fresh.append(guarded.tensor)
            del padding
        return fresh
